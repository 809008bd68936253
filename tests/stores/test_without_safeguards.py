"""The safeguards that stand in SQL and in Lua: without each of them a test of the suite fails, and with it it passes.

A condition is taken out of the text of a statement or a script on its way to the server; the suite runs on what is
left. What two conditions guard together, so that one of them may go unnoticed, is taken out together.
"""

import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from cronsensus.errors import CronsensusError, StoreError
from cronsensus.model.occurrence import Claim
from cronsensus.model.plan import Plan
from cronsensus.stores.redis import RedisStore, scripts
from cronsensus.stores.sql import completing, finishing, firing, sessions, sql_locks
from cronsensus.timing.instants import LATEST, from_micros
from tests.stores.one_test import run, run_on_sqlite

Patch = Callable[[pytest.MonkeyPatch], None]


class Without(NamedTuple):
    """A safeguard: what stands in the text, what is put in its place, and the test of the suite that tells.

    Attributes:
        old: a part of the text; every statement that has it is changed.
        where: a part of the text that a statement to be changed has too.
    """

    old: str
    new: str
    test: str
    where: str = ""


def nothing(*_: Any, **__: Any) -> None: ...


def is_rejection(error: BaseException | None) -> bool:
    """Whether the suite missed the safeguard; a store that cannot read the text any more proves nothing.

    Or the write found out, which asks once more: then the safeguard is a double one.
    """
    refused = isinstance(error, CronsensusError) and not isinstance(error, StoreError)
    twice = "under a lock; nothing was written" in str(error)
    return refused or twice or isinstance(error, (AssertionError, pytest.fail.Exception))


# --- SQL --------------------------------------------------------------------------------------------------------------


class Changed:
    """Replaces a part of each statement on its way to SQLite, and counts how often it did."""

    def __init__(self, without: Without) -> None:
        self.without, self.count = without, 0
        changed = self.changed

        class Cursor(sqlite3.Cursor):
            def execute(self, text: str, *values: Any) -> Any:
                return super().execute(changed(text), *values)

            def executemany(self, text: str, *values: Any) -> Any:
                return super().executemany(changed(text), *values)

        class Driver(sqlite3.Connection):
            def execute(self, text: str, *values: Any) -> Any:
                return super().execute(changed(text), *values)

            def executemany(self, text: str, *values: Any) -> Any:
                return super().executemany(changed(text), *values)

            def cursor(self, factory: Any = Cursor) -> Any:
                return super().cursor(factory)

        self.driver = Driver

    def changed(self, text: str) -> str:
        flat = " ".join(text.split()).replace("cronsensus_", "")
        if self.without.old not in flat or self.without.where not in flat:
            return text
        self.count += 1
        return TABLE.sub(r"\1cronsensus_\2", flat.replace(self.without.old, self.without.new))


TABLE = re.compile(
    r"(\b(?:FROM|JOIN|INTO|UPDATE|,) |[( ])"
    r"((?:jobs|occurrences|sessions|locks|counters|releases|runs)\b(?=[. ]|, releases))"
)
IN_SQL = [
    Without("ended_at IS NULL AND", "number IS NOT NULL AND", "test_the_session_must_be_alive", "epoch = ?"),
    Without("o.due_at <= ?", "?", "test_nothing_is_claimed_before_it_is_due"),
    Without(
        "(o.expires_at IS NULL OR o.expires_at >= ? OR o.attempt > 0)",
        "(? IS NOT NULL)",
        "test_expired_work_is_not_claimed_even_if_it_is_more_than_one_claim_closes",
    ),
    Without("OR o.attempt > 0", "", "test_an_occurrence_that_started_once_does_not_expire"),
    Without(
        "AND o.state = 'running' LIMIT",
        "AND o.state = 'none' LIMIT",
        "test_a_manual_run_waits_for_a_later_one_acquired_by_name_unless_they_may_overlap",
    ),
    Without(
        "s.lease_until <= ?",
        "? IS NULL",
        "test_runs_of_a_dead_session_do_not_count_against_concurrency",
        "AND s.id IN",
    ),
    Without(
        "s.lease_until <= ?",
        "? IS NOT NULL",
        "test_evidence_ends_a_session_whose_lease_still_runs",
        "AS overdue",
    ),
    Without("l.lease_until > ?", "?", "test_an_overdue_lock_is_granted_to_the_next"),
    Without("AND token = ?", "AND ?", "test_no_other_token_frees_a_lock", "DELETE FROM"),
    Without(
        "AND holder = ?", "AND ? IS NOT NULL", "test_under_the_right_token_another_holder_or_session_moves_nothing"
    ),
    Without(
        "owner.lease_until > ?",
        "?",
        "test_lock_of_a_session_ends_with_its_lease_without_a_reclaim",
    ),
    Without(
        "CASE WHEN value >= ? THEN value ELSE ? END",
        "CASE WHEN (? + ? > 0) THEN value END",
        "test_a_token_is_not_below_the_clock",
    ),
    Without("j.watermark < ?", "?", "test_an_earlier_time_is_won_too_and_moves_nothing"),
    Without("(j.horizon IS NULL OR j.horizon < ?)", "? IS NOT NULL", "test_the_horizon_never_sinks"),
]


