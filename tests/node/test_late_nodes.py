"""Of a crowd of nodes four are in front and all others late: what that costs, and what late nodes notice."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from statistics import median

import pytest

from cronsensus import every
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.node.decide import DEFERRED_LOOK_SECONDS
from cronsensus.node.settings import WATCH_SECONDS
from cronsensus.node.turn_order import IN_FRONT, STAGGER, TERM, is_in_front, place_of
from cronsensus.timing.clock import ManualClock
from tests.node.crowd import LEASE, SECOND, Crowd, lateness, latest

FOR_LONG = timedelta(hours=1)


def in_front(crowd: Crowd, instant: datetime | None) -> set[int]:
    ids = tuple(sorted(crowd.sessions))
    return {number for one, number in crowd.sessions.items() if is_in_front(one, ids, instant)}


# --- what a crowd costs -----------------------------------------------------------------------------------------------


def asked_for_each_run(nodes: int, seconds: int) -> float:
    """Return what a number of nodes ask for each occurrence of a job of each second."""
    crowd = Crowd(nodes)
    crowd.put("job", "1s")
    crowd.run(30.5)
    before, ran = sum(crowd.asked.values()), len(crowd.ran())
    crowd.run(seconds)
    occurrences = crowd.ran()[ran:]
    assert len(occurrences) == seconds
    assert len({one.node for one in occurrences}) > min(nodes, IN_FRONT + 3) - 1, "the same ones do everything for ever"
    assert latest(occurrences) <= 0.001
    return (sum(crowd.asked.values()) - before) / seconds


def test_thirty_nodes_ask_little_more_often_than_four():
    few, many = asked_for_each_run(4, 60), asked_for_each_run(30, 60)
    assert many <= few + 30 / 5, "a late node adds less than one look in five seconds"


def test_many_nodes_without_work_sleep():
    crowd = Crowd(30)
    crowd.run(10)
    before = sum(crowd.asked.values())
    crowd.run(600)
    assert (sum(crowd.asked.values()) - before) / 30 <= 2 * 10


def test_an_enqueued_run_is_claimed_by_those_in_front_before_any_late_node_asks():
    crowd = Crowd(12)
    crowd.define(JobSpec(name="job", function="work"))
    crowd.run(1)
    crowd.askers.clear()
    crowd.store.enqueue([Item(job="job")])
    crowd.store.notify()
    crowd.run(DEFERRED_LOOK_SECONDS[0] - 0.001)
    assert [one.state for one in crowd.ran()] == ["succeeded"]
    assert crowd.askers <= in_front(crowd, None)


# --- whose slots are used ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [5, 30])
def test_long_runs_spread_to_late_nodes(nodes):
    crowd = Crowd(nodes, concurrency=1, lasts=FOR_LONG)
    crowd.put("job", "1s", overlap="allow")
    crowd.run(nodes + 0.9)
    late = [lateness(one) for one in crowd.ran() if one.started_at]
    assert len(late) == nodes
    assert max(late) <= DEFERRED_LOOK_SECONDS[1] + IN_FRONT * STAGGER / SECOND
    assert set(crowd.running.values()) == {1}


@pytest.mark.parametrize("nodes", [6, 30])
def test_many_long_runs_take_the_slots_of_all_nodes(nodes):
    crowd = Crowd(nodes, concurrency=10, lasts=FOR_LONG)
    trigger = every("1d", start=crowd.clock.now() + 20 * SECOND)
    crowd.define(*(JobSpec(name=f"j{number}", function="work", trigger=trigger) for number in range(10 * nodes)))
    crowd.run(19.9)
    assert [len(hands.calls) for hands in crowd.hands] == [0] * nodes
    crowd.run(0.1 + DEFERRED_LOOK_SECONDS[1] + IN_FRONT * STAGGER / SECOND)
    assert [len(hands.calls) for hands in crowd.hands] == [10] * nodes


def test_a_late_node_with_a_free_slot_fills_it_at_once_while_more_waits():
    crowd = Crowd(6, concurrency=1, lasts=FOR_LONG)
    crowd.define(JobSpec(name="job", function="work"))
    crowd.run(1)
    crowd.store.enqueue([Item(job="job")] * 12)
    crowd.store.notify()
    crowd.run(2)
    for hands in crowd.hands:
        (call,) = hands.calls
        hands.end(call)
        crowd.run(0.005)
        assert len(hands.calls) == 1


# --- nodes that die ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hosts", "within"), [(1, 2 * WATCH_SECONDS), (10, LEASE / SECOND + WATCH_SECONDS)])
def test_a_dead_process_is_noticed_at_once_by_those_in_front_on_its_host_and_else_by_its_lease(hosts, within):
    crowd = Crowd(30, hosts=hosts, lasts=FOR_LONG)
    crowd.put("job", "100s", max_crashes=100)
    crowd.run(100.5)
    took = []
    for _ in range(20):
        ((node, _),) = crowd.running.items()
        crowd.run(7.3)
        crowd.dead.add(int(node))
        took.append(crowd.run(30, until=partial(crowd.runs_elsewhere, node)))
    assert max(took) <= within


@pytest.mark.parametrize("trigger", [None, every("100s", start=ManualClock().now())])
def test_a_run_whose_node_dies_with_all_in_front_is_taken_over_soon_after_its_lease(trigger):
    crowd = Crowd(30, hosts=30, lasts=FOR_LONG)
    crowd.define(JobSpec(name="job", function="work", trigger=trigger))
    crowd.run(1)
    crowd.store.enqueue([Item(job="job")])
    crowd.store.notify()
    crowd.run(0.3)
    ((node, _),) = crowd.running.items()
    crowd.dead |= in_front(crowd, None if trigger is None else trigger.next_after(crowd.clock.now()))
    assert int(node) in crowd.dead
    took = crowd.run(30, until=partial(crowd.runs_elsewhere, node))
    assert took <= LEASE / SECOND + 1


@pytest.mark.parametrize(
    ("terms", "mostly", "latest_of_all"), [(1, 0.5, 2.0), (2, 1.0, 2.5)], ids=["all in front", "and all that come next"]
)
def test_late_nodes_go_on_soon_after_all_in_front_died(terms, mostly, latest_of_all):
    late = []
    for draw in range(9):
        crowd = Crowd(30, draw=draw)
        crowd.put("job", "1s", overlap="allow", catch_up="all")
        crowd.run(20.5)
        for term in range(terms):
            crowd.dead |= in_front(crowd, crowd.clock.now() + term * TERM)
        before = len(crowd.ran())
        crowd.run(8)
        late.append(latest(crowd.ran()[before:]))
        assert len(crowd.ran()) - before >= 5
    # Who slept through the beginning of the term does not know yet how far in front it is.
    assert median(late) <= mostly + 0.001
    assert max(late) <= latest_of_all + 0.001


@pytest.mark.parametrize("second", range(20, 28))
def test_two_nodes_that_end_silently_before_their_turn_make_no_due_time_late(second):
    crowd = Crowd(4, hosts=4)
    crowd.put("job", "1s", overlap="allow")
    crowd.run(second - 0.4)
    due = crowd.ran()[0].due_at + len(crowd.ran()) * SECOND
    order = sorted(crowd.sessions, key=lambda one: place_of(one, tuple(crowd.sessions), due))
    crowd.dead |= {crowd.sessions[one] for one in order[:2]}
    before = len(crowd.ran())
    crowd.run(5)
    assert len(crowd.ran()) - before == 5
    assert latest(crowd.ran()[before:]) <= IN_FRONT * STAGGER / SECOND
