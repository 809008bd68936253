"""What one step of a prune takes away, what it leaves, and where it says to go on."""

import json
from typing import Any

import pytest

from tests.stores.redis.scripts.by_hand import (
    Case,
    J,
    K,
    Place,
    Scores,
    State,
    at,
    by_name,
    check,
    final,
    job,
    merged,
    meta,
    occurrence_id,
    row,
    session,
)

HOUR, DAY = 3_600_000_000, 86_400_000_000
YEAR = 366 * DAY
KEEP = 1000
PAGE_OF_2 = {"86400000000, 100": "86400000000, 2"}
AT_MOST_2 = {**PAGE_OF_2, "MOST = 2000": "MOST = 2"}


def told(*jobs: str, before: str | None = None, limit: int = 100, skipped: int = 0) -> tuple[Any, ...]:
    return list(jobs), before, limit, skipped


def old(n: int, of: str = J, **fields: Any) -> State:
    """Return an occurrence that was over so long ago that it goes."""
    return final(n, of, **{"created": at(-2000), "finished": at(-KEEP - 1), **fields})


def recent(n: int, **fields: Any) -> State:
    """Return one that has to stay for now, though it was made long ago."""
    return old(n, finished=at(-KEEP), **fields)


def prunable(since: int) -> State:
    return {"prunable": Scores({J: at(since)})}


BASE = merged(meta(), job(), prunable(-1))
CLEAN = merged(meta(), job())
ALL = [1, 0, 1, 0, False]
"""One deleted, one job done."""
LATER = prunable(-2000 + KEEP)
"""When the oldest that is left may go."""


def horizon(since: int) -> State:
    return {f"job:{J}": {"horizon": at(since)}}


ABOVE = old(1, origin="schedule", nominal=at(-99))
GOES = [
    Case("what was over before", merged(BASE, old(1, state="failed")), told(J), ALL, CLEAN),
    Case(
        "a nominal time, which raises the horizon",
        merged(BASE, old(1, origin="schedule", nominal=at(-100))),
        told(J),
        ALL,
        merged(CLEAN, horizon(-100)),
    ),
    Case(
        "of several jobs what goes, and of the first one from where it is told",
        merged(BASE, job(K, "other"), old(1), old(2), old(3, K)),
        told(J, K, skipped=1),
        [2, 0, 2, 0, False],
        merged(CLEAN, job(K, "other"), old(1), LATER),
    ),
    Case(
        "one that does not say when it was made",
        merged(BASE, old(1, created=None), old(2)),
        told(J),
        [2, 0, 1, 0, False],
        CLEAN,
    ),
]
STAYS: list[tuple[str, State]] = [
    ("what lies above the watermark", ABOVE),
    ("what has a nominal time that is no number", merged(old(1), row(1, nominal="soon"))),
    ("what has no key", merged(old(1), row(1, key=None))),
]
UNREADABLE: list[tuple[str, State]] = [
    ("for how long to keep", job(keep="long")),
    ("the watermark", job(watermark="now")),
    ("the horizon", job(horizon="none")),
]


@pytest.mark.parametrize("case", GOES, ids=by_name)
def test_what_a_prune_takes_away(case: Case, place: Place) -> None:
    check(place, "prune", case)


@pytest.mark.parametrize(("_", "stays"), STAYS, ids=[name for name, _ in STAYS])
def test_what_a_prune_leaves(_: str, stays: State, place: Place) -> None:
    check(place, "prune", Case("", merged(BASE, stays, old(2)), told(J), ALL, merged(CLEAN, stays, LATER)))


@pytest.mark.parametrize(("_", "of"), UNREADABLE, ids=[name for name, _ in UNREADABLE])
def test_a_job_of_which_something_is_no_number_is_left_as_it_is(_: str, of: State, place: Place) -> None:
    before = merged(BASE, of, old(1))
    check(place, "prune", Case("", before, told(J, before=at(-1)), [0, 0, 1, 0, False]))


# --- where it stops ---------------------------------------------------------------------------------------------------

YOUNG = old(2, created=at(-KEEP), finished=at(-5))
STOPS = [
    Case(
        "what was made too late to have ended early enough is not looked at, nor what was made after it",
        merged(BASE, old(1), YOUNG, old(3)),
        told(J),
        ALL,
        merged(CLEAN, YOUNG, old(3), prunable(0)),
    ),
    Case(
        "where as many have to stay as are looked at in a page it is done again in an hour",
        merged(BASE, recent(1), recent(2)),
        told(J),
        [0, 0, 1, 0, False],
        merged(CLEAN, recent(1), recent(2), prunable(HOUR)),
    ),
]
ENOUGH = [
    Case(
        "there is more of the job",
        merged(BASE, job(K, "other"), recent(1), recent(2), recent(3), old(4, K)),
        told(J, K),
        [0, 0, 0, 2, False],
    ),
    Case(
        "the job is done, and another one is left",
        merged(BASE, job(K, "other"), recent(1), YOUNG, old(4, K)),
        told(J, K),
        [0, 0, 1, 0, False],
        merged(BASE, job(K, "other"), recent(1), YOUNG, old(4, K), prunable(HOUR)),
    ),
    Case(
        "the second job begins at its beginning, and it says where to go on",
        merged(BASE, job(K, "other"), recent(1), old(2, K), old(3, K, finished=at(-5)), old(4, K)),
        told(J, K),
        [1, 0, 1, 1, False],
        merged(CLEAN, job(K, "other"), recent(1), LATER, old(3, K, finished=at(-5)), old(4, K)),
    ),
]


