"""Definitions are written if all that they rest on stands as it was seen, and otherwise nothing of them is."""

import json
from hashlib import sha1
from typing import Any

import pytest

from cronsensus.stores.redis.redis_codec import pack
from tests.stores.redis.scripts.by_hand import (
    NOW,
    Case,
    J,
    K,
    L,
    Place,
    Refused,
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
    pending,
    running,
    session,
    world,
)

DAY = 86_400_000_000
MOST_AGE = 10_000_000


def era(since: int, trigger: str | None = "each day") -> str:
    return json.dumps([NOW + since, 1, trigger])


def told(
    *,
    seen: int = -5,
    generation: str | None = None,
    release: str | None = None,
    lives: tuple[bool, bool] = (False, False),
    created: tuple[Any, ...] = (),
    changed: tuple[Any, ...] = (),
    retired: tuple[Any, ...] = (),
    moved: tuple[Any, ...] = (),
    entries: tuple[Any, ...] = (),
) -> tuple[Any, ...]:
    """Return what was seen, when, and what is to be written."""
    writes = (created, changed, retired, moved, entries)
    return at(seen), generation, release, *lives, *map(list, writes)


def fields(**values: str) -> list[str]:
    return [word for pair in values.items() for word in pair]


STANDS = {f"job:{J}:eras": [era(-100)], "jobs": Scores(job=0), "due": Scores({J: at(7)})}
BASE = merged(meta(job="1", definitions="3"), job(next_due=at(7)), STANDS)
DEFINED = {"meta": {"definitions": "4"}}
NEW = {"name": "new", "source": "api", "keep": "1000"}


def new(**values: str) -> tuple[Any, ...]:
    return ("new", fields(**{**NEW, **values}), era(-5), at(30))


def made(**values: str) -> State:
    return {
        "meta": {"job": "2", "definitions": "4"},
        "names": {"new": K},
        f"job:{K}": {**NEW, **values, "created": at(-5), "next_due": at(30)},
        f"job:{K}:eras": [era(-5)],
        "jobs": Scores(new=0),
        "due": Scores({K: at(30)}),
    }


def change(
    revision: str = "1", watermark: str = at(-100), next_due: str | None = at(30), **values: str
) -> tuple[Any, ...]:
    return (J, revision, watermark, "job", fields(**{"revision": "2", **values}), era(-5), next_due)


def changed(**values: str | None) -> State:
    return {
        **DEFINED,
        f"job:{J}": {"revision": "2", "next_due": at(30), **values},
        f"job:{J}:eras": [era(-100), era(-5)],
        "due": Scores({J: at(30)}),
        # Its first era is over, and is kept for a day.
        "prunable": Scores({J: at(DAY - 5)}),
    }


RETIRED = merged(
    BASE,
    job(retired_at=at(-9), waiting_until=at(50), concurrency="1", manual="1", paused_at=at(-20)),
    {
        f"job:{J}": {"next_due": None},
        "jobs": None,
        "retired": Scores(job=0),
        "waiting": Scores({J: at(50)}),
        "due": None,
    },
)
CODE = merged(BASE, job(source="code"), {"code": Scores(job=0)})
WRITES = [
    Case("a new job", BASE, told(created=(new(),)), True, merged(BASE, made())),
    Case(
        "a job that new zone rules move",
        BASE,
        told(moved=((J, "1", at(-100), "job", at(3)),)),
        True,
        merged(BASE, {f"job:{J}": {"next_due": at(3)}, "due": Scores({J: at(3)})}),
    ),
    Case(
        "a job that code gave up",
        CODE,
        told(changed=(change(source="api"),)),
        True,
        merged(CODE, changed(source="api"), {"code": None}),
    ),
    Case(
        "a retired job comes back, and paused as it was",
        RETIRED,
        told(changed=(change(),)),
        True,
        merged(
            RETIRED,
            changed(retired_at=None, waiting_until=None, concurrency=None, manual=None),
            {"retired": None, "waiting": None, "due": None, "paused": {J}, "jobs": Scores(job=0)},
        ),
    ),
]


@pytest.mark.parametrize("case", WRITES, ids=by_name)
def test_what_is_written_of_a_definition(case: Case, place: Place) -> None:
    check(place, "define", case)


# --- what it rests on -------------------------------------------------------------------------------------------------

LIVES = merged(
    BASE,
    session("s1", release="r1"),
    session("s2", release="r2"),
    session("s3"),
    {"releases": {"r1": "5", "r2": "6"}},
)
AGAIN = Refused("AGAIN")


def look(**how: Any) -> tuple[Any, ...]:
    return told(created=(new(),), **how)


