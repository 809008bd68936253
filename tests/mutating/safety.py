"""The files that are mutated, the tests that are to notice, and the mutants that are argued to be equivalents."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch

STATEMENTS = ["tests/stores/sql/test_conditions.py", "tests/stores/sql/test_query_answers.py"]
STORES = [
    *STATEMENTS,
    "tests/stores/test_sqlite.py",
    "tests/stores/sql/test_transacting.py",
    "tests/stores/sql/test_statements.py",
    "tests/stores/sql/test_while_waiting.py",
    "tests/stores/sql/test_unreadable.py",
    "tests/stores/sql/test_claim_query.py",
    "tests/stores/sql/test_taking_over.py",
    "tests/stores/sql/test_ending.py",
    "tests/stores/sql/test_deciding.py",
]
AT_ONCE = ["tests/stores/sql/test_postgres_at_once_conditions.py", "tests/stores/sql/test_postgres_at_once.py"]
REDIS = [
    "tests/stores/redis/scripts/test_*",
    "tests/stores/test_redis.py",
    "tests/stores/redis/test_strays.py",
    "tests/stores/redis/test_growth.py",
]
LOCKS = [
    "tests/lock/test_lease.py",
    "tests/lock/test_votes.py",
    "tests/lock/test_lock.py",
    "tests/lock/test_files.py",
    "tests/lock/test_redlock.py",
    "tests/lock/test_set.py",
    "tests/lock/test_limits.py",
    "tests/lock/test_ownership.py",
    "tests/lock/test_trust.py",
    "tests/lock/test_statements.py",
    "tests/lock/test_lost_answers.py",
    "tests/lock/test_lost_store.py",
    "tests/lock/test_waiting.py",
    "tests/lock/test_bad_input.py",
    "tests/lock/test_as_in_redis_py.py",
]
ONCE = [
    "tests/once/test_claims.py",
    "tests/once/test_acquiring.py",
    "tests/once/test_once.py",
    "tests/once/test_keys.py",
    "tests/once/test_keeping.py",
    "tests/once/test_payloads.py",
    "tests/once/test_reconciling.py",
    "tests/once/test_bad_input.py",
    "tests/once/test_typed_results.py",
    "tests/once/test_waiting.py",
    "tests/once/test_lost_answers.py",
    "tests/once/test_trouble_with_the_session.py",
]
PRESENCE = [
    "tests/stores/test_presence_observations.py",
    "tests/stores/test_presence.py",
    "tests/stores/redis/test_presence.py",
    "tests/stores/sql/test_mysql_presence.py",
]
SENDING = ["tests/stores/sql/test_sending.py", "tests/stores/sql/test_queries.py"]
MEMBERS = [
    "tests/membership/test_*",
    "tests/node/test_node_crank.py",
    "tests/node/test_short_leases.py",
    "tests/node/test_emptied_under_nodes.py",
]
NODE = [
    "tests/membership/test_*",
    "tests/node/test_*",
    "tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[0]",
    "tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[50]",
]
SAFETY: dict[str, list[str]] = {
    "stores/sql/sessions.py": STORES,
    "stores/sql/finishing.py": STORES,
    "stores/sql/completing.py": [*STORES, "tests/node/test_transactions.py"],
    "stores/sql/claiming.py": STORES,
    "stores/sql/claim_query.py": STORES,
    "stores/sql/firing.py": STORES,
    "stores/sql/stepping.py": STORES,
    "stores/sql/acquiring.py": STORES,
    "stores/sql/sql_locks.py": STORES,
    "stores/sql/transaction.py": [*STORES, *SENDING],
    "stores/sql/sending.py": [*STORES, *SENDING],
    "stores/sql/postgres/at_once.py": AT_ONCE,
    "stores/sql/queries/at_once.sql": AT_ONCE,
    **{
        f"stores/sql/queries/{name}.sql": STORES
        for name in (
            "claims",
            "definitions",
            "ends",
            "jobs",
            "locks",
            "looks",
            "named",
            "operators",
            "pauses",
            "plans",
            "pruning",
            "sessions",
        )
    },
    "stores/presence.py": PRESENCE,
    "stores/sql/sql_presence.py": PRESENCE,
    "stores/redis/redis_presence.py": PRESENCE,
    **{
        f"stores/redis/lua/{name}.lua": REDIS
        for name in (
            "claim_query",
            "ending",
            "eras",
            "firing",
            "locks",
            "occurrences",
            "reporting",
            "runs_left",
            "retiring",
            "sessions",
            "starting",
            "tokens",
            "verbs/acquire",
            "verbs/close_session",
            "verbs/define",
            "verbs/enqueue",
            "verbs/extend",
            "verbs/lock",
            "verbs/note_sign",
            "verbs/open_session",
            "verbs/prune",
            "verbs/reclaim",
            "verbs/renew",
            "verbs/step",
            "verbs/unlock",
        )
    },
    "integrations/redlock.py": LOCKS,
    "lock/in_files.py": LOCKS,
    "lock/lease.py": LOCKS,
    "once/claims.py": ONCE,
    "once/acquiring.py": ONCE,
    "membership/lease.py": NODE,
    "membership/liveness.py": NODE,
    "membership/heartbeat.py": MEMBERS,
    "membership/lease_monitor.py": MEMBERS,
    "membership/renewer.py": MEMBERS,
    "membership/session_host.py": [*MEMBERS, *LOCKS],
    "membership/loss.py": [*MEMBERS, "tests/lock/test_lost_store.py"],
    "membership/timer.py": [*MEMBERS, "tests/node/executors/test_timer.py", "tests/node/executors/test_threads.py"],
    **{
        f"node/{name}.py": NODE
        for name in (
            "active_runs",
            "backoff",
            "careful",
            "claiming",
            "decide",
            "herd",
            "lead_time",
            "pace",
            "reconciling",
            "reserved",
            "reserving",
            "round",
            "accepted_ends",
            "session",
            "turn_order",
        )
    },
    "model/ends.py": [*STORES, "tests/node/test_active_runs.py", "tests/test_retry.py"],
    "model/step.py": ["tests/model/test_*", "tests/stores/test_memory.py", "tests/node/test_claiming.py"],
    "planning.py": ["tests/test_planning.py", "tests/test_planning_retired.py"],
    "triggers/dst.py": ["tests/triggers/*"],
}
"""Files in which a mistake may lose or double a run, and the tests that are to notice: patterns of their names."""

DIRECT = {*STATEMENTS}
"""Tests that take up statements themselves, so that no line which they reach tells of it: always asked."""

LATER: dict[str, list[str]] = {
    "stores/sql/*": [
        "tests/stores/sql/test_sqlite_faults.py",
        "tests/stores/sql/test_many_sessions.py",
        "tests/stores/sql/test_query_plans.py",
        "tests/stores/poison/test_sqlite.py",
        "tests/stores/sql/test_postgres_races.py",
        "tests/stores/sql/test_standing_still.py",
        "tests/stores/sql/test_growth.py",
        "tests/stores/test_postgres.py",
        "tests/stores/test_mysql.py",
    ],
    "stores/redis/*": ["tests/stores/poison/test_redis.py", "tests/stores/redis"],
    "lock/*": ["tests/lock"],
    "integrations/redlock.py": ["tests/lock"],
    "once/*": ["tests/once"],
    "node/*": ["tests/simulation/test_simulation.py", "tests/simulation/test_forgetting.py"],
    "planning.py": ["tests/stores/test_memory.py"],
}
"""Tests that take minutes, and so are asked only about what the others let live (``--thorough``)."""

ARGUED: dict[str, str] = {
    "stores/sql/sql_locks.py: _is_overdue: not row.held and row.session is not None → (not row.held)": (
        "a lock without a session locks no row of a session, and is read again: one more look, the same answer"
    ),
    "stores/sql/finishing.py: _repeated_answer: row is not None and became is not None and became[0] == end.token → "
    "(became is not None and became[0] == end.token)": "only what has a row became something in this call",
    "stores/sql/queries/claims.sql: level_is_due: levels.level IS NOT NULL → (levels.level IS NOT NULL OR 1 = 1)": (
        "no occurrence has a level that is not there"
    ),
    "stores/sql/queries/claims.sql: further_candidates: o.due_at >= :after_due → (o.due_at >= :after_due OR 1 = 1)": (
        "for the index: what comes after due time and id says so too"
    ),
    "stores/sql/queries/claims.sql: take_tokens: >= → >": "two equal numbers",
    "stores/sql/queries/looks.sql: level_is_due: o.level = levels.level → (o.level = levels.level OR 1 = 1)": (
        "something is due at one of the levels, or at none"
    ),
    "stores/sql/queries/looks.sql: next_pending: o.level = levels.level → (o.level = levels.level OR 1 = 1)": (
        "the first of all is the first of the firsts of all levels"
    ),
    "stores/sql/queries/at_once.sql: something_is_due: levels.level IS NOT NULL → "
    "(levels.level IS NOT NULL OR 1 = 1)": "no occurrence has a level that is not there",
    "stores/sql/queries/at_once.sql: something_is_due: o.level = levels.level → "
    "(o.level = levels.level OR 1 = 1)": "something is due at one of the levels, or at none",
    "stores/sql/queries/at_once.sql: claim_due [postgres]: due.expires_at IS NULL → "
    "(due.expires_at IS NULL AND 1 = 0)": (
        "a comparison with no time is neither true nor false, and bool_and passes over that"
    ),
    "stores/sql/queries/named.sql: standing_at: o.finished_at IS NOT NULL → (o.finished_at IS NOT NULL OR 1 = 1)": (
        "for the index: what has succeeded is finished"
    ),
    "stores/sql/queries/pruning.sql: prune_before: < → <=": "two equal numbers",
    "stores/sql/queries/pruning.sql: prune_before: > → >=": "two equal numbers",
    "stores/sql/queries/pruning.sql: raise_over_deleted_eras: < → <=": "two equal numbers",
    "stores/sql/queries/pruning.sql: raise_over_deleted_eras: > → >=": "two equal numbers",
    "stores/redis/lua/starting.lua: if tonumber(row.due)⟨⟩ > now then: > → >=": (
        "what is due in this very microsecond begins now either way"
    ),
    "stores/redis/lua/starting.lua: if attempt⟨⟩ > 1 or row.reason or row.parked then: > → >=": (
        "what a first attempt has not is deleted: nothing"
    ),
    "stores/redis/lua/verbs/prune.lua: if not horizon or tonumber(time)⟨⟩ > tonumber(horizon) then: > → >=": (
        "the same number is written again"
    ),
    "stores/redis/lua/verbs/prune.lua: if is_done and deleted⟨⟩ < limit then: < → <=": (
        "where nothing is left of the limit, LIMIT 0 0 finds nothing"
    ),
    "stores/redis/lua/verbs/prune.lua: if is_done⟨⟩ and deleted < limit then: and → or": (
        "ranges that are old enough go in this call and not in a later one; none goes beyond the limit"
    ),
    "stores/redis/lua/verbs/prune.lua: if horizon⟨⟩ and horizon ~= job_row.horizon then: and → or": (
        "the same number is written again"
    ),
    "stores/redis/lua/verbs/acquire.lua: if nominal and job.manual and time⟨⟩ > tonumber(job.watermark) and (not "
    "job.next_due or tonumber(job.next_due) > time) then: > → >=": "the same number is written again",
    "stores/redis/lua/verbs/step.lua: taken, specs = start_runs(selected, session, lease, ahead⟨⟩ > 0, limit): > "
    "→ >=": "where none is taken ahead, nothing that is taken is due later than now",
    "stores/redis/lua/occurrences.lua: return tonumber(row.due)⟨⟩ < latest_due and row.due or "
    "integer_text(latest_due): < → <=": "two equal times",
    "stores/redis/lua/claim_query.lua: while levels[position] and #selected⟨⟩ < most_selected do: < → <=": (
        "the next priority is opened, and of it nothing is taken: its loop asks the same"
    ),
    "stores/redis/lua/claim_query.lua: return row.due < other_row.due or (row.due == other_row.due and row.id⟨⟩ < "
    "other_row.id): < → <=": ("an occurrence stands in one line, so no two heads are the same one"),
    "stores/redis/lua/claim_query.lua: if line.id⟨⟩ and not position then: and → or": (
        "without an id the line is not opened either way; what stands in its line is dropped only if it is over"
    ),
    'lock/in_files.py: _read_url: not rest.startswith("//") or host not in {"", "localhost"} or not slash or '
    'not path.strip("/") → (not rest.startswith("//") or host not in {"", "localhost"} or not path.strip("/"))': (
        "without a slash there is no path"
    ),
    "node/reserving.py: release_or_gather.stalled: queue.waits_for is not None and queue.waits_for > STALLED_AFTER "
    "→ (queue.waits_for > STALLED_AFTER)": (
        "asked only where something is reserved, which has waited; said again for mypy"
    ),
    "node/decide.py: clock_set: before.sample is None or after.sample is None → (before.sample is None)": (
        "after a look there is a sample; said again for mypy"
    ),
    "membership/heartbeat.py: Heartbeat.remove_member: self._members or thread is None or store is None → "
    "(self._members or store is None)": "thread and handle are set and taken away together; said again for mypy",
    "membership/heartbeat.py: Heartbeat.remove_member: self._members or thread is None or store is None → "
    "(self._members or thread is None)": "thread and handle are set and taken away together; said again for mypy",
    "membership/session_host.py: SessionHost._check_store: lease is None or opened is None or lease.is_lost or "
    "self._loss.session == lease.session → (lease is None or lease.is_lost or self._loss.session == lease.session)": (
        "when a session was opened is noted before its lease; said again for mypy"
    ),
    "membership/timer.py: _Watch.close_timer: thread is None or thread is threading.current_thread() → "
    "(thread is threading.current_thread())": "without a thread no action is under way, and no end to wait for",
    "node/turn_order.py: place_of.by_term: len(sessions) > IN_FRONT → len(sessions) >= IN_FRONT": (
        "so many are all in front, in whichever order they are put: they are ordered again by the instant"
    ),
    "model/step.py: Want.part: to_reserve <= 0 → to_reserve < 0": "of nothing, each part is nothing",
    "node/reconciling.py: Reconciling.correct_differences: now - at < SETTLE_TIME → now - at <= SETTLE_TIME": (
        "two equal times: a run is left alone for one renewal more"
    ),
    "stores/sql/postgres/at_once.py: only_end: isinstance(end.then, Final) and end.session is not None "
    "→ (isinstance(end.then, Final))": "no row is of a session that is not named: a trip more, the same answer",
    "outside/claims.py: OutsideClaims.reclaim_if_dead: session is not None and gone → (gone)": (
        "what is gone is a session; said again for mypy"
    ),
    "planning.py: next_nominal: until <= after → until < after": (
        "what comes after the end of an era is not of that era: the last condition says so too"
    ),
    "planning.py: next_nominal: era.trigger is None or (until is not None and until <= after) → "
    "(era.trigger is None)": ("what comes after the end of an era is not of that era: the last condition says so too"),
    "planning.py: _split: end <= begin → end < begin": "an empty piece more, in which no time lies",
    "planning.py: _split: begin > position → begin >= position": "an empty piece more, in which no time lies",
    "planning.py: _split: position < until → position <= until": "an empty piece more, in which no time lies",
    "planning.py: _decide: bound > position → bound >= position": "no time lies between two equal bounds",
    "planning.py: _decide: position < piece.until → position <= piece.until": (
        "the next time is looked for once more, and lies after the piece"
    ),
    "planning.py: _is_one_off: piece.after == since and piece.trigger.next_after(since + MICROSECOND) is None → "
    "(piece.trigger.next_after(since + MICROSECOND) is None)": (
        "if the piece begins later than the era, the only time lies before it, and there is nothing to lose"
    ),
    "planning.py: _decide_whole.last: piece.trigger.latest_until(piece.until, piece.after) or first → "
    "(piece.trigger.latest_until(piece.until, piece.after))": (
        "where there is a first one within the piece there is a last one; said again for mypy"
    ),
    "planning.py: _joined: previous is not None and trigger == previous_trigger and (previous.state, previous.reason) "
    "== (verdict.state, verdict.reason) and trigger.next_after(previous.last) == verdict.first → (trigger == "
    "previous_trigger and (previous.state, previous.reason) == (verdict.state, verdict.reason) and "
    "trigger.next_after(previous.last) == verdict.first)": (
        "where there is no verdict before there is no trigger before, and a trigger is not None"
    ),
    "triggers/dst.py: ZonedClock.next_after: max(start, _wall_time(change, first)) → _wall_time(change, first)": (
        "the start is the second after one that lies in the fold, so never later than the end of the fold"
    ),
    "triggers/dst.py: ZonedClock.next_after: first > second → first >= second": (
        "where both passes have one offset there is no fold: nothing is found in it, and it ends before the start"
    ),
    "triggers/dst.py: ZonedClock._next_outside_fold.last_year: max(start.year, _LAST_LISTED_YEAR) → start.year": (
        "what first comes after 400 years, and before 2500, would lie in gaps until then: no zone leaves out so many"
    ),
    "triggers/dst.py: ZonedClock._next_outside_fold: match.year > last_year → match.year >= last_year": (
        "what comes for the first time in the very last of 400 years came 400 years before"
    ),
    "triggers/dst.py: ZonedClock._next_outside_fold: match is None or match.year > last_year → (match is None)": (
        "what has not come in 400 years never comes; it is looked for longer, up to the end of the calendar"
    ),
    "triggers/dst.py: ZonedClock.count: max(counted_until, old_end) → old_end": (
        "no zone changes twice in less than four days, and no fold is longer than one: each end is the later one"
    ),
}
"""``file: place: what → into what`` of mutants that are equivalents, and why."""


def tests_of(file: str) -> list[str]:
    """Return the tests that are to notice a change of this file: patterns of files, and names of single tests."""
    return next(tests for pattern, tests in SAFETY.items() if fnmatch(file, pattern))


def is_direct(test: str) -> bool:
    """Whether a test is to be asked about each mutant of its files, whatever lines it reaches."""
    return test.partition("::")[0] in DIRECT


def later_of(file: str) -> list[str]:
    """Return the tests that are asked when those let a change live."""
    return next((tests for pattern, tests in LATER.items() if fnmatch(file, pattern)), [])


def is_among(test: str, places: Sequence[str]) -> bool:
    """Whether a test is named by one of the patterns."""
    return any(test == place or fnmatch(test.partition("::")[0], place) for place in places)
