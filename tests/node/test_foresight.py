"""What comes due after a look: which due times are foreseen, what of them was decided, and whose turn is next."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cronsensus.model.job import Era, JobState
from cronsensus.node.foresight import FEW, HORIZON, Coming, Turn, foresee
from cronsensus.node.turn_order import ACTIVE, STAGGER, is_active, place
from cronsensus.stores.values import View
from cronsensus.triggers import at, every
from tests.node.test_decide import MS, NOW, SECOND, job, view

ZERO = timedelta(0)


def of_each(period: str, due_in: timedelta, number: int) -> JobState:
    """Return a job that is due so long after ``NOW``, and then once in each period."""
    trigger = every(period, start=NOW + due_in)
    eras = (Era(since=NOW - SECOND, trigger=trigger, revision=1),)
    return replace(job(due_in, number=number), watermark=NOW, eras=eras)


def once(due_in: timedelta, number: int) -> JobState:
    trigger = at(NOW + due_in)
    return replace(of_each("1h", due_in, number), eras=(Era(since=NOW - SECOND, trigger=trigger, revision=1),))


def foreseen(*jobs: JobState, sessions: tuple[str, ...] = ("a",)) -> Coming:
    coming = foresee(view(*jobs, sessions=sessions))
    assert coming is not None
    return coming


def after(coming: Coming) -> Coming:
    assert coming.instant is not None
    return coming.after(coming.instant)


def test_due_times_come_in_order_and_end_with_what_a_look_shows() -> None:
    coming = foreseen(of_each("1s", SECOND, 1), of_each("1h", 2 * SECOND, 2))
    instants: list[datetime | None] = []
    shown: list[list[int]] = []
    while coming.instant is not None:
        instants.append(coming.instant)
        shown.append([one.id for one in coming.at(coming.instant)])
        coming = after(coming)
    assert instants == [NOW + SECOND, NOW + 2 * SECOND, NOW + HORIZON], "one that is due as late as it shows is known"
    assert shown == [[1], [1, 2], [1]]
    assert coming.passed == NOW + HORIZON


def test_job_that_never_comes_again_is_due_no_more() -> None:
    coming = after(foreseen(once(SECOND, 1), of_each("1s", SECOND, 2)))
    assert [one.due_at for one in coming.view.jobs] == [None, NOW + 2 * SECOND]
    assert coming.instant == NOW + 2 * SECOND
    assert [one.id for one in coming.at(NOW + 2 * SECOND)] == [2]
    assert after(coming).view.jobs[0] is coming.view.jobs[0]


def test_decision_of_a_due_time_is_known_only_if_that_of_each_job_was_announced() -> None:
    coming = foreseen(of_each("1s", SECOND, 1), of_each("1s", SECOND, 2), of_each("1h", 2 * SECOND, 3))
    both = {1: NOW + SECOND, 2: NOW + SECOND}
    assert coming.unless(both) == after(coming)
    assert coming.unless({1: NOW + SECOND}) is None
    assert coming.unless(both | {2: NOW + SECOND - MS}) is None
    assert after(after(after(coming))).unless(both) is None, "nothing comes of which it could tell"


@pytest.mark.parametrize(
    "seen",
    [
        view(of_each("1s", SECOND, 1), more=True),
        view(of_each("1s", SECOND, 1), backlog=True),
        view(of_each("1s", SECOND, 1), job(number=2)),
        view(*(of_each("1s", SECOND, number) for number in range(FEW + 1))),
        view(of_each("1s", SECOND, 1), next_pending=NOW + HORIZON),
        view(of_each("1h", HORIZON + MS, 1)),
        view(),
    ],
    ids=["more jobs", "work waits", "a job is due", "many jobs", "work comes due", "nothing so soon", "nothing"],
)
def test_nothing_is_foreseen_of_what_is_not_seen_whole(seen: View) -> None:
    assert foresee(seen) is None


def test_few_jobs_are_foreseen_and_work_that_waits_for_longer_does_not_matter() -> None:
    some = [of_each("1s", SECOND, number) for number in range(FEW)]
    assert foresee(view(*some, next_pending=NOW + HORIZON + MS)) is not None


def test_last_due_time_is_followed_by_a_look_in_time_for_what_comes_right_after() -> None:
    coming = after(foreseen(of_each("1h", SECOND, 1)))
    assert coming.turn_of("a", 10 * MS, ZERO) == Turn(NOW + SECOND, NOW + HORIZON - 10 * MS)


def test_only_active_nodes_behind_the_second_wait_for_announcements() -> None:
    sessions = tuple("abcdefgh")
    coming, due = foreseen(of_each("1h", SECOND, 1), sessions=sessions), NOW + SECOND
    for session in sessions:
        turn, number = coming.turn_of(session, ZERO, 40 * MS), place(session, sessions, due)
        assert turn.first is (number == 0)
        assert turn.listens is (1 < number < ACTIVE)
        assert turn.listens is (number > 1 and is_active(session, sessions, due))
        assert turn.at == due + number * STAGGER + (40 * MS if turn.listens else ZERO)
