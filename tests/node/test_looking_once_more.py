"""A node whose turn has come looks once more: who stood before it may have claimed just after its look, and die."""

from datetime import UTC, datetime, timedelta

from cronsensus.node.waking import Waking
from cronsensus.stores.base import Glance

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WATCH = 0.5
SECOND = timedelta(seconds=1)


def glance(at, next_job, *, sessions=("a", "b"), backlog=False):
    return Glance(now=at, jobs=(), more=False, next_job=next_job, backlog=backlog, next_pending=None, holders=(),
                  sessions=sessions)  # fmt: skip


def wait(waking, seen):
    not_yet = waking.left_to_others("a", seen)
    return waking.wait("a", seen, not_yet, None, free=True, watch=WATCH)


def test_after_a_due_time_at_which_nothing_was_left_to_do_a_node_looks_once_more():
    waking = Waking()
    assert wait(waking, glance(NOW, NOW + 10 * SECOND)) >= 10
    due = NOW + 10.2 * SECOND
    assert wait(waking, glance(due, NOW + timedelta(hours=1))) <= WATCH
    assert wait(waking, glance(due + WATCH * SECOND, NOW + timedelta(hours=1))) > 60


def test_a_node_alone_has_nobody_to_look_after():
    waking = Waking()
    wait(waking, glance(NOW, NOW + 10 * SECOND, sessions=("a",)))
    assert wait(waking, glance(NOW + 10.2 * SECOND, NOW + timedelta(hours=1), sessions=("a",))) > 60


def test_what_others_took_first_is_looked_at_again_as_soon_as_a_run_is_watched():
    waking = Waking()
    waking.fruitless = 1
    assert wait(waking, glance(NOW, None, backlog=True)) <= WATCH