def named(without: Without) -> str:
    return f"{without.test.removeprefix('test_')}: {without.old}"


@pytest.mark.parametrize("without", IN_SQL, ids=named)
def test_without_a_condition_in_sql_the_suite_rejects_the_store(tmp_path, monkeypatch, without):
    error = run_on_sqlite(tmp_path / "whole", without.test)
    assert error is None, error
    changed, connect = Changed(without), sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **how: connect(*args, factory=changed.driver, **how))
    error = run_on_sqlite(tmp_path / "changed", without.test)
    assert changed.count, "no statement has that text any more"
    assert is_rejection(error), error


# --- beside SQL: what is compared once rows are locked ----------------------------------------------------------------


def looks_at_no_lock_first(patch: pytest.MonkeyPatch) -> None:
    """A session may end between that look, which costs no write lock, and the step that takes the lock."""
    patch.setattr(sql_locks, "is_taken", lambda *_: False)


def gives_locks_to_the_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql_locks, "require_alive", nothing)


def finds_all_dead(patch: pytest.MonkeyPatch) -> None:
    """A session may renew its lease between the look for the dead and the step that ends one."""
    patch.setattr(sessions, "find_dead", lambda *_: SimpleNamespace(rows=[SimpleNamespace(id="s1")]))


def ends_whom_it_found(patch: pytest.MonkeyPatch) -> None:
    reclaim = sessions.reclaim_session
    patch.setattr(
        sessions, "reclaim_session", lambda tx, session, **more: reclaim(tx, session, **{**more, "presumed": True})
    )


def compares_no_token(patch: pytest.MonkeyPatch) -> None:
    require = completing._require_current

    def without_token(claim: Claim, row: Any) -> None:
        require(claim if row is None or type(row.token) is not int else structs.replace(claim, token=row.token), row)

    patch.setattr(completing, "_require_current", without_token)


def compares_no_token_at_the_end(patch: pytest.MonkeyPatch) -> None:
    is_current = finishing._is_current
    patch.setattr(finishing, "_is_current", lambda row, _, session: is_current(row, row.token, session))


def compares_no_session(patch: pytest.MonkeyPatch) -> None:
    is_current = finishing._is_current
    patch.setattr(finishing, "_is_current", lambda row, token, _: is_current(row, token, None))


