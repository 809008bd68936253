"""Each statement asks for everything itself: of rows that differ from the one it is for in one thing, it finds none.

What a verb has read and compared before it writes may be other by then, so the write asks again. In most tests of verbs
one of two conditions would do, and the other one might be lost unnoticed; here each of them stands alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, CursorResult, Table, TextClause, bindparam, create_engine, insert, select, text
from sqlalchemy.sql.elements import BindParameter

from cronsensus.stores.sql import schema as tables
from cronsensus.stores.sql.queries import LIST, blocks, queries_of, with_pieces

NOW = 1000
Row = dict[str, Any]

ASKED: Row = {
    "space": "ours", "now": NOW, "lease_now": NOW, "boot": "epoch", "session": "s1", "owner": "s1", "holders": ["s1"],
    "presumed": ["gone"], "occurrence": 1, "ids": [1], "held": 7, "tokens": [7], "job": 5, "name": "name", "time": NOW,
    "seen": 10, "of_revision": 3, "decided": NOW, "lock": "lock", "at": 0, "by": "me", "of_session": "s1",
    "until": NOW, "level": 4, "size": 9, "after_due": 10, "after_id": 1, "full": [90], "blocked": [5], "heads": [3],
    "became": "failed", "run": 1, "moment": NOW, "revised": 3, "before": 7, "names": ["name"], "keys": ["name"],
    "key": "name", "times": [NOW], "pause": 4, "ended": NOW, "passed": NOW, "mine": "name", "ruled": 0,
    "moved": NOW, "least": 0, "most": NOW,
    "sessions": ["s1"], "wanted": "name",
}  # fmt: skip
"""What each parameter is; those that are not here are values to be written."""

SESSION: Row = {
    "number": 1, "id": "s1", "namespace": "ours", "node": "n", "host": "h", "pid": 1, "pid_started": 1,
    "release": "r", "version": "v", "concurrency": 1, "functions": 1, "started_at": 1, "renewed_at": 1,
    "lease_until": NOW + 1, "epoch": "epoch", "draining": 0,
}  # fmt: skip
OVERDUE: Row = {**SESSION, "lease_until": NOW}
LONG_OVERDUE: Row = {"lease_until": NOW - 1}
PENDING: Row = {
    "id": 1, "namespace": "ours", "job_id": 5, "key": "name", "origin": "schedule", "state": "pending", "serial": 1,
    "priority": 4, "due_at": NOW, "expires_at": None, "attempt": 0, "crashes": 0, "failures": 0, "token": 7,
    "session": "s1", "created_at": 1,
}  # fmt: skip
RUNNING: Row = {**PENDING, "state": "running"}
NOT_BY_NAME: list[Row] = [{"name": "other"}, {"namespace": "theirs"}]
IDS: Row = {"ids": [5]}
NAMED: Row = {"job": "name"}
TAKEN: list[tuple[Table, Row]] = [(tables.counters, {"name": "token", "value": 6})]
JOB: Row = {
    "id": 5, "namespace": "ours", "name": "name", "function": "f", "source": "code", "digest": "", "spec": "",
    "revision": 3, "overlap": "skip", "keep": 1, "watermark": 10, "created_at": 1,
}  # fmt: skip
DUE: Row = {**JOB, "wake_at": NOW}
PAUSED: Row = {**JOB, "paused_at": 1}
PAUSE: Row = {"id": 4, "job_id": 5, "start": 1}
ENDED_PAUSE: Row = {**PAUSE, "end": 2}
LINE: Row = {"occurrence_id": 1, "sequence": 1, "attempt": 1, "at": 1, "level": "INFO", "text": ""}
ERA: Row = {"job_id": 5, "since": NOW - 1, "revision": 1}
RELEASE: Row = {"id": 1, "namespace": "ours", "release": "name", "first_seen_at": 1}
LOCK: Row = {
    "namespace": "ours", "name": "lock", "place": 0, "holder": "me", "session": "s1", "token": 7, "acquired_at": 1,
    "lease_until": NOW + 1, "epoch": "epoch",
}  # fmt: skip
FREE_STANDING: Row = {**LOCK, "session": None}
ENDED_RUN: Row = {
    "token": 7, "occurrence_id": 1, "attempt": 1, "session": "s1", "started_at": 1, "finished_at": 2,
    "end": "failed",
}  # fmt: skip

RANGE: Row = {
    "id": 1, "job_id": 5, "first": 1, "last": 2, "state": "missed", "reason": "", "decided_at": 1,
}  # fmt: skip
ENTRY: Row = {
    "id": 1, "namespace": "ours", "at": 1, "by": "", "action": "", "target": "", "why": "", "details": "",
}  # fmt: skip
OLD: Row = {**PENDING, "state": "succeeded", "finished_at": 1, "scheduled_for": 10}
OLD_OF_A_JOB: list[Row] = [OLD, {**OLD, "scheduled_for": None}, {**OLD, "scheduled_for": NOW}]
NOT_OLD: list[Row] = [{"job_id": 6}, {"finished_at": None}, {"finished_at": NOW}]
NOT_OUR_JOB: list[Row] = [{"id": 6}, {"namespace": "theirs"}]
NOT_OLD_RANGE: list[Row] = [{"job_id": 6}, {"last": NOW}]
OPEN: Row = {"ended_at": None}
RETIRED: Row = {**JOB, "retired_at": 1}
WAITING: Row = {**RETIRED, "waiting_until": NOW}
NOT_WAITING: list[Row] = [{"namespace": "theirs"}, {"waiting_until": None}, {"waiting_until": NOW + 1}]
REPLACED: Row = {**RELEASE, "id": 4, "release": "r4"}
RAN_OUT: list[Row] = [{**LOCK, "session": None, "lease_until": NOW}, {**LOCK, "session": None, "epoch": "other"}]
HELD_STILL: Row = {"lease_until": NOW + 1}
BEFORE: Row = {"before": NOW}
PRUNED: Row = {"pruned": NOW}
OF_REVISION: Row = {"seen": 3}
NOT_MINE: list[Row] = [{"id": "s2"}, {"namespace": "theirs"}]
ENDED: Row = {"ended_at": 1}
FINISHED: Row = {"finished_at": 1}
NOT_ALIVE: list[Row] = [ENDED, {"epoch": "other"}, {"lease_until": NOW}]
NOT_CURRENT: list[Row] = [{"id": 2}, {"token": 8}, {"state": "pending"}]
NOT_HELD: list[Row] = [{"namespace": "theirs"}, {"session": "s2"}, {"state": "pending"}]
NOT_THE_LOCK: list[Row] = [{"namespace": "theirs"}, {"name": "other"}]
NOT_GRANTED: list[Row] = [*NOT_THE_LOCK, {"place": 1}, {"token": 8}, {"holder": "you"}, {"session": None}]
RUN_OUT: list[Row] = [{"lease_until": NOW}, {"epoch": "other"}]
LATER_PAGE = {"due_at": 11, "serial": 0}


class Case(NamedTuple):
    """A statement by its name, the rows that it finds, what each row that it must not find differs in, and its lock."""

    name: str
    statement: str
    table: Table
    finds: list[Row]
    not_if: list[Row]
    locks: str | None = None
    beside: list[tuple[Table, Row]] = []  # noqa: RUF012 - nothing changes it
    asked: Row = {}  # noqa: RUF012 - nothing changes it


_o, _s, _l, _j = tables.occurrences, tables.sessions, tables.locks, tables.jobs
_v, _p = tables.verdicts, tables.pauses
FOR_UPDATE = "FOR UPDATE"
SKIPPING = "FOR UPDATE SKIP LOCKED"
GONE = (_j, RETIRED)


def _old(
    name: str,
    statement: str,
    table: Table,
    finds: list[Row],
    not_if: list[Row],
    *,
    beside: tuple[Table, Row] = (_j, JOB),
) -> Case:
    """Return a case of what is old enough to be forgotten."""
    return Case(name, statement, table, finds, not_if, beside=[beside], asked=BEFORE)


CASES = [
    Case("alive", "session_alive", _s, [SESSION], [*NOT_MINE, *NOT_ALIVE]),
    Case("prolong", "prolong", _s, [SESSION], [*NOT_MINE, *NOT_ALIVE]),
    Case("note sign", "note_sign", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED]),
    Case("signs", "signs", _s, [SESSION, OVERDUE], NOT_MINE),
    Case("renew", "renew", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED]),
    Case("open again", "open_again", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED, {"epoch": "other"}, LONG_OVERDUE]),
    Case("session locked", "lock_session", _s, [SESSION, OVERDUE, {**SESSION, **ENDED}], NOT_MINE, FOR_UPDATE),
    Case("drain", "drain", _s, [SESSION], [*NOT_MINE, *NOT_ALIVE]),
    Case(
        "dead",
        "find_dead",
        _s,
        [OVERDUE, {**OVERDUE, "id": "s2"}, {**SESSION, "epoch": "other"}, {**SESSION, "id": "gone"}],
        [{"namespace": "theirs"}, ENDED, {"lease_until": NOW + 1}],
    ),
    Case("end", "end_session", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED]),
    Case("at hand", "lock_session_at_hand", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED], SKIPPING),
    Case("held ids", "held_runs", _o, [RUNNING], NOT_HELD),
    Case("held at hand", "lock_held_at_hand", _o, [RUNNING], NOT_HELD, SKIPPING),
    Case("held", "lock_held", _o, [RUNNING], NOT_HELD, FOR_UPDATE),
    Case("named", "lock_cut_off", _o, [RUNNING, PENDING], [{"id": 2}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("take back", "take_back_runs", _o, [RUNNING], NOT_CURRENT),
    Case("close", "cut_off_runs", _o, [RUNNING], NOT_CURRENT),
    Case("free locks", "free_locks_of", _l, [LOCK], [{"namespace": "theirs"}, {"session": "s2"}]),
    Case("oldest release", "lock_oldest_release", tables.releases, [RELEASE], [{"namespace": "theirs"}], FOR_UPDATE),
    Case("release", "known_release", tables.releases, [RELEASE], [{"namespace": "theirs"}, {"release": "other"}]),
    Case("standing", "lock_runs", _o, [RUNNING, PENDING], [{"id": 2}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("ended runs", "ended_runs", tables.runs, [ENDED_RUN], [{"token": 8}]),
    Case("finish", "close_runs", _o, [RUNNING], NOT_CURRENT),
    Case("retry later", "retry_runs", _o, [RUNNING], NOT_CURRENT),
    Case("give back", "give_back_runs", _o, [RUNNING], NOT_CURRENT),
    Case("give up", "give_up_runs", _o, [RUNNING], NOT_CURRENT),
    Case("begin reserved", "begin_reserved", _o, [RUNNING], NOT_CURRENT),
    Case("progress", "note_progress", _o, [RUNNING], NOT_CURRENT),
    Case("last lines", "last_lines", tables.logs, [LINE], [{"occurrence_id": 2}]),
    Case("complete", "read_run", _o, [RUNNING], [{"id": 2}, {"namespace": "theirs"}]),
    Case(
        "expired",
        "lock_expired",
        _o,
        [{**PENDING, "expires_at": NOW - 1}],
        [{"namespace": "theirs"}, {"state": "running"}, {"attempt": 1}, {"expires_at": None}, {"expires_at": NOW}],
        SKIPPING,
    ),
    Case("close expired", "close_expired", _o, [PENDING], [{"id": 2}, {"state": "running"}]),
    Case("start", "start_runs", _o, [PENDING], [{"id": 2}, {"state": "running"}], beside=TAKEN),
    Case("tokens", "take_tokens", tables.counters, [{"name": "token", "value": 6}], [{"name": "identity"}]),
    Case("opening", "opening", _s, [SESSION, OVERDUE, {**SESSION, **ENDED}], NOT_MINE),
    Case("limited", "lock_limited", _j, [JOB], [{"id": 6}], "FOR NO KEY UPDATE", asked=IDS),
    Case(
        "more limited",
        "lock_more_limited",
        _j,
        [JOB],
        [{"id": 6}],
        "FOR NO KEY UPDATE SKIP LOCKED",
        asked=IDS,
    ),
    Case(
        "running now",
        "count_running",
        _o,
        [RUNNING],
        [{"namespace": "theirs"}, {"state": "pending"}, {"job_id": 6}],
        asked=IDS,
    ),
    Case(
        "overdue holders",
        "lock_overdue",
        _s,
        [OVERDUE, {**SESSION, "epoch": "other"}],
        [*NOT_MINE, ENDED, {"lease_until": NOW + 1}],
        SKIPPING,
    ),
    Case(
        "page",
        "candidates",
        _o,
        [PENDING, {**PENDING, "expires_at": NOW}, {**PENDING, "attempt": 1, "expires_at": 1}],
        [{"namespace": "theirs"}, {"state": "running"}, {"due_at": NOW + 1}, {"expires_at": NOW - 1}],
        SKIPPING,
    ),
    Case(
        "further page",
        "further_candidates",
        _o,
        [
            {**PENDING, **LATER_PAGE},
            {**PENDING, **LATER_PAGE, "id": 2, "due_at": 10},
            {**PENDING, "id": 3},  # the head of its line
            {**PENDING, "job_id": 6},  # no line is full
            {**PENDING, **LATER_PAGE, "expires_at": NOW},
            {**PENDING, **LATER_PAGE, "attempt": 1, "expires_at": 1},
        ],
        [
            {"due_at": 10, "serial": 0},
            {"due_at": 9, "id": 2, "serial": 0},
            {"job_id": 90},
            {"serial": 1},
            {"state": "running"},
            {"namespace": "theirs"},
            {"priority": 5},
            {"due_at": NOW + 1},
            {"expires_at": NOW - 1},
        ],
        SKIPPING,
    ),
    *(
        Case(name, name, _j, [DUE], [{"namespace": "theirs"}, {"wake_at": NOW + 1}, {"id": 6}], asked={"of": 5})
        for name in ("due_jobs", "newest_due_jobs")
    ),
    Case("later pauses", "pauses_after", _p, [ENDED_PAUSE], [{"job_id": 6}, {"end": 1}], asked={"watermark": 1}),
    Case("jobs", "lock_jobs", _j, [JOB], [{"id": 6}, {"namespace": "theirs"}], FOR_UPDATE, asked=IDS),
    Case(
        "active",
        "count_active",
        _o,
        [PENDING, RUNNING],
        [{"job_id": 6}, {"serial": 0}, {"finished_at": 1}],
        asked=IDS,
    ),
    Case("move watermark", "move_watermarks", _j, [JOB], [{"id": 6}, {"watermark": 11}, {"revision": 4}]),
    Case(
        "cancel pending",
        "cancel_pending",
        _o,
        [PENDING],
        [{"job_id": 6}, {"serial": 0}, {"state": "running"}, {"finished_at": 1}],
    ),
    Case(
        "ask running",
        "ask_running",
        _o,
        [RUNNING],
        [{"job_id": 6}, {"serial": 0}, {"state": "pending"}, {"finished_at": 1}, {"cancel_reason": "enough"}],
    ),
    Case(
        "job for a session",
        "lock_job_for",
        _j,
        [JOB],
        [{"name": "other"}, {"namespace": "theirs"}],
        FOR_UPDATE,
        asked=NAMED,
    ),
    Case(
        "start named",
        "start_named",
        _o,
        [PENDING],
        [{"job_id": 6}, {"key": "other"}, {"state": "running"}],
        beside=TAKEN,
    ),
    *(
        Case(f"{name}, of our job", name, _j, [JOB], NOT_BY_NAME, beside=[(table, row)], asked=NAMED)
        for name, table, row in (
            ("lock_named", _o, PENDING),
            ("standing_at", _o, {**PENDING, "scheduled_for": NOW}),
            ("era_of", tables.eras, ERA),
            ("open_pause", _p, PAUSE),
            ("find_keys_by_name", _o, PENDING),
        )
    ),
    Case("sessions", "sessions", _s, [SESSION, OVERDUE, {**SESSION, **ENDED}], [{"namespace": "theirs"}]),
    Case("named run", "named_run", _o, [PENDING, RUNNING], [{"job_id": 6}, {"key": "other"}]),
    Case(
        "era",
        "era_of",
        tables.eras,
        [ERA, {**ERA, "since": NOW}],
        [{"job_id": 6}],
        beside=[(_j, JOB)],
        asked=NAMED,
    ),
    Case(
        "decide by hand",
        "pass_watermark",
        _j,
        [JOB, {**JOB, "next_due": NOW + 1}],
        [{"id": 6}, {"watermark": NOW}, {"next_due": NOW}],
    ),
    Case("lock held", "locks", _l, [LOCK], [{"namespace": "theirs"}, *RUN_OUT], beside=[(_s, SESSION)]),
    Case("lock of no session", "locks", _l, [FREE_STANDING], [{"namespace": "theirs"}, *RUN_OUT]),
    Case("owner", "locks", _s, [SESSION], [*NOT_MINE, *NOT_ALIVE], beside=[(_l, LOCK)]),
    Case("places", "lock_places", _l, [LOCK, {**LOCK, "place": 1}], NOT_THE_LOCK, FOR_UPDATE),
    Case("grant", "grant_place", _l, [LOCK], [*NOT_THE_LOCK, {"place": 1}, {"token": 8}], beside=TAKEN),
    Case("extend", "extend_lock", _l, [LOCK], [*NOT_GRANTED, *RUN_OUT], beside=[(_s, SESSION)]),
    Case("unlock", "free_lock", _l, [LOCK], [*NOT_GRANTED, *RUN_OUT], beside=[(_s, SESSION)]),
    *(
        case
        for what, name in (("extend", "extend_lock"), ("unlock", "free_lock"))
        for case in (
            Case(f"{what} for a session", name, _s, [SESSION], [*NOT_MINE, *NOT_ALIVE], beside=[(_l, LOCK)]),
            Case(f"{what} for no session", name, _l, [FREE_STANDING], RUN_OUT, asked={"of_session": ""}),
        )
    ),
    Case("leave", "leave_place", _l, [LOCK], [*NOT_THE_LOCK, {"place": 1}]),
    Case("named jobs", "lock_named_jobs", _j, [JOB], [{"name": "other"}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("keys", "find_keys", _o, [PENDING], [{"job_id": 6}, {"key": "other"}]),
    Case(
        "keys by name",
        "find_keys_by_name",
        _o,
        [PENDING],
        [{"job_id": 6}, {"key": "other"}],
        beside=[(_j, JOB)],
        asked=NAMED,
    ),
    Case("job", "lock_job", _j, [JOB], [{"name": "other"}, {"namespace": "theirs"}], FOR_UPDATE, asked=NAMED),
    Case("job of", "lock_job_of", _j, [JOB], [{"id": 6}], FOR_UPDATE, beside=[(_o, PENDING)]),
    Case(
        "job of an occurrence", "lock_job_of", _o, [PENDING], [{"id": 2}, {"namespace": "theirs"}], beside=[(_j, JOB)]
    ),
    Case("occurrence", "lock_occurrence", _o, [PENDING, RUNNING], [{"id": 2}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("cancel", "cancel_occurrence", _o, [PENDING], [{"id": 2}, {"state": "running"}]),
    Case("ask to stop", "ask_to_stop", _o, [RUNNING], [{"id": 2}, {"state": "pending"}, {"cancel_reason": "enough"}]),
    Case("to retry", "ended_occurrence", _o, [PENDING], [{"id": 2}, {"namespace": "theirs"}]),
    Case(
        "under a key",
        "lock_named",
        _o,
        [PENDING, RUNNING],
        [{"job_id": 6}, {"key": "other"}],
        FOR_UPDATE,
        beside=[(_j, JOB)],
        asked=NAMED,
    ),
    Case(
        "at a time",
        "standing_at",
        _o,
        [{**one, "scheduled_for": NOW} for one in (PENDING, RUNNING, {**PENDING, "state": "succeeded", **FINISHED})],
        [{"job_id": 6}, {"scheduled_for": NOW + 1}, {"state": "failed", **FINISHED}],
        beside=[(_j, JOB)],
        asked=NAMED,
    ),
    Case("pause", "pause_job", _j, [JOB], [{"id": 6}, {"paused_at": 1}]),
    Case("resume", "resume_job", _j, [PAUSED], [{"id": 6}, {"paused_at": None}]),
    Case("open pause", "open_pause", _p, [PAUSE], [{"job_id": 6}, {"end": 2}], beside=[(_j, JOB)], asked=NAMED),
    Case("end pause", "end_pause", _p, [PAUSE], [{"id": 5}]),
    Case("forget lines", "delete_logs", tables.logs, [LINE], [{"occurrence_id": 2}]),
    Case("forget runs", "delete_runs", tables.runs, [ENDED_RUN], [{"occurrence_id": 2}]),
    Case("forget occurrences", "delete_occurrences", _o, [PENDING, RUNNING], [{"id": 2}]),
    _old("old", "old_occurrences", _o, [OLD, {**OLD, "scheduled_for": None}], [*NOT_OLD, {"scheduled_for": 11}]),
    Case("old of a job", "old_of_job", _o, OLD_OF_A_JOB, [*NOT_OLD, {"scheduled_for": NOW + 1}]),
    _old("jobs with old", "jobs_with_old", _o, [OLD], NOT_OLD),
    _old("old of our jobs", "old_occurrences", _j, [JOB], NOT_OUR_JOB, beside=(_o, OLD)),
    _old("our jobs with old", "jobs_with_old", _j, [JOB], NOT_OUR_JOB, beside=(_o, OLD)),
    _old("old ranges", "old_ranges", _v, [RANGE], NOT_OLD_RANGE),
    Case("old ranges of a job", "old_ranges_of_job", _v, [RANGE], NOT_OLD_RANGE),
    _old("jobs with old ranges", "jobs_with_old_ranges", _v, [RANGE], NOT_OLD_RANGE),
    _old("old ranges of our jobs", "old_ranges", _j, [JOB], NOT_OUR_JOB, beside=(_v, RANGE)),
    _old("our jobs with old ranges", "jobs_with_old_ranges", _j, [JOB], NOT_OUR_JOB, beside=(_v, RANGE)),
    Case(
        "old sessions", "old_sessions", _s, [{**SESSION, **ENDED}], [{"namespace": "theirs"}, {"ended_at": NOW}, OPEN]
    ),
    Case("trail", "oldest_trail", tables.trail, [ENTRY], [{"namespace": "theirs"}]),
    Case("pruned jobs", "lock_pruned_jobs", _j, [JOB], [{"id": 6}], FOR_UPDATE, asked=IDS),
    Case("horizon", "raise_horizons", _j, [JOB, {**JOB, "horizon": 0}], [{"id": 6}, {"horizon": NOW}], asked=PRUNED),
    Case("forget final", "delete_final", _o, [OLD], [{"id": 2}, {"finished_at": None}]),
    Case("forget ranges", "delete_ranges", _v, [RANGE], [{"id": 2}]),
    Case("forget sessions", "delete_sessions", _s, [{**SESSION, **ENDED}], [{"id": "s2"}, OPEN], asked={"ids": ["s1"]}),
    Case("forget trail", "delete_trail", tables.trail, [ENTRY], [{"id": 2}]),
    Case(
        "replaced eras",
        "jobs_with_old_eras",
        _j,
        [
            {**JOB, "watermark": 20},
            {**JOB, "watermark": 5, "next_due": None},
            {**JOB, "watermark": 5, "next_due": 11},
            {**JOB, "watermark": 10, "next_due": 10},
        ],
        [
            {"namespace": "theirs"},
            {"id": 6},
            {"revision": 1},
            {"retired_at": 1},
            {"watermark": 9, "next_due": 10},
        ],
        beside=[(tables.eras, {**ERA, "since": 1}), (tables.eras, {**ERA, "since": 10})],
        asked=BEFORE,
    ),
    _old("old pauses", "old_pauses", _p, [ENDED_PAUSE], [{"end": None}, {"end": NOW}, {"job_id": 6}]),
    _old(
        "old pauses of our jobs",
        "old_pauses",
        _j,
        [
            JOB,
            {**JOB, "watermark": 1, "next_due": None},
            {**JOB, "watermark": 1, "next_due": 3},
            {**JOB, "watermark": 2, "next_due": 2},
        ],
        [{"namespace": "theirs"}, {"retired_at": 1}, {"watermark": 1, "next_due": 2}],
        beside=(_p, ENDED_PAUSE),
    ),
    Case(
        "long retired",
        "long_retired",
        _j,
        [RETIRED],
        [{"namespace": "theirs"}, {"retired_at": None}, {"retired_at": NOW}, {"waiting_until": 1}],
    ),
    *(
        Case(f"long retired with {what}", "long_retired", table, [{**row, "job_id": 6}], [{"job_id": 5}], beside=[GONE])
        for what, table, row in (("work", _o, PENDING), ("ranges", _v, RANGE))
    ),
    Case(
        "long retired, locked",
        "lock_long_retired",
        _j,
        [RETIRED],
        [{"id": 6}, {"retired_at": None}, {"retired_at": NOW}, {"waiting_until": 1}],
        FOR_UPDATE,
        asked=IDS,
    ),
    Case("kept back by work", "kept_back", _o, [PENDING], [{"job_id": 6}], asked=IDS),
    Case("kept back by ranges", "kept_back", _v, [RANGE], [{"job_id": 6}], asked=IDS),
    Case("forget eras", "delete_eras", tables.eras, [ERA], [{"job_id": 6}], asked=IDS),
    Case("forget pauses of", "delete_pauses_of", _p, [PAUSE], [{"job_id": 6}], asked=IDS),
    Case("forget jobs", "delete_jobs", _j, [JOB], [{"id": 6}], asked=IDS),
    Case("with eras", "lock_with_eras", _j, [JOB], [{"id": 6}, {"retired_at": 1}], FOR_UPDATE, asked=IDS),
    Case("beginnings", "beginnings", tables.eras, [ERA], [{"job_id": 6}], asked=IDS),
    Case("pass eras", "pass_eras", _j, [JOB], [{"id": 6}]),
    Case("forget eras before", "delete_eras_before", tables.eras, [ERA], [{"job_id": 6}, {"since": NOW}]),
    Case("forget pauses", "delete_pauses", _p, [PAUSE], [{"id": 5}], asked={"ids": [4]}),
    Case(
        "replaced releases",
        "replaced_releases",
        tables.releases,
        [REPLACED],
        [{"namespace": "theirs"}],
        beside=[(tables.releases, {**RELEASE, "id": one, "release": f"r{one}"}) for one in (2, 8)],
    ),
    Case(
        "replaced releases that live",
        "replaced_releases",
        _s,
        [SESSION, {**SESSION, "release": REPLACED["release"], **ENDED}],
        [{"release": REPLACED["release"]}],
        beside=[
            *((tables.releases, {**RELEASE, "id": one, "release": f"r{one}"}) for one in (2, 8)),
            (tables.releases, REPLACED),
        ],
    ),
    Case("forget releases", "delete_releases", tables.releases, [RELEASE], [{"id": 2}]),
    Case(
        "a lock that ran out", "any_lock_ran_out", _l, RAN_OUT, [{"namespace": "theirs"}, {"session": "s1"}, HELD_STILL]
    ),
    Case("forget locks", "delete_locks", _l, RAN_OUT, [{"namespace": "theirs"}, {"session": "s1"}, HELD_STILL]),
    Case("definitions", "definitions", _j, [JOB], [{"name": "other"}, {"namespace": "theirs"}]),
    Case("declared", "declared_jobs", _j, [JOB], [{"namespace": "theirs"}, {"source": "runtime"}, {"retired_at": 1}]),
    Case("definitions, locked", "lock_definitions", _j, [JOB], [{"id": 6}], FOR_UPDATE, asked=IDS),
    Case("redefine", "redefine_jobs", _j, [JOB, RETIRED], [{"id": 6}, {"revision": 4}], asked=OF_REVISION),
    Case("retire", "retire_jobs", _j, [JOB], [{"id": 6}, {"revision": 4}, {"retired_at": 1}], asked=OF_REVISION),
    *(
        Case(
            f"{row['state']} of jobs",
            "active_of_jobs",
            _o,
            [row],
            [{"job_id": 6}, {"namespace": "theirs"}, {"state": "failed"}, {"origin": "enqueue"}, {"serial": 0}],
            asked=IDS,
        )
        for row in (PENDING, RUNNING)
    ),
    Case("rule by overlap", "rule_by_overlap", _o, [PENDING, RUNNING], [{"id": 2}, FINISHED]),
    Case("overdue jobs", "overdue_jobs", _j, [WAITING], NOT_WAITING),
    Case("overdue jobs, locked", "lock_overdue_jobs", _j, [WAITING], NOT_WAITING, FOR_UPDATE),
    Case(
        "cancel waiting",
        "cancel_waiting",
        _o,
        [PENDING],
        [{"job_id": 6}, {"namespace": "theirs"}, {"state": "running"}],
        asked=IDS,
    ),
    Case("wait no more", "wait_no_more", _j, [WAITING], [{"id": 6}], asked=IDS),
]


@pytest.fixture(scope="module")
def database() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def by_name(name: str) -> TextClause:
    """Return a statement of ``queries/*.sql`` as SQLite gets it."""
    query = with_pieces(queries_of("sqlite")[name], frozenset())
    lists: list[BindParameter[Any]] = [bindparam(one, expanding=True) for one in LIST.findall(query.text)]
    return text(query.text).bindparams(*lists)


def ran(database: Connection, name: str, rows: list[tuple[Table, Row]], more: Row) -> CursorResult[Any]:
    """Run a statement where there are only these rows."""
    statement = by_name(name)
    for table, one in rows:
        database.execute(insert(table), one)
    bound = statement.compile().binds
    asked = {name: {**ASKED, **more}.get(name, 0) for name, one in bound.items() if one.required}
    found = database.execute(statement, asked)
    assert isinstance(found, CursorResult)
    return found


def touched(database: Connection, case: Case, row: Row) -> int:
    """Return how many rows a statement finds, or changes, where there is this one."""
    try:
        found = ran(database, case.statement, [*case.beside, (case.table, row)], case.asked)
        return len(found.all()) if found.returns_rows else found.rowcount
    finally:
        database.rollback()


def answered(database: Connection, name: str, *rows: tuple[Table, Row], **more: Any) -> Row:
    """Return the one row that a query answers with, where there are only these."""
    try:
        return dict(ran(database, name, list(rows), more).mappings().one())
    finally:
        database.rollback()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_statement_finds_what_it_is_for_and_nothing_that_differs_in_one_thing(
    case: Case, database: Connection
) -> None:
    for row in case.finds:
        assert touched(database, case, row) == 1, f"nothing, though there is {row}"
    for differs in case.not_if:
        assert touched(database, case, {**case.finds[0], **differs}) == 0, f"also what has {differs}"


@pytest.mark.parametrize("case", [case for case in CASES if case.locks], ids=lambda case: case.name)
def test_a_statement_on_which_a_write_rests_locks_what_it_reads(case: Case) -> None:
    sent = queries_of("postgres", schema="s")[case.statement].text.partition(" ) AS page")[0]
    assert sent.replace("\n", " ").rpartition(" FOR ")[2] == str(case.locks).removeprefix("FOR ")


# --- what a query says of what it finds -------------------------------------------------------------------------------


def test_renewing_tells_whether_the_session_lives_and_what_it_runs(database: Connection) -> None:
    def renewing(session: Row, run: Row) -> tuple[int, int | None]:
        found = answered(database, "renewing", (_s, {**SESSION, **session}), (_o, {**RUNNING, **run}))
        return found["alive"], found["id"]

    assert renewing({}, {}) == (1, 1)
    assert [renewing(differs, {}) for differs in NOT_ALIVE] == [(0, 1)] * len(NOT_ALIVE)
    assert [renewing({}, differs) for differs in NOT_HELD] == [(1, None)] * len(NOT_HELD)


@pytest.mark.parametrize(("session", "overdue"), [({}, 0), *((differs, 1) for differs in RUN_OUT)], ids=str)
def test_who_reclaims_is_told_whether_the_lease_has_run_out(session: Row, overdue: int, database: Connection) -> None:
    assert answered(database, "lock_session_at_hand", (_s, {**SESSION, **session})) == {"overdue": overdue}


@pytest.mark.parametrize(("session", "alive"), [({}, 1), *((differs, 0) for differs in NOT_ALIVE)], ids=str)
def test_a_claim_is_told_whether_its_session_lives(session: Row, alive: int, database: Connection) -> None:
    assert answered(database, "opening", (_s, {**SESSION, **session}))["alive"] == alive


def test_a_claim_is_told_whether_anything_has_expired_and_what_is_due_at_which_priority(database: Connection) -> None:
    def opening(row: Row) -> tuple[int, int | None]:
        found = answered(database, "opening", (_s, SESSION), (_o, {**PENDING, **row}))
        return found["late"], found["priority"]

    assert opening({}) == (0, 4)
    assert opening({"expires_at": NOW - 1}) == (1, 4)
    fresh: list[Row] = [{"expires_at": NOW}, {"expires_at": NOW - 1, "attempt": 1}]
    assert [opening(row) for row in fresh] == [(0, 4)] * 2
    other: list[Row] = [{"due_at": NOW + 1}, {"state": "running", "expires_at": NOW - 1}, {"namespace": "theirs"}]
    assert [opening(row) for row in other] == [(0, None)] * 3
    assert opening({"namespace": "theirs", "expires_at": NOW - 1}) == (0, None)
    higher = (_o, {**PENDING, "id": 2, "key": "other", "priority": 5, "due_at": NOW + 1})
    assert answered(database, "opening", (_s, SESSION), (_o, PENDING), higher)["priority"] == 4


@pytest.mark.parametrize(
    ("session", "node"), [({}, "n"), *((differs, None) for differs in (*NOT_MINE, *NOT_ALIVE))], ids=str
)
def test_who_acquires_is_told_the_node_of_a_session_that_lives_and_whether_anything_has_expired(
    session: Row, node: str | None, database: Connection
) -> None:
    late = {**PENDING, "expires_at": NOW - 1}
    fresh: list[Row] = [{"expires_at": NOW}, {"attempt": 1}, {"state": "running"}, {"namespace": "theirs"}]
    beside = [(_j, JOB), (_s, {**SESSION, **session})]
    found = answered(database, "lock_job_for", *beside, (_o, late), job="name")
    assert (found["holder"], found["late"]) == (node, 1)
    for differs in fresh:
        assert answered(database, "lock_job_for", *beside, (_o, {**late, **differs}), job="name")["late"] == 0


@pytest.mark.parametrize(("time", "trigger"), [(1, "a"), (NOW, "a"), (NOW + 1, "b")])
def test_the_era_of_a_time_is_the_last_that_began_before_it_or_else_the_first(
    time: int, trigger: str, database: Connection
) -> None:
    eras: list[tuple[Table, Row]] = [
        (tables.eras, {**ERA, "since": since, "trigger": name}) for since, name in ((10, "a"), (NOW, "b"))
    ]
    assert answered(database, "era_of", (_j, JOB), *eras, job="name", time=time) == {"trigger": trigger}


def test_of_releases_that_were_replaced_the_oldest_stays_and_the_last_one_of_long_ago(database: Connection) -> None:
    seen: list[tuple[Table, Row]] = [
        (tables.releases, {**RELEASE, "id": number, "release": f"r{number}", "first_seen_at": at})
        for number, at in ((1, 1), (2, 1), (3, 1), (4, NOW))
    ]
    assert answered(database, "replaced_releases", *seen)["release"] == "r2"


@pytest.mark.parametrize(("keep", "before"), [(-5, NOW - 3), (5, NOW - 5), (5000, NOW - 900)])
def test_a_job_keeps_what_it_says_within_bounds(keep: int, before: int, database: Connection) -> None:
    asked: Row = {"before": None, "least": 3, "most": 900}
    old = (_o, {**OLD, "finished_at": before - 1})
    assert answered(database, "jobs_with_old", (_j, {**JOB, "keep": keep}), old, **asked)["ended"] == before
    assert answered(database, "old_occurrences", (_j, {**JOB, "keep": keep}), old, **asked)["id"] == 1
    assert not touched(
        database,
        Case("kept", "old_occurrences", _o, [], [], beside=[(_j, {**JOB, "keep": keep})], asked=asked),
        {**OLD, "finished_at": before},
    )


@pytest.mark.parametrize("name", ["candidates", "further_candidates"])
@pytest.mark.parametrize("differs", [{"job_id": 6}, {"serial": 0}, {"finished_at": 1}], ids=str)
def test_whose_turn_it_is_in_a_job_is_told_by_its_own_occurrences_that_overlap_rules(
    name: str, differs: Row, database: Connection
) -> None:
    mine = {**PENDING, "id": 9, "key": "mine"}

    def line(*rows: Row) -> tuple[Any, Any]:
        # Those before it are not due yet, so it is the only one that is found.
        beside: list[tuple[Table, Row]] = [(_o, {**row, "due_at": NOW + 1}) for row in rows]
        found = answered(database, name, (_o, mine), *beside, after_due=-1, blocked=[])
        return found["head"], found["busy"]

    other = {"id": 2, "key": "other"}
    assert line() == (9, None)
    assert line(PENDING, {**PENDING, **other}) == (1, None)
    assert line(RUNNING) == (9, 1)
    assert line({**RUNNING, **other}, PENDING) == (1, 1)
    for row in (PENDING, RUNNING):
        assert line({**row, **differs}) == (9, None)


def test_first_entries_are_those_of_the_highest_priority_that_has_any_due(database: Connection) -> None:
    def found(**differs: Any) -> int:
        higher: Row = {**PENDING, "id": 2, "key": "other", "priority": 5, **differs}
        return int(answered(database, "candidates", (_o, PENDING), (_o, higher))["id"])

    assert (found(), found(due_at=NOW + 1)) == (2, 1)


def test_entry_that_its_overlap_does_not_rule_has_no_line(database: Connection) -> None:
    later = [(_o, {**PENDING, "id": 2, "key": "a", "due_at": NOW + 1}), (_o, {**RUNNING, "id": 3, "key": "b"})]
    found = answered(database, "candidates", (_o, {**PENDING, "serial": 0}), *later)
    assert (found["id"], found["head"], found["busy"]) == (1, None, None)


def test_an_entry_comes_with_what_its_job_is(database: Connection) -> None:
    found = answered(database, "candidates", (_o, PENDING), (_j, {**JOB, "concurrency": 2}))
    assert [found[name] for name in ("job", "function", "concurrency", "revision", "digest")] == [5, "f", 2, 3, ""]
    assert answered(database, "candidates", (_o, PENDING))["job"] is None


def test_sessions_are_read_with_what_they_hold(database: Connection) -> None:
    def held(*beside: tuple[Table, Row]) -> tuple[int, int]:
        found = answered(database, "sessions", (_s, SESSION), *beside)
        return found["held_runs"], found["held_locks"]

    assert held() == (0, 0)
    assert held((_o, RUNNING), (_l, LOCK)) == (1, 1)
    for differs in NOT_HELD:
        assert held((_o, {**RUNNING, **differs})) == (0, 0)
    for differs in ({"namespace": "theirs"}, {"session": "s2"}):
        assert held((_l, {**LOCK, **differs})) == (0, 0)


def test_a_look_tells_who_holds_runs_and_who_takes_turns(database: Connection) -> None:
    def seen(session: Row, run: Row) -> list[tuple[int, int]]:
        try:
            asked = {"of": 1, "place": 0, "most": 9, "ahead": 0}
            rows = ran(database, "look", [(_s, {**SESSION, **session}), (_o, {**RUNNING, **run})], asked)
            return sorted((row["turns"], row["held_runs"]) for row in rows.mappings() if row["id"] is not None)
        finally:
            database.rollback()

    assert seen({}, {}) == [(0, 1), (1, 0)]
    assert seen({"concurrency": 0}, {}) == [(0, 1)]
    assert [seen({}, differs) for differs in NOT_HELD] == [[(1, 0)]] * len(NOT_HELD)
    assert [seen(differs, {}) for differs in ({"namespace": "theirs"}, ENDED)] == [[]] * 2


def test_a_look_tells_what_is_due_and_what_comes_next(database: Connection) -> None:
    def seen(*rows: tuple[Table, Row], **more: int) -> tuple[int, int | None, int | None, int | None]:
        asked = {"of": 1, "place": 0, "most": 9, "ahead": 0, **more}
        found = answered(database, "look", *rows, **asked)
        return found["listed_jobs"], found["next_job"], found["backlog"], found["next_pending"]

    due, later = {**JOB, "wake_at": NOW}, {**JOB, "wake_at": NOW + 5}
    assert seen() == (0, None, None, None)
    assert seen((_j, due)) == (1, None, None, None)
    assert seen((_j, due), most=0) == (0, None, None, None)
    assert seen((_j, later)) == (0, NOW + 5, None, None)
    assert seen((_j, later), ahead=5) == (1, NOW + 5, None, None)
    assert [seen((_j, due), of=2, place=place)[0] for place in (0, 1)] == [0, 1]  # its id is 5
    assert seen((_o, PENDING)) == (0, None, 1, None)
    assert seen((_o, {**PENDING, "due_at": NOW + 7})) == (0, None, None, NOW + 7)
    other: list[Row] = [{"namespace": "theirs"}, {"state": "running"}]
    assert [seen((_o, {**PENDING, **differs})) for differs in other] == [(0, None, None, None)] * 2
    for one in (due, later):
        assert seen((_j, {**one, "namespace": "theirs"})) == (0, None, None, None)


@pytest.mark.parametrize("name", ["due_jobs", "newest_due_jobs"])
def test_due_jobs_tell_what_of_them_is_active_and_ruled_by_overlap(name: str, database: Connection) -> None:
    def active(**differs: Any) -> int:
        return int(answered(database, name, (_j, DUE), (_o, {**PENDING, **differs}), of=5)["active"])

    assert active() == active(state="running") == 1
    assert [active(**differs) for differs in ({"job_id": 6}, {"serial": 0}, {"finished_at": 1})] == [0, 0, 0]


def test_an_era_is_replaced_only_by_an_old_one_of_its_own_job(database: Connection) -> None:
    eras = [(tables.eras, {**ERA, "job_id": job, "since": at}) for job, at in ((5, 1), (5, 10), (6, 5), (6, NOW))]
    of_another = Case("eras of others", "jobs_with_old_eras", _j, [], [], beside=eras, asked=BEFORE)
    assert touched(database, of_another, {**JOB, "watermark": 20}) == 1
    assert touched(database, of_another, {**JOB, "watermark": 20, "id": 6}) == 0


@pytest.mark.parametrize(
    ("before", "after"), [((10, None), (NOW, NOW)), ((10, 10), (NOW, NOW)), ((NOW + 5, NOW + 5), (NOW + 5, NOW + 5))]
)
def test_eras_that_are_passed_raise_watermark_and_horizon_and_lower_neither(
    before: tuple[int, int | None], after: tuple[int, int], database: Connection
) -> None:
    try:
        ran(database, "pass_eras", [(_j, {**JOB, "watermark": before[0], "horizon": before[1]})], {})
        assert database.execute(select(_j.c.watermark, _j.c.horizon)).one() == after
    finally:
        database.rollback()


@pytest.mark.parametrize("name", ["lock_occurrence", "lock_held", "lock_held_at_hand", "lock_cut_off"])
def test_an_occurrence_is_read_with_the_name_of_its_own_job(name: str, database: Connection) -> None:
    found = answered(database, name, (_j, {**JOB, "id": 4, "name": "other", "revision": 9}), (_j, JOB), (_o, RUNNING))
    assert [found[one] for one in ("job", "name") if one in found] == ["name"]
    assert found.get("revision", 3) == 3


def test_locks_are_read_with_the_process_of_their_own_session(database: Connection) -> None:
    elsewhere = (_s, {**SESSION, "number": 2, "namespace": "theirs", "host": "elsewhere"})
    assert answered(database, "locks", (_l, LOCK), (_s, SESSION), elsewhere)["host"] == "h"
    assert answered(database, "locks", (_l, FREE_STANDING), (_s, SESSION))["host"] is None


def test_what_runs_is_counted_with_whether_its_own_session_lives(database: Connection) -> None:
    def alive(differs: Row) -> bool | None:
        session = (_s, {**SESSION, **differs})
        found = answered(database, "count_running", (_o, RUNNING), session, ids=[5])
        assert (found["session"], found["runs"]) == ("s1", 1)
        return None if found["alive"] is None else bool(found["alive"])

    assert alive({}) is True
    assert [alive(differs) for differs in NOT_ALIVE] == [False] * len(NOT_ALIVE)
    assert [alive(differs) for differs in NOT_MINE] == [None] * len(NOT_MINE)


def test_a_look_at_a_lock_counts_who_holds_it_and_by_which_limit_and_asks_for_the_session(
    database: Connection,
) -> None:
    def look(*rows: tuple[Table, Row]) -> tuple[int, int | None, bool]:
        found = answered(database, "look_at_lock", *rows)
        return found["held"], found["most"], bool(found["alive"])

    free = {**LOCK, "session": None, "most": 2}
    other = {"place": 1, "most": 1}
    assert look() == (0, None, False)
    assert look((_l, free), (_l, {**free, "place": 1, "most": 3})) == (2, 2, False)
    for differs in (*NOT_THE_LOCK, *RUN_OUT):
        assert look((_l, free), (_l, {**free, **other, **differs})) == (1, 2, False)
    assert look((_s, SESSION)) == (0, None, True)
    for differs in (*NOT_MINE, *NOT_ALIVE):
        assert look((_s, {**SESSION, **differs})) == (0, None, False)


def test_a_definition_is_told_whether_its_release_is_known_and_which_others_have_living_nodes(
    database: Connection,
) -> None:
    def told(*rows: tuple[Table, Row]) -> tuple[int | None, int, int]:
        found = answered(database, "release_among_others", *rows)
        return found["known"], found["later_lives"], found["other_lives"]

    def release(number: int, name: str = "name", **differs: Any) -> tuple[Table, Row]:
        return tables.releases, {**RELEASE, "id": number, "release": name, **differs}

    def living(of: str, **differs: Any) -> tuple[Table, Row]:
        return _s, {**SESSION, "release": of, **differs}

    ours, later, earlier = release(2), release(3, "later"), release(1, "earlier")
    assert told() == (None, 0, 0)
    assert told(ours, living("name")) == (2, 0, 0)
    assert told(ours, later, living("later")) == (2, 1, 1)
    assert told(ours, earlier, later, living("earlier")) == (2, 0, 1)
    for differs in (*NOT_ALIVE, {"namespace": "theirs"}, {"concurrency": 0}):
        assert told(ours, later, living("later", **differs)) == (2, 0, 0)
    assert told(ours, release(3, "later", namespace="theirs"), living("later")) == (2, 0, 1)
    theirs: Row = {"namespace": "theirs"}
    assert told(ours, release(3, "later", **theirs), living("later", **theirs)) == (2, 0, 0)
    assert told(release(2, namespace="theirs"), later, living("later")) == (None, 0, 1)


READS = {
    "attempted", "attempts", "count_pending", "counts", "eras", "eras_after", "job", "job_ids", "jobs", "living_nodes",
    "log_lines", "needs_a_node", "newest_occurrences", "occurrence", "oldest_occurrences", "pauses", "specs", "trail",
    "verdicts",
}  # fmt: skip
"""Statements that only tell what is there; the suite of stores asks for what they tell."""
OF_ONE_ROW = {"identity", "insert_eras", "touch", "which_store"}


def test_each_statement_with_a_condition_has_a_case() -> None:
    answers = re.findall(r'(?:answered|ran)\(database, "(\w+)"', Path(__file__).read_text(encoding="utf-8"))
    asked = {case.statement for case in CASES}.union(answers)
    conditional = {name for name, block in blocks("sqlite").items() if " WHERE " in block.text}
    assert conditional - asked == READS | OF_ONE_ROW
