"""Each statement asks for everything itself: of rows that differ from the one it is for in one thing, it finds none.

What a verb has read and compared before it writes may be other by then, so the write asks again. In most tests of verbs
one of two conditions would do, and the other one might be lost unnoticed; here each of them stands alone.
"""

import re
from pathlib import Path

import pytest
from sqlalchemy import Connection, Table

from cronsensus.stores.sql import schema as tables
from cronsensus.stores.sql.queries import queries_of, read_blocks
from cronsensus.timing.instants import LATEST_MICROS
from tests.stores.sql.rows import (
    AS_READ,
    BATCH,
    BEFORE,
    DUE,
    ENDED,
    ENDED_PAUSE,
    ENDED_RUN,
    ENTRY,
    ERA,
    FINISHED,
    FREE_STANDING,
    HELD_STILL,
    IDS,
    ITEM,
    JOB,
    LATER_PAGE,
    LINE,
    LOCK,
    LONG_OVERDUE,
    NAMED,
    NOT_ALIVE,
    NOT_BY_NAME,
    NOT_CURRENT,
    NOT_GRANTED,
    NOT_HELD,
    NOT_MINE,
    NOT_OLD,
    NOT_OLD_RANGE,
    NOT_OUR_JOB,
    NOT_THE_LOCK,
    NOT_WAITING,
    NOW,
    OF_REVISION,
    OLD,
    OLD_OF_A_JOB,
    OPEN,
    OVERDUE,
    PARKED,
    PAUSE,
    PAUSED,
    PENDING,
    PRUNED,
    RAN_OUT,
    RANGE,
    RELEASE,
    REPLACED,
    RETIRED,
    RUN_OUT,
    RUNNING,
    SESSION,
    TAKEN,
    WAITING,
    Case,
    Row,
    touched,
)

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
    Case("renew_claiming_session", "renew_claiming_session", _s, [SESSION], [*NOT_MINE, *NOT_ALIVE]),
    Case("note sign", "note_sign", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED]),
    Case("signs", "signs", _s, [SESSION, OVERDUE], NOT_MINE),
    Case(
        "silent",
        "silent_sessions",
        _s,
        [SESSION, OVERDUE],
        [{"namespace": "theirs"}, ENDED, {"concurrency": 0}, {"shown": 1}, {"shown": 0}],
    ),
    Case("renew", "renew", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED]),
    Case(
        "open again",
        "renew_opened_session",
        _s,
        [SESSION, OVERDUE],
        [*NOT_MINE, ENDED, {"epoch": "other"}, LONG_OVERDUE],
    ),
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
    Case("at hand", "try_lock_session", _s, [SESSION, OVERDUE], [*NOT_MINE, ENDED], SKIPPING),
    Case("held ids", "held_runs", _o, [RUNNING], NOT_HELD),
    Case("held at hand", "try_lock_runs", _o, [RUNNING], NOT_HELD, SKIPPING),
    Case("held", "lock_held", _o, [RUNNING], NOT_HELD, FOR_UPDATE),
    Case("named", "lock_cut_off", _o, [RUNNING, PENDING], [{"id": 2}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("take back", "requeue_cut_off_runs", _o, [RUNNING], NOT_CURRENT),
    Case("close", "close_cut_off_runs", _o, [RUNNING], NOT_CURRENT),
    Case("free locks", "free_locks_of", _l, [LOCK], [{"namespace": "theirs"}, {"session": "s2"}]),
    Case("oldest release", "lock_oldest_release", tables.releases, [RELEASE], [{"namespace": "theirs"}], FOR_UPDATE),
    Case("release", "known_release", tables.releases, [RELEASE], [{"namespace": "theirs"}, {"release": "other"}]),
    Case("standing", "lock_runs", _o, [RUNNING, PENDING], [{"id": 2}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("ended runs", "ended_runs", tables.runs, [ENDED_RUN], [{"token": 8}]),
    Case("finish", "close_runs", _o, [RUNNING], NOT_CURRENT),
    Case("retry later", "retry_runs", _o, [RUNNING], NOT_CURRENT),
    Case("again", "snooze_runs", _o, [RUNNING], NOT_CURRENT),
    Case("park", "park_runs", _o, [RUNNING], NOT_CURRENT),
    Case("give back", "release_runs", _o, [RUNNING], NOT_CURRENT),
    Case("give up", "cancel_released_runs", _o, [RUNNING], NOT_CURRENT),
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
    Case("read_claim_opening", "read_claim_opening", _s, [SESSION, OVERDUE, {**SESSION, **ENDED}], NOT_MINE),
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
        "lock_overdue_sessions",
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
            {"level": 5},
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
    Case(
        "edges",
        "edges",
        _j,
        [{**JOB, "dependent": 1}],
        [{"dependent": None}, {"namespace": "theirs"}, {"retired_at": 1}, {"name": "a"}],
        asked={"after": "a"},
    ),
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
        "start asked",
        "start_asked",
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
            ("eras_from", tables.eras, ERA),
            ("open_pause", _p, PAUSE),
            ("find_keys_by_name", _o, PENDING),
        )
    ),
    Case("sessions", "sessions", _s, [SESSION, OVERDUE, {**SESSION, **ENDED}], [{"namespace": "theirs"}]),
    Case(
        "era",
        "eras_from",
        tables.eras,
        [ERA, {**ERA, "since": NOW}],
        [{"job_id": 6}],
        beside=[(_j, JOB)],
        asked=NAMED,
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
            Case(f"{what} for no session", name, _l, [FREE_STANDING], RUN_OUT, asked={"session": ""}),
        )
    ),
    Case("leave", "delete_place", _l, [LOCK], [*NOT_THE_LOCK, {"place": 1}]),
    Case("named jobs", "lock_named_jobs", _j, [JOB], [{"name": "other"}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("asked jobs", "lock_asked_jobs", _j, [JOB], [{"name": "other"}, {"namespace": "theirs"}], FOR_UPDATE),
    Case("ids of asked", "ids_of_asked", _o, [PENDING, RUNNING], [{"job_id": 6}, {"key": "other"}], asked=IDS),
    Case("asked", "lock_asked", _o, [PENDING, RUNNING], [{"job_id": 6}, {"key": "other"}], FOR_UPDATE, asked=IDS),
    Case(
        "close asked",
        "close_asked",
        _o,
        [PENDING],
        [{"job_id": 6}, {"key": "other"}, {"state": "running"}],
        asked={"new_state": "skipped"},
    ),
    Case("eras of jobs", "eras_of_jobs", tables.eras, [ERA], [{"job_id": 6}], asked=IDS),
    Case("decide many by hand", "pass_watermarks", _j, [JOB], [{"id": 6}, {"watermark": NOW}]),
    Case(
        "parked",
        "parked",
        _o,
        [PARKED, {**PARKED, "parked_on": "a file", "listed": None}],
        [
            {"namespace": "theirs"},
            {"parked_on": None},
            {"state": "running"},
            {"due_at": LATEST_MICROS - 1},
            {"id": 7},
        ],
        asked={"after": 7},
    ),
    Case(
        "wake",
        "wake",
        _o,
        [PARKED, {**PARKED, "listed": None}],
        [{"id": 2}, {"namespace": "theirs"}, {"state": "running"}, {"parked_on": None}],
        asked={"ids": [8]},
    ),
    Case(
        "complete list",
        "complete_list",
        _o,
        [BATCH],
        [{"id": 2}, {"namespace": "theirs"}, {"state": "running"}, {"listed": 0}, {"parked_on": "upstreams"}],
    ),
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
    Case("to retry", "newest_retry", _o, [PENDING], [{"id": 2}, {"namespace": "theirs"}]),
    Case("note a retry", "record_retry", _o, [PENDING], [{"id": 2}], asked={"retry": 9}),
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
    Case("rewind", "rewind_job", _j, [JOB], [{"id": 6}, {"watermark": 11}, {"revision": 4}, {"paused_at": 1}]),
    Case("withdraw ranges", "withdraw_verdicts", _v, [RANGE], [{"job_id": 6}, {"first": 0}]),
    Case("cut range", "cut_verdict", _v, [RANGE], [{"job_id": 6}, {"id": 2}], asked={"verdict": 1}),
    Case(
        "withdraw what never began",
        "withdraw_occurrences",
        _o,
        [{**PENDING, "scheduled_for": 1}],
        [{"job_id": 6}, {"scheduled_for": 0}, {"origin": "backfill"}, {"state": "running"}, {"attempt": 1}],
    ),
    Case("withdraw pauses", "withdraw_pauses", _p, [PAUSE], [{"job_id": 6}, {"start": 0}]),
    Case("cut pauses", "cut_pauses", _p, [ENDED_PAUSE], [{"job_id": 6}, {"end": 0}, {"end": None}]),
    Case("withdraw eras", "withdraw_eras", tables.eras, [ERA], [{"job_id": 6}, {"since": 0}, {"revision": 3}]),
    Case("begin era before", "begin_era_before", tables.eras, [ERA], [{"job_id": 6}, {"since": 0}]),
    Case("forget lines", "delete_logs", tables.logs, [LINE], [{"occurrence_id": 2}]),
    Case("forget runs", "delete_runs", tables.runs, [ENDED_RUN], [{"occurrence_id": 2}]),
    Case("forget occurrences", "delete_occurrences", _o, [PENDING, RUNNING], [{"id": 2}]),
    _old("old", "old_occurrences", _o, [OLD, {**OLD, "scheduled_for": None}], [*NOT_OLD, {"scheduled_for": 11}]),
    Case("old of a job", "old_of_job", _o, OLD_OF_A_JOB, [*NOT_OLD, {"scheduled_for": NOW + 1}]),
    _old("jobs with old", "jobs_with_old", _o, [OLD], NOT_OLD),
    *(
        Case(
            f"{statement} and batches",
            statement,
            _o,
            [{**BATCH, "job_id": 6, "state": "failed", "finished_at": NOW - 1}, {**BATCH, "id": 9}],
            [{"finished_at": None}, {"finished_at": NOW}],
            beside=[(_j, JOB), (_o, {**OLD, **ITEM})],
            asked=BEFORE,
        )
        for statement in ("old_occurrences", "old_of_job")
    ),
    *(
        Case(
            f"{statement} and what comes after it",
            statement,
            _o,
            [{**OLD, "finished_at": 4}, {**OLD, "finished_at": 5, "scheduled_for": None}],
            [{"finished_at": 5, "scheduled_for": 10}],
            beside=[(_j, {**JOB, "keep": 5})],
            asked={"before": None, "now": NOW, "waiting_since": 10, "needed_from": 5},
        )
        for statement in ("old_occurrences", "old_of_job")
    ),
    *(
        Case(
            f"{statement} and retries",
            statement,
            _o,
            [{**BATCH, "id": 9, "state": "failed", "finished_at": NOW}],
            [{"finished_at": None}, {"retried_as": 10}],
            beside=[(_j, {**JOB, "keep": 5}), (_o, {**OLD, "retried_as": 9})],
            asked={"before": None, "now": NOW},
        )
        for statement in ("old_occurrences", "old_of_job")
    ),
    *(
        Case(
            f"{statement} and retries of batches",
            statement,
            _o,
            [{**BATCH, "id": 9, "state": "failed", "finished_at": NOW}],
            [{"finished_at": None}, {"retried_as": 10}],
            beside=[
                (_j, {**JOB, "keep": 5}),
                (_o, {**BATCH, "job_id": 6, "state": "failed", "finished_at": 1, "retried_as": 9}),
                (_o, {**OLD, **ITEM}),
            ],
            asked={"before": None, "now": NOW},
        )
        for statement in ("old_occurrences", "old_of_job")
    ),
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
    Case("kept back by work", "jobs_with_rows", _o, [PENDING], [{"job_id": 6}], asked=IDS),
    Case("kept back by ranges", "jobs_with_rows", _v, [RANGE], [{"job_id": 6}], asked=IDS),
    Case("forget eras", "delete_eras", tables.eras, [ERA], [{"job_id": 6}], asked=IDS),
    Case("forget pauses of", "delete_pauses_of", _p, [PAUSE], [{"job_id": 6}], asked=IDS),
    Case("forget jobs", "delete_jobs", _j, [JOB], [{"id": 6}], asked=IDS),
    Case("with eras", "lock_with_eras", _j, [JOB], [{"id": 6}, {"retired_at": 1}], FOR_UPDATE, asked=IDS),
    Case("era_beginnings", "era_beginnings", tables.eras, [ERA], [{"job_id": 6}], asked=IDS),
    Case("pass eras", "raise_over_deleted_eras", _j, [JOB], [{"id": 6}]),
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
    Case(
        "move",
        "move_jobs",
        _j,
        [JOB],
        [{"id": 6}, {"watermark": 9}, {"revision": 4}, {"retired_at": 1}],
        asked=AS_READ,
    ),
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
    Case("rule by overlap", "set_serial", _o, [PENDING, RUNNING], [{"id": 2}, FINISHED]),
    Case("overdue jobs", "overdue_jobs", _j, [WAITING], NOT_WAITING),
    Case("overdue jobs, locked", "lock_overdue_jobs", _j, [WAITING], NOT_WAITING, FOR_UPDATE),
    Case(
        "cancel waiting",
        "cancel_waiting",
        _o,
        [PENDING],
        [{"id": 2}, {"state": "running"}],
        asked={"ids": [1]},
    ),
    Case(
        "what waits",
        "pending_of_retired",
        _o,
        [PENDING],
        [{"job_id": 6}, {"namespace": "theirs"}, {"state": "running"}],
        asked={"jobs": [PENDING["job_id"]]},
    ),
    Case(
        "retired lately",
        "lately_retired",
        _j,
        [RETIRED],
        [{"namespace": "theirs"}, {"retired_at": None}, {"retired_at": 0}, {"waiting_until": NOW}],
        asked={"recent": 0},
    ),
    Case("wait no more", "clear_waiting_until", _j, [WAITING], [{"id": 6}], asked=IDS),
]


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


READS = {
    "occurrences_of_attempts", "attempts", "count_pending", "counts", "decided", "ended_badly", "ended_since", "eras",
    "eras_after",
    "definitions_in", "find_in", "has_schema", "job", "job_ids", "jobs", "last_glances", "last_verdicts",
    "last_whole_glances", "living_nodes", "log_lines",
    "needs_a_node", "newest_occurrences", "occurrence", "oldest_occurrences", "pauses", "running_glances", "specs",
    "trail", "verdicts",
}  # fmt: skip
"""Statements that only tell what is there; the suite of stores asks for what they tell."""
OF_ONE_ROW = {"identity", "insert_eras", "touch", "which_database", "which_store"}


def test_each_statement_with_a_condition_has_a_case() -> None:
    answers = Path(__file__).with_name("test_query_answers.py").read_text(encoding="utf-8")
    asked = {case.statement for case in CASES}.union(re.findall(r'(?:answered|ran)\(database, "(\w+)"', answers))
    conditional = {name for name, block in read_blocks("sqlite").items() if " WHERE " in block.text}
    assert conditional - asked == READS | OF_ONE_ROW