@pytest.mark.parametrize("case", STOPS, ids=by_name)
def test_a_prune_goes_from_page_to_page(case: Case, place: Place) -> None:
    check(place, "prune", case, smaller=PAGE_OF_2)


@pytest.mark.parametrize("case", ENOUGH, ids=by_name)
def test_a_step_of_a_prune_that_looked_at_enough_says_where_to_go_on(case: Case, place: Place) -> None:
    check(place, "prune", case, smaller=AT_MOST_2)


# --- ranges, sessions, locks, the trail -------------------------------------------------------------------------------


def ranges(**lasts: int) -> State:
    """Return verdict ranges by their ids, ``r1`` and so on, with their last times."""
    ids = {occurrence_id(int(name[1:])): last for name, last in lasts.items()}
    return {
        f"job:{J}:ranges": Scores({f"{one} text": int(one) for one in ids}),
        "decided": Scores({f"{one} {J}": int(one) for one in ids}),
        f"job:{J}:lasts": Scores({one: at(last) for one, last in ids.items()}),
    }


RANGES = [
    Case(
        "those that ended before",
        merged(BASE, ranges(r1=-KEEP - 1, r2=-KEEP)),
        told(J),
        ALL,
        merged(CLEAN, ranges(r2=-KEEP), horizon(-KEEP - 1), prunable(0)),
    ),
    Case(
        "as many as are wanted",
        merged(BASE, ranges(r1=-KEEP - 2, r2=-KEEP - 1)),
        told(J, limit=1),
        [1, 0, 0, 0, False],
        merged(CLEAN, ranges(r2=-KEEP - 1), horizon(-KEEP - 2), prunable(-1)),
    ),
]


@pytest.mark.parametrize("case", RANGES, ids=by_name)
def test_verdict_ranges_go_as_occurrences_do(case: Case, place: Place) -> None:
    check(place, "prune", case)


def ended(name: str, since: int) -> State:
    left = session(name, ended=at(since))
    return {
        f"session:{name}": left[f"session:{name}"],
        "sessions": left["sessions"],
        "ended": Scores({name: at(since)}),
    }


def lock(until: int) -> State:
    entry = "lock\x00000000"
    return {"lock:0:lock": {"until": at(until)}, "locks": Scores({entry: 0}), "leases": Scores({entry: at(until)})}


def queue(name: str, joined: int) -> State:
    return {f"queue:{name}": Scores(me=1), "queues": Scores({name: at(joined)})}


def entry(n: int, since: int) -> State:
    text = json.dumps([occurrence_id(n), at(since), "by", "act", "what", "", "{}"], separators=(",", ":"))
    return {"trail": Scores({text: n}), "trail:what": Scores({occurrence_id(n): n})}


REST = [
    Case(
        "a session that ended a day ago",
        merged(meta(), ended("s1", -DAY - 1), ended("s2", -DAY)),
        told(),
        [0, 0, 0, 0, False],
        merged(meta(), ended("s2", -DAY)),
    ),
    Case(
        "as many sessions as go in one step",
        merged(meta(), ended("s1", -DAY - 1), ended("s2", -DAY - 1)),
        told(),
        [0, 0, 0, 0, True],
        meta(),
    ),
    Case("a lock that is overdue", merged(meta(), lock(0)), told(), [0, 0, 0, 0, False], meta()),
    Case("not one that is held", merged(meta(), lock(1)), told(), [0, 0, 0, 0, False]),
    Case(
        "a queue that was joined a day ago",
        merged(meta(), queue("one", -DAY), queue("other", -DAY + 1)),
        told(),
        [0, 0, 0, 0, False],
        merged(meta(), queue("other", -DAY + 1)),
    ),
    Case(
        "an entry of the trail that is a year old, and one more in the next step",
        merged(meta(), entry(1, -YEAR - 1), entry(2, -YEAR - 1)),
        told(),
        [0, 0, 0, 0, True],
        merged(meta(), entry(2, -YEAR - 1)),
    ),
    Case("no younger one", merged(meta(), entry(1, -YEAR)), told(), [0, 0, 0, 0, False]),
]


@pytest.mark.parametrize("case", REST, ids=by_name)
def test_what_else_a_prune_takes_away(case: Case, place: Place) -> None:
    fewer = {"MOST_SESSIONS = 1000": "MOST_SESSIONS = 2", "MOST_ENTRIES = 500": "MOST_ENTRIES = 1"}
    check(place, "prune", case, smaller=fewer)