DONE = merged(BASE, made())
RESTS = [
    Case("seen in this moment", BASE, look(seen=0), True, merged(DONE, {f"job:{K}": {"created": at(0)}})),
    Case("seen later than now", BASE, look(seen=1), AGAIN),
    Case(
        "seen as long ago as may be",
        BASE,
        look(seen=-MOST_AGE),
        True,
        merged(DONE, {f"job:{K}": {"created": at(-MOST_AGE)}}),
    ),
    Case("seen longer ago", BASE, look(seen=-MOST_AGE - 1), AGAIN),
    Case("no other definition changed", BASE, look(generation="3"), True, DONE),
    Case("another definition changed", BASE, look(generation="2"), AGAIN),
    Case(
        "none ever changed",
        merged(BASE, {"meta": {"definitions": None}}),
        look(generation="0"),
        True,
        merged(DONE, {"meta": {"definitions": "1"}}),
    ),
    Case("the name is taken", BASE, told(created=(("job", *new()[1:]),)), AGAIN),
    Case("one of two names is taken", BASE, told(created=(new(), ("job", *new()[1:]))), AGAIN),
    Case("the revision is another", BASE, told(changed=(change(revision="2"),)), AGAIN),
    Case("the watermark is another", BASE, told(changed=(change(watermark=at(-99)),)), AGAIN),
    Case("the watermark of a job to be moved is another", BASE, told(moved=((J, "1", at(-99), "job", at(3)),)), AGAIN),
    Case("the revision of a job to be retired is another", BASE, told(retired=((J, "2", at(-100), "job"),)), AGAIN),
    Case("the watermark of a job to be retired is another", BASE, told(retired=((J, "1", at(-99), "job"),)), AGAIN),
    Case(
        "releases live as seen: a later one", LIVES, look(release="r1", lives=(True, True)), True, merged(LIVES, made())
    ),
    Case("a later one has come to live", LIVES, look(release="r1", lives=(False, True)), AGAIN),
    Case(
        "releases live as seen: an earlier one",
        LIVES,
        look(release="r2", lives=(False, True)),
        True,
        merged(LIVES, made()),
    ),
    Case("a later one lives no more", LIVES, look(release="r2", lives=(True, True)), AGAIN),
    Case("another one has come to live", LIVES, look(release="r2", lives=(False, False)), AGAIN),
]


@pytest.mark.parametrize("case", RESTS, ids=by_name)
def test_a_definition_is_written_only_where_all_is_as_it_was_seen(case: Case, place: Place) -> None:
    check(place, "define", case)


def test_a_release_of_an_empty_space_makes_it_known(place: Place) -> None:
    asked = told(release="r1")
    identity = sha1(at(0).encode() + pack(asked), usedforsecurity=False).hexdigest()
    made = {"meta": {"schema": "5", "born": at(0), "identity": identity}, "releases": {"r1": at(0)}}
    check(place, "define", Case("", {}, asked, True, made))


# --- retired ----------------------------------------------------------------------------------------------------------


def retire(*more: Any) -> tuple[Any, ...]:
    return told(retired=((J, "1", at(-100), "job", *more),))


OVER = fields(revision="2")
ENDS = era(-5, None)
LIVING = world(
    merged(CODE, {"paused": {J}}),
    job(L, "other"),
    pending(1, origin="manual"),
    pending(2, priority="1"),
    pending(3, L),
    running(4),
)


def cancelled(n: int, **row: Any) -> State:
    whole = final(n, state="cancelled", reason="retired", finished=at(0), **row)
    for name in ("attempt", "token", "session", "node"):
        del whole[f"occurrence:{occurrence_id(n)}"][name]
    return whole


OF_OTHERS = world(meta(job="1", definitions="4"), job(L, "other"), pending(3, L), running(4))
GONE = merged(
    OF_OTHERS,
    job(source="code", revision="2", retired_at=at(-5)),
    {f"job:{J}:eras": [era(-100), ENDS], "retired": Scores(job=0), "prunable": Scores({J: at(950)})},
)
NONE_WAITS = merged(cancelled(1, origin="manual"), cancelled(2, priority="1"))
RETIRES = [
    Case("what waits is cancelled", LIVING, retire(OVER, ENDS), True, merged(GONE, NONE_WAITS)),
    Case(
        "what waits is kept for a while",
        LIVING,
        retire(OVER, ENDS, None, None, at(60)),
        True,
        merged(
            world(LIVING),
            {"jobs": None, "code": None, "paused": None, "due": None},
            GONE,
            {f"job:{J}": {"waiting_until": at(60), "next_due": None}, "waiting": Scores({J: at(60)})},
        ),
    ),
    Case(
        "of one that is retired already only what waits is cancelled",
        world(RETIRED, pending(1)),
        retire(),
        True,
        merged(RETIRED, DEFINED, {f"job:{J}": {"waiting_until": None}, "waiting": None}, cancelled(1)),
    ),
]


@pytest.mark.parametrize("case", RETIRES, ids=by_name)
def test_what_is_left_of_a_job_that_is_retired(case: Case, place: Place) -> None:
    check(place, "define", case)
