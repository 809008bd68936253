"""What a query says of what it finds, where one row differs in one thing."""

from typing import Any

import pytest
from sqlalchemy import Connection, Table, select

from cronsensus.stores.sql import schema as tables
from cronsensus.timing.instants import LATEST_MICROS
from tests.stores.sql.rows import (
    BEFORE,
    DUE,
    ENDED,
    ERA,
    FREE_STANDING,
    ITEM,
    JOB,
    LOCK,
    NOT_ALIVE,
    NOT_HELD,
    NOT_MINE,
    NOT_THE_LOCK,
    NOW,
    OLD,
    PARKED,
    PENDING,
    RELEASE,
    RUN_OUT,
    RUNNING,
    SESSION,
    Case,
    Row,
    answered,
    ran,
    touched,
)

_o, _s, _l, _j = tables.occurrences, tables.sessions, tables.locks, tables.jobs


def test_renewing_tells_whether_the_session_lives_and_what_it_runs(database: Connection) -> None:
    def renewing(session: Row, run: Row) -> tuple[int, int | None]:
        found = answered(database, "read_renewing_session", (_s, {**SESSION, **session}), (_o, {**RUNNING, **run}))
        return found["alive"], found["id"]

    assert renewing({}, {}) == (1, 1)
    assert [renewing(differs, {}) for differs in NOT_ALIVE] == [(0, 1)] * len(NOT_ALIVE)
    assert [renewing({}, differs) for differs in NOT_HELD] == [(1, None)] * len(NOT_HELD)


@pytest.mark.parametrize(("session", "overdue"), [({}, 0), *((differs, 1) for differs in RUN_OUT)], ids=str)
def test_reclaim_query_tells_whether_the_lease_has_run_out(session: Row, overdue: int, database: Connection) -> None:
    assert answered(database, "try_lock_session", (_s, {**SESSION, **session})) == {"overdue": overdue}


@pytest.mark.parametrize(("session", "alive"), [({}, 1), *((differs, 0) for differs in NOT_ALIVE)], ids=str)
def test_a_claim_is_told_whether_its_session_lives(session: Row, alive: int, database: Connection) -> None:
    assert answered(database, "read_claim_opening", (_s, {**SESSION, **session}))["alive"] == alive


def test_a_claim_is_told_whether_anything_has_expired_and_what_is_due_at_which_level(database: Connection) -> None:
    def opening(row: Row) -> tuple[int, int | None]:
        found = answered(database, "read_claim_opening", (_s, SESSION), (_o, {**PENDING, **row}))
        return found["late"], found["level"]

    assert opening({}) == (0, 4)
    assert opening({"expires_at": NOW - 1}) == (1, 4)
    fresh: list[Row] = [{"expires_at": NOW}, {"expires_at": NOW - 1, "attempt": 1}]
    assert [opening(row) for row in fresh] == [(0, 4)] * 2
    other: list[Row] = [{"due_at": NOW + 1}, {"state": "running", "expires_at": NOW - 1}, {"namespace": "theirs"}]
    assert [opening(row) for row in other] == [(0, None)] * 3
    assert opening({"namespace": "theirs", "expires_at": NOW - 1}) == (0, None)
    higher = (_o, {**PENDING, "id": 2, "key": "other", "level": 5, "due_at": NOW + 1})
    assert answered(database, "read_claim_opening", (_s, SESSION), (_o, PENDING), higher)["level"] == 4


@pytest.mark.parametrize(
    ("session", "node"), [({}, "n"), *((differs, None) for differs in (*NOT_MINE, *NOT_ALIVE))], ids=str
)
def test_acquire_query_tells_the_node_of_a_live_session_and_whether_anything_has_expired(
    session: Row, node: str | None, database: Connection
) -> None:
    late = {**PENDING, "expires_at": NOW - 1}
    fresh: list[Row] = [{"expires_at": NOW}, {"attempt": 1}, {"state": "running"}, {"namespace": "theirs"}]
    beside = [(_j, JOB), (_s, {**SESSION, **session})]
    found = answered(database, "lock_asked_jobs", *beside, (_o, late))
    assert (found["holder"], found["late"]) == (node, 1)
    for differs in fresh:
        assert answered(database, "lock_asked_jobs", *beside, (_o, {**late, **differs}))["late"] == 0


