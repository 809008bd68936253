"""When a node looks again. One look shows what came of a due time, because what is fired is claimed in one step."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cronsensus.model.session import SessionView
from cronsensus.node.waking import Waking
from cronsensus.stores.values import View

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WATCH = 0.5
SECOND = timedelta(seconds=1)


def view(at, next_job, *, backlog=False, holders=()):
    return View(now=at, jobs=(), more=False, next_job=next_job, backlog=backlog, next_pending=None, holders=holders,
                  sessions=("a", "b"))  # fmt: skip


def holder():
    return SessionView(
        id="b", node="b", host="h", pid=1, pid_started=1, release="r1", version="1", concurrency=1, functions=1,
        state="alive", started_at=NOW, renewed_at=NOW, ended_at=None, ended_why=None, expires_in=10 * SECOND, holds=1,
    )  # fmt: skip


def wait(waking, seen):
    not_yet = waking.left_to_others("a", seen)
    return waking.wait("a", seen, not_yet, None, free=True, watch=WATCH)


def test_a_node_that_finds_nothing_left_to_do_sleeps_until_something_is_due():
    waking = Waking()
    assert wait(waking, view(NOW, NOW + 10 * SECOND)) >= 10
    assert wait(waking, view(NOW + 10.2 * SECOND, NOW + timedelta(hours=1))) > 60


def test_what_another_node_runs_is_watched():
    waking = Waking()
    wait(waking, view(NOW, NOW + 10 * SECOND))
    assert wait(waking, view(NOW + 10.2 * SECOND, NOW + timedelta(hours=1), holders=(holder(),))) == WATCH


def test_what_others_took_first_is_looked_at_again_as_soon_as_a_run_is_watched():
    waking = Waking()
    waking.fruitless = 1
    assert wait(waking, view(NOW, None, backlog=True)) <= WATCH


def test_who_is_told_nothing_does_not_rest():
    crowd = replace(view(NOW, NOW + SECOND), sessions=tuple(f"s{number}" for number in range(30)))
    resting = dict.fromkeys((True, False), 0)
    for told in resting:
        for session in crowd.sessions:
            waking = Waking()
            waking.wait(session, crowd, timedelta(0), None, free=True, watch=WATCH, told=told)
            resting[told] += waking.resting
    assert resting == {True: 26, False: 0}
