"""What firing and acquiring compare before they write, each comparison alone; and by what clock a transaction looks."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete

from cronsensus.model.job import JobSpec, JobState
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.plan import Plan, PlannedOccurrence
from cronsensus.model.states import State
from cronsensus.stores.sql import firing
from cronsensus.stores.sql.schema import eras
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.testing.conformance.fixtures import LEASE, MINUTE, SECOND, START, a_session, minute, state_of
from cronsensus.testing.conformance.steps import carry_out, win_named
from cronsensus.timing.clock import ManualClock
from cronsensus.timing.instants import LATEST_MICROS, to_micros
from cronsensus.triggers import every

MICROSECOND = timedelta(microseconds=1)
EACH_MINUTE = every("1m", start=START)


@pytest.fixture
def store(open_sqlite: Callable[..., SqliteStore], clock: ManualClock) -> SqliteStore:
    store = open_sqlite(clock=clock)
    store.define_jobs(
        [JobSpec(name="job", function="f", trigger=EACH_MINUTE), JobSpec(name="queue", function="f")], release="r1"
    )
    store.open_session(a_session("s1"), lease=timedelta(days=1))
    return store


# --- firing -----------------------------------------------------------------------------------------------------------

PLAN = Plan(
    job_id=5, job="job", revision=3, watermark_seen=minute(1), active_seen=2, occurrences=(), verdicts=(),
    cancel_previous=False, watermark=minute(2), next_due=None, not_before=minute(3), definition="digest:3:4",
)  # fmt: skip


@pytest.mark.parametrize(
    ("of_row", "of_plan", "holds"),
    [
        ({}, {}, True),
        ({"paused_at": 0}, {}, False),
        ({"retired_at": 0}, {}, False),
        ({"watermark": to_micros(minute(0))}, {}, False),
        ({"revision": 4}, {}, False),
        ({}, {"active_seen": 1}, False),
        ({"digest": "other"}, {}, False),
        ({"digest": "other"}, {"definition": ""}, True),
        ({}, {"watermark": minute(1)}, True),
        ({}, {"watermark": minute(1) - MICROSECOND}, False),
        ({}, {"not_before": minute(3) + MICROSECOND}, False),
        ({}, {"not_before": None}, True),
    ],
    ids=str,
)
def test_a_plan_holds_only_while_all_is_as_it_was_seen(
    of_row: dict[str, Any], of_plan: dict[str, Any], holds: bool
) -> None:
    row: Any = SimpleNamespace(
        paused_at=None, retired_at=None, watermark=to_micros(minute(1)), revision=3, digest="digest", defined_at=4
    )
    row.__dict__.update(of_row)
    assert firing._is_plan_current(replace(PLAN, **of_plan), row, 2, to_micros(minute(3))) is holds


def the_plan(state: JobState, number: int, *, after: int, active: int) -> Plan:
    return Plan(
        job_id=state.id, job="job", revision=state.revision, watermark_seen=minute(after), active_seen=active,
        occurrences=(PlannedOccurrence(minute(number), minute(number), None),), verdicts=(), cancel_previous=False,
        watermark=minute(number), next_due=minute(number + 1),
    )  # fmt: skip


def test_several_plans_for_one_job_in_one_call_are_compared_each_with_what_the_one_before_left(
    store: SqliteStore,
) -> None:
    state = state_of(store)
    assert state is not None
    lost = the_plan(state, 9, after=8, active=0)
    first = the_plan(state, 1, after=0, active=0)
    second = the_plan(state, 2, after=1, active=1)
    assert carry_out(store, [lost, first, first, second]) == [False, True, False, True]
    made = store.occurrences(OccurrenceFilter(job="job"), newest_first=False)
    assert [one.scheduled_for for one in made] == [minute(1), minute(2)]


# --- acquiring --------------------------------------------------------------------------------------------------------


def test_what_expired_is_not_acquired(store: SqliteStore, clock: ManualClock) -> None:
    expiring, other = store.enqueue(
        [Item(job="queue", key="expiring", expires_in=SECOND), Item(job="queue", key="other", expires_in=MINUTE)]
    )
    clock.advance(2)
    assert win_named(store, "s1", "queue", key="expiring", lease=LEASE) is None
    assert win_named(store, "s1", "queue", key="other", lease=LEASE) is not None
    found = [store.occurrence(one.id) for one in (expiring, other)]
    assert [one.state for one in found if one] == [State.MISSED, State.RUNNING]


def test_a_key_of_a_job_that_has_a_trigger_is_won(store: SqliteStore) -> None:
    assert win_named(store, "s1", "job", key="key", lease=LEASE) is not None
    assert win_named(store, "s1", "job", scheduled_for=minute(1), lease=LEASE) is None


def test_a_time_from_before_a_job_had_a_trigger_moves_no_watermark_of_the_trigger(
    store: SqliteStore, clock: ManualClock
) -> None:
    clock.advance(2 * MINUTE)
    store.define_jobs([JobSpec(name="queue", function="f", trigger=EACH_MINUTE)], release="r1")
    assert win_named(store, "s1", "queue", scheduled_for=minute(1), lease=LEASE) is not None
    view = store.job("queue")
    assert view is not None
    assert (view.watermark, view.next_due) == (START, minute(3))


def test_acquire_of_a_nominal_time_of_a_job_without_eras_returns_none(store: SqliteStore) -> None:
    with store._write_transaction() as tx:
        store._sqlalchemy_view(tx.connection).execute(delete(eras))
    assert win_named(store, "s1", "queue", scheduled_for=minute(1), lease=LEASE) is None


# --- the clock of a transaction ---------------------------------------------------------------------------------------


def test_a_look_reads_the_clock_once_if_nothing_has_read_it_and_else_goes_by_what_was_read(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        method = getattr(store._dialect, name)

        def noted(*given: Any) -> Any:
            asked.append(name)
            return method(*given)

        return noted

    monkeypatch.setattr(store._dialect, "read_clocks", noting("read_clocks"))

    def looks(tx: Transaction) -> int:
        [seen] = tx.send_first("look", space="default", of=1, place=0, most=1, ahead=0, never=LATEST_MICROS)
        assert seen.asked == tx.now
        return tx.now

    with store._read_transaction() as tx:
        assert asked == ["read_clocks"]
        clock.advance(1)
        assert [looks(tx), looks(tx)] == [to_micros(START)] * 2
        assert asked == ["read_clocks"]
        later = Transaction(tx.connection, tx.dialect, tx.namespace, tx.definitions, read=False)
        assert [looks(later), looks(later)] == [to_micros(START + SECOND)] * 2
        assert asked == ["read_clocks"] * 2
        lazy = Transaction(tx.connection, tx.dialect, tx.namespace, tx.definitions, read=False)
        assert [lazy.now, looks(lazy)] == [to_micros(START + SECOND)] * 2
        assert asked == ["read_clocks"] * 3
