"""One occurrence that is named, by a time or by a key: who gets it, and what it leaves."""

import json
from typing import Any

import pytest

from tests.stores.redis.scripts.by_hand import (
    NOW,
    Case,
    J,
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
    pending,
    renewed,
    row,
    running,
    session,
    world,
)

MOST = 90
"""So far ahead a time may be acquired."""


def eras(*those: tuple[int, str | None]) -> State:
    """Return when the job's eras began, and their triggers."""
    return {f"job:{J}:eras": [json.dumps([NOW + since, 1, trigger]) for since, trigger in those]}


KEPT_ELSEWHERE = eras((-200, None))
BASE = merged(meta(occurrence="1"), session(), job(manual="1", watermark=at(-100)), KEPT_ELSEWHERE)


def told(
    key: str = "k1",
    *,
    nominal: int | None = None,
    session: str = "s1",
    name: str = "job",
    fingerprint: str | None = None,
) -> tuple[Any, ...]:
    asks = [[name, False, [[None if nominal is None else at(nominal), key]], fingerprint]]
    return session, 500, MOST, asks, {}, 1


def claim(n: int, **fields: Any) -> list[Any]:
    row = {
        "id": occurrence_id(n), "job": J, "key": f"k{n}", "origin": "enqueue", "nominal": False, "due": at(0),
        "attempt": 1, "token": at(0), "payload": "", "crashes": 0, "failures": 0, "parent": False,
        "listed": False, "created": at(-50 if n == 1 else 0), "note": False, **fields,
    }  # fmt: skip
    return [[[""]], at(0), [[*row.values()]], [[J, "spec of job"]]]


TAKEN = {"meta": {"token": at(0)}, **renewed(), "holding": Scores(s1=1)}
NOTHING = [[["lost"]], at(0), [], []]


def refused(word: str) -> list[Any]:
    return [[[word]], at(0), [], []]


def by_time(nominal: int, watermark: int = -100, **fields: str) -> State:
    """Return what is left where a new time was acquired."""
    row = {"nominal": at(nominal), "due": at(0), "created": at(0), "payload": "", "token": at(0), "started": at(0)}
    return merged(
        BASE,
        meta(occurrence="2"),
        TAKEN,
        {f"job:{J}": {"watermark": at(watermark)}, "prunable": Scores({J: at(1000)})},
        running(2, origin="schedule", key="k1", **row),
    )


def won(nominal: int) -> list[Any]:
    return claim(2, key="k1", origin="schedule", nominal=at(nominal))


NEW: State = {"due": at(0), "created": at(0), "payload": "", "token": at(0), "started": at(0)}
NEW_KEY = merged(BASE, meta(occurrence="2"), TAKEN, {"prunable": Scores({J: at(1000)})}, running(2, key="k1", **NEW))
BY_KEY = claim(2, key="k1")


def of_job(**fields: str | None) -> State:
    return {f"job:{J}": fields}


def begun(n: int, **fields: str) -> State:
    """Return what is left where one that waits was acquired."""
    return merged(BASE, TAKEN, running(n, **{"token": at(0), "started": at(0), **fields}))


def waits(**fields: str) -> State:
    return world(BASE, pending(1, **fields))


def again(**fields: Any) -> list[Any]:
    return claim(1, due=at(-10), payload="p", **fields)


PRINTED = row(1, fingerprint="old")
OLD = final(1, finished=at(-1001), payload="old")
CASES = [
    Case("a time", BASE, told(nominal=-5), won(-5), by_time(-5, watermark=-5)),
    Case(
        "a time that is owed",
        merged(BASE, of_job(next_due=at(-5))),
        told(nominal=-5),
        won(-5),
        merged(by_time(-5), of_job(next_due=at(-5))),
    ),
    Case("a key that was over so long ago that it counts as pruned", merged(BASE, OLD), told(), BY_KEY, NEW_KEY),
    # What tells one caller's arguments from another's.
    Case("a key that waits, and the caller has none", merged(waits(), PRINTED), told(), again(), begun(1)),
]


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_one_caller_gets_what_is_named(case: Case, place: Place) -> None:
    check(place, "acquire", case)