def plans_hold_without(**what: Callable[[Any, int], Any]) -> Patch:
    """Fire what was planned on something else, as far as the named parts of a plan go."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        holds = firing._is_plan_current

        def anyway(plan: Plan, row: Any, active: int, until: int) -> bool:
            return holds(replace(plan, **{name: now(row, active) for name, now in what.items()}), row, active, until)

        patch.setattr(firing, "_is_plan_current", anyway)

    return patched


def always(patch: pytest.MonkeyPatch) -> None: ...


COMPARED: list[tuple[Patch, Patch, str]] = [
    (looks_at_no_lock_first, gives_locks_to_the_dead, "test_no_lock_is_granted_to_a_dead_session"),
    (finds_all_dead, ends_whom_it_found, "test_the_living_are_left_alone"),
    (
        always,
        compares_no_token,
        "test_a_run_given_back_and_taken_again_by_its_session_commits_nothing_under_the_old_token",
    ),
    (always, compares_no_token_at_the_end, "test_an_outcome_under_an_old_token_is_refused"),
    (always, compares_no_session, "test_under_the_right_token_another_session_writes_nothing"),
    (
        always,
        plans_hold_without(watermark_seen=lambda row, _: from_micros(row.watermark)),
        "test_a_plan_that_reaches_beyond_the_watermark_still_loses_on_an_older_one",
    ),
    (
        always,
        plans_hold_without(watermark=lambda *_: LATEST),
        "test_a_plan_that_would_move_the_watermark_back_loses_whole",
    ),
    (
        always,
        plans_hold_without(revision=lambda row, _: row.revision),
        "test_a_plan_made_on_an_older_revision_loses_whole",
    ),
    (
        always,
        plans_hold_without(definition=lambda *_: ""),
        "test_a_plan_made_on_another_definition_of_the_same_revision_loses_whole",
    ),
    (
        always,
        plans_hold_without(active_seen=lambda _, active: active),
        "test_a_plan_that_saw_another_number_of_active_occurrences_loses_whole",
    ),
    (
        always,
        plans_hold_without(not_before=lambda *_: None),
        "test_nothing_is_fired_or_claimed_further_ahead_than_asked",
    ),
]


@pytest.mark.parametrize(("race", "without", "test"), COMPARED, ids=[test for _, _, test in COMPARED])
def test_without_a_comparison_the_suite_rejects_the_store(tmp_path, monkeypatch, race, without, test):
    race(monkeypatch)
    error = run_on_sqlite(tmp_path / "whole", test)
    assert error is None, error
    without(monkeypatch)
    error = run_on_sqlite(tmp_path / "changed", test)
    assert is_rejection(error), error


# --- Lua --------------------------------------------------------------------------------------------------------------

IN_LUA = [
    Without(
        "row.watermark == seen_watermark",
        "true",
        "test_a_plan_that_reaches_beyond_the_watermark_still_loses_on_an_older_one",
    ),
    Without("row.revision == revision and", "", "test_a_plan_made_on_an_older_revision_loses_whole"),
    Without(
        "and (definition == '' or definition == definition_of(row))",
        "",
        "test_a_plan_made_on_another_definition_of_the_same_revision_loses_whole",
    ),
    Without("and not row.paused_at and", "and", "test_a_plan_for_a_paused_job_loses_whole"),
    Without("and not row.retired_at\n", "", "test_a_plan_for_a_retired_job_loses_whole"),
    Without(
        "and count_active(job, row.overlap) == active_seen",
        "",
        "test_a_plan_that_saw_another_number_of_active_occurrences_loses_whole",
    ),
    Without(
        "and tonumber(watermark) >= tonumber(seen_watermark)",
        "",
        "test_a_plan_that_would_move_the_watermark_back_loses_whole",
    ),
    Without(
        "and (not not_before or tonumber(not_before) <= due_by)",
        "",
        "test_nothing_is_fired_or_claimed_further_ahead_than_asked",
    ),
    Without(
        "call('HEXISTS', job_part_key(job, 'keys'), key) == 0",
        "true",
        "test_an_occurrence_backfilled_ahead_of_its_time_is_not_fired_again",
    ),
    Without("and now < tonumber(lease_end)", "", "test_the_session_must_be_alive"),
    Without(
        "if not drop_unless_running(id, busy, 'SREM') then",
        "if false then",
        "test_a_manual_run_waits_for_a_later_one_acquired_by_name_unless_they_may_overlap",
    ),
    Without(" and not is_late(row)", "", "test_expired_work_is_not_claimed_even_if_it_is_more_than_one_claim_closes"),
    Without("return line.due <= due_by", "return true", "test_nothing_is_claimed_before_it_is_due"),
    Without(
        "if is_holder_alive(holder) then",
        "if true then",
        "test_runs_of_a_dead_session_do_not_count_against_concurrency",
    ),
    Without("runs_left = runs_left - 1", "", "test_a_job_runs_no_more_often_at_a_time_than_its_concurrency"),
    Without(
        "row.state == 'running' and row.token == token and",
        "row.state == 'running' and",
        "test_an_outcome_under_an_old_token_is_refused",
    ),
    Without(
        " and (not session or row.session == session)\nend",
        "\nend",
        "test_under_the_right_token_another_session_writes_nothing",
    ),
    Without("and now < tonumber(row['until'])", "", "test_an_overdue_lock_is_granted_to_the_next"),
    Without(
        "and (not row.session or is_session_alive(row.session))",
        "",
        "test_lock_of_a_session_ends_with_its_lease_without_a_reclaim",
    ),
    Without("row.token == token and row.holder", "row.holder", "test_no_other_token_frees_a_lock"),
    Without("row.holder == holder and", "", "test_under_the_right_token_another_holder_or_session_moves_nothing"),
    Without(
        "and row.session == session\n  return granted",
        "\n  return granted",
        "test_under_the_right_token_another_holder_or_session_moves_nothing",
    ),
    Without(
        "math.max(tonumber(last_token or 0) + 1, now)",
        "tonumber(last_token or 0) + 1",
        "test_a_token_is_not_below_the_clock",
    ),
    Without("and time > tonumber(job.watermark)", "", "test_an_earlier_time_is_won_too_and_moves_nothing"),
    Without(
        "and (not job.next_due or tonumber(job.next_due) > time)",
        "",
        "test_acquiring_passes_over_no_time_that_an_earlier_trigger_left_undecided",
    ),
    Without(
        "not is_named_elsewhere(number, tonumber(nominal))", "false", "test_the_times_of_a_trigger_are_not_to_be_had"
    ),
]


@pytest.mark.parametrize("without", IN_LUA, ids=named)
def test_without_a_condition_in_lua_the_suite_rejects_the_store(redis_url, monkeypatch, without):
    def on_redis(part: str) -> BaseException | None:
        return run(
            lambda clock, namespace: RedisStore(f"{redis_url}-{part}", namespace=namespace, clock=clock), without.test
        )

    error = on_redis("whole")
    assert error is None, error
    read, count = scripts._read_part, 0

    def changed(path: str) -> str:
        nonlocal count
        text = read(path)
        count += without.old in text
        return text.replace(without.old, without.new)

    monkeypatch.setattr(scripts, "_read_part", changed)
    scripts.script_of.cache_clear()
    try:
        error = on_redis("changed")
    finally:
        scripts.script_of.cache_clear()
    assert count, "no script has that text any more"
    assert is_rejection(error), error
