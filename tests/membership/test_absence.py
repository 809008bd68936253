"""A session is taken for dead when two looks, far enough apart, found no sign of life, and no renewal came between."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cronsensus.membership.liveness import ABSENT_FOR, CERTAIN_AFTER, ROUND_TRIPS, Absences
from cronsensus.model.session import SessionView
from cronsensus.stores.values import View

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROMPT = 0.001
"""Seconds that a look takes beside the server."""
ENOUGH = ABSENT_FOR + (ROUND_TRIPS + 1) * PROMPT


def view(*absent: str, renewed: timedelta = timedelta(0)) -> View:
    """Return what a look sees where ``a`` holds a run."""
    holder = SessionView(
        id="a", node="a", host="h", pid=1, pid_started=1, release="r", version="0", concurrency=1, functions=1,
        state="alive", started_at=NOW, renewed_at=NOW + renewed, ended_at=None, ended_why=None,
        expires_in=timedelta(seconds=9), holds=1,
    )  # fmt: skip
    return View(
        now=NOW,
        jobs=(),
        more=False,
        next_job=None,
        backlog=False,
        next_pending=None,
        holders=(holder,),
        sessions=("a",),
        absent=absent,
    )


class Looks:
    """Looks one after the other, and what they tell."""

    def __init__(self) -> None:
        self.absences = Absences()


def looked(looks: Looks, seen: View, asked_at: float, took: float = PROMPT) -> bool:
    looks.absences = looks.absences.update_absences(seen, asked_at, asked_at + took)
    return looks.absences.is_gone("a")


def test_absent_in_two_looks_far_enough_apart_is_gone() -> None:
    looks = Looks()
    assert not looked(looks, view("a"), 0)
    assert not looked(looks, view("a"), ABSENT_FOR / 2)
    assert looked(looks, view("a"), ENOUGH)


def test_one_slow_look_does_not_count_as_two() -> None:
    looks = Looks()
    assert not looked(looks, view("a"), 0, took=60)


def test_shown_again_in_between_is_counted_anew() -> None:
    looks = Looks()
    looked(looks, view("a"), 0)
    looked(looks, view(), 0.1)
    assert not looked(looks, view("a"), ENOUGH)
    assert looked(looks, view("a"), 2 * ENOUGH)


def test_renewed_since_the_first_look_is_counted_anew() -> None:
    looks = Looks()
    looked(looks, view("a"), 0)
    renewed = view("a", renewed=timedelta(microseconds=1))
    assert not looked(looks, renewed, ENOUGH)
    assert not looked(looks, renewed, 1.5 * ENOUGH)
    assert looked(looks, renewed, 2 * ENOUGH)


def test_the_way_to_the_store_counts_neither_for_nor_against() -> None:
    looks = Looks()
    looked(looks, view("a"), 0, took=0.1)
    # Asked early enough to be sent while the first was under way, answered late.
    assert not looked(looks, view("a"), 0.1, took=5.0)
    # Far from the store, a process that comes back needs a while.
    assert not looked(looks, view("a"), 0.1 + ABSENT_FOR, took=0.1)
    assert looked(looks, view("a"), 0.2 + ABSENT_FOR + ROUND_TRIPS * 0.1, took=0.1)


def test_a_look_of_two_questions_waits_as_long_as_the_first_of_them_asks_for() -> None:
    looks = Looks()
    twice = replace(view("a"), age=0.05)
    looked(looks, twice, 0, took=0.1)
    assert not looked(looks, twice, 0.1 + ABSENT_FOR + ROUND_TRIPS * 0.04, took=0.1)
    assert looked(looks, twice, 0.1 + ABSENT_FOR + ROUND_TRIPS * 0.05, took=0.1)


@pytest.mark.parametrize("took", [PROMPT, 0.04])
def test_another_look_is_wanted_when_it_can_tell_also_if_it_takes_a_little_longer(took: float) -> None:
    looks = Looks()
    looked(looks, view("a"), 100, took=took)
    at = looks.absences.certain_at(["a", "b"])
    assert at is not None
    assert at == pytest.approx(100 + took + CERTAIN_AFTER * (ABSENT_FOR + ROUND_TRIPS * took))
    assert looks.absences.certain_at(["b"]) is None
    assert looked(looks, view("a"), at, took=took + 0.0005)