@pytest.mark.parametrize("state", ["pending", "running", "succeeded", "failed", "cancelled", "skipped"])
def test_a_batch_is_told_how_many_of_its_items_are_in_each_state(state: str, database: Connection) -> None:
    def counted(*items: Row, size: int = 9, **batch: Any) -> Row:
        rows = [{**PENDING, **ITEM, "state": state, "id": n, "key": f"{n}", **one} for n, one in enumerate(items, 1)]
        found = answered(database, "children", (_o, {**PARKED, **batch}), *((_o, row) for row in rows), size=size)
        return {name: value for name, value in found.items() if value}

    batch = {"state": "pending", "listed": 2}
    assert counted({}, {}, {"state": "missed"}, {"parent": 9}, {"parent": None}) == {**batch, state: 2}
    assert counted({}, {}, size=1) == {**batch, state: 1}
    assert counted({}, id=9) == counted({}, namespace="theirs") == {state: 1}


@pytest.mark.parametrize(
    ("time", "since"), [(1, [10, 20, NOW]), (20, [10, 20, NOW]), (21, [20, NOW]), (NOW + 1, [NOW])]
)
def test_eras_are_read_from_the_last_that_began_before_a_time_or_else_from_the_first(
    time: int, since: list[int], database: Connection
) -> None:
    eras: list[tuple[Table, Row]] = [(tables.eras, {**ERA, "since": at}) for at in (10, 20, NOW)]
    found = ran(database, "eras_from", [(_j, JOB), *eras], {"job": "name", "time": time}).mappings().all()
    database.rollback()
    assert [row["since"] for row in found] == since


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


def test_of_all_that_wait_for_upstreams_the_earliest_counts_while_it_is_parked(database: Connection) -> None:
    def earliest(*rows: Row) -> int | None:
        waiting = {**PENDING, "parked_on": "upstreams", "due_at": LATEST_MICROS}
        some = [(_o, {**waiting, "id": n, "key": str(n), **row}) for n, row in enumerate(rows, 1)]
        found: int | None = answered(database, "earliest_dependent", *some)["created_at"]
        return found

    first, second = {"created_at": 3}, {"created_at": 5}
    assert (earliest(), earliest(second, first)) == (None, 3)
    some: list[Row] = [{"due_at": 9}, {"state": "running"}, {"parked_on": None}, {"listed": 0}, {"namespace": "theirs"}]
    for differs in some:
        assert earliest(second, {**first, **differs}) == 5


@pytest.mark.parametrize("name", ["candidates", "further_candidates"])
@pytest.mark.parametrize("differs", [{"job_id": 6}, {"serial": 0}, {"finished_at": 1}], ids=str)
def test_head_of_a_job_is_read_from_its_own_serial_occurrences(name: str, differs: Row, database: Connection) -> None:
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


def test_first_entries_are_those_of_the_highest_level_that_has_any_due(database: Connection) -> None:
    def found(**differs: Any) -> int:
        higher: Row = {**PENDING, "id": 2, "key": "other", "level": 5, **differs}
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


def test_the_newest_retry_is_read_along_the_chain_as_far_as_it_is_kept(database: Connection) -> None:
    chain = [{"id": 1, "retried_as": 2}, {"id": 2, "retry_of": 1, "retried_as": 3}, {"id": 3, "retry_of": 2}]
    rows = [(_o, {**PENDING, **one, "key": f"k{one['id']}"}) for one in chain]
    assert [answered(database, "newest_retry", *rows[:end])["id"] for end in (1, 2, 3)] == [1, 2, 3]
    assert answered(database, "newest_retry", rows[0], rows[2])["id"] == 1
    another = (_o, {**PENDING, "id": 2, "key": "of a store that lost its last moment"})
    assert answered(database, "newest_retry", rows[0], another)["id"] == 1


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


def test_look_query_tells_holders_of_runs_and_sessions_that_take_turns(database: Connection) -> None:
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
    assert seen((_j, later), ahead=4) == (0, NOW + 5, None, None)
    assert seen((_j, later), ahead=5) == (1, None, None, None)
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
        ran(database, "raise_over_deleted_eras", [(_j, {**JOB, "watermark": before[0], "horizon": before[1]})], {})
        assert database.execute(select(_j.c.watermark, _j.c.horizon)).one() == after
    finally:
        database.rollback()


@pytest.mark.parametrize("name", ["lock_occurrence", "lock_held", "try_lock_runs", "lock_cut_off"])
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


def test_lock_query_counts_holders_reads_their_limit_and_asks_for_the_session(
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
        return found["known"], found["newer_release_lives"], found["other_release_lives"]

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
