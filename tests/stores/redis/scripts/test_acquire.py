"""One occurrence that is named, by a time or by a key: who gets it, and what it leaves."""

import json
from typing import Any

import pytest

from tests.stores.redis.scripts.by_hand import (
    NOW,
    Case,
    J,
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


def printed(answer: list[Any], fingerprint: str) -> list[Any]:
    """Return the answer with a claim that carries a fingerprint."""
    words, now, [row], specs = answer
    return [words, now, [[*row, fingerprint]], specs]


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
    Case("a time as far ahead as may be", BASE, told(nominal=MOST), won(MOST), by_time(MOST, watermark=MOST)),
    Case("a time farther ahead", BASE, told(nominal=MOST + 1), Refused(f"TOOEARLY {NOW}")),
    Case("a time at the watermark", BASE, told(nominal=-100), won(-100), by_time(-100)),
    Case("a time before the watermark", BASE, told(nominal=-101), won(-101), by_time(-101)),
    Case(
        "a time at the horizon",
        merged(BASE, of_job(horizon=at(-101))),
        told(nominal=-101),
        refused("pruned"),
    ),
    Case(
        "a time after the horizon",
        merged(BASE, of_job(horizon=at(-102))),
        told(nominal=-101),
        won(-101),
        merged(by_time(-101), of_job(horizon=at(-102))),
    ),
    Case(
        "a time, where one before it is owed",
        merged(BASE, of_job(next_due=at(-6))),
        told(nominal=-5),
        won(-5),
        merged(by_time(-5), of_job(next_due=at(-6))),
    ),
    Case(
        "a time that is owed",
        merged(BASE, of_job(next_due=at(-5))),
        told(nominal=-5),
        won(-5),
        merged(by_time(-5), of_job(next_due=at(-5))),
    ),
    Case(
        "a time, where one after it is owed",
        merged(BASE, of_job(next_due=at(-4))),
        told(nominal=-5),
        won(-5),
        merged(by_time(-5, watermark=-5), of_job(next_due=at(-4))),
    ),
    Case(
        "a time of before, when another program kept it",
        merged(BASE, of_job(manual=None), eras((-200, None), (-90, "each day"))),
        told(nominal=-90),
        won(-90),
        merged(by_time(-90), of_job(manual=None), eras((-200, None), (-90, "each day"))),
    ),
    Case(
        "a time of the job's own trigger",
        merged(BASE, eras((-200, None), (-90, "each day"))),
        told(nominal=-89),
        NOTHING,
    ),
    Case(
        "a time of before its own trigger",
        merged(BASE, eras((-90, "each day"), (-50, None))),
        told(nominal=-95),
        NOTHING,
    ),
    Case(
        "a time of after its own trigger",
        merged(BASE, eras((-90, "each day"), (-50, None))),
        told(nominal=-49),
        won(-49),
        merged(by_time(-49, watermark=-49), eras((-90, "each day"), (-50, None))),
    ),
    Case(
        "a time of before it was defined",
        merged(BASE, eras((-3, None))),
        told(nominal=-5),
        won(-5),
        merged(by_time(-5, watermark=-5), eras((-3, None))),
    ),
    Case("a time of a paused job", merged(BASE, of_job(paused_at=at(-9))), told(nominal=-5), NOTHING),
    Case(
        "a time that waits",
        waits(origin="schedule", nominal=at(-5)),
        told(nominal=-5),
        again(origin="schedule", nominal=at(-5)),
        begun(1, origin="schedule", nominal=at(-5)),
    ),
    Case(
        "a time that waits, of a paused job",
        merged(waits(origin="schedule", nominal=at(-5)), of_job(paused_at=at(-9))),
        told(nominal=-5),
        again(origin="schedule", nominal=at(-5)),
        merged(begun(1, origin="schedule", nominal=at(-5)), of_job(paused_at=at(-9))),
    ),
    Case("a time that runs", merged(BASE, running(1)), told(nominal=-5), NOTHING),
    Case("a time that is over, also for long", merged(BASE, OLD), told(nominal=-5), NOTHING),
    Case("a key", BASE, told(), BY_KEY, NEW_KEY),
    Case(
        "a key of a paused job",
        merged(BASE, of_job(paused_at=at(-9))),
        told(),
        BY_KEY,
        merged(NEW_KEY, of_job(paused_at=at(-9))),
    ),
    Case(
        "a key of a job with a trigger",
        merged(BASE, eras((-200, "each day"))),
        told(),
        BY_KEY,
        merged(NEW_KEY, eras((-200, "each day"))),
    ),
    Case(
        "a key of a job with a horizon",
        merged(BASE, of_job(horizon=at(-9))),
        told(),
        BY_KEY,
        merged(NEW_KEY, of_job(horizon=at(-9))),
    ),
    Case("a key that waits", waits(), told(), again(), begun(1)),
    Case(
        "a key that waits for later is due now",
        waits(due=at(9)),
        told(),
        claim(1, due=at(0), payload="p"),
        begun(1, due=at(0)),
    ),
    Case("a key that runs", merged(BASE, running(1)), told(), NOTHING),
    Case("a key that is over", merged(BASE, final(1, finished=at(-1000))), told(), NOTHING),
    Case("a key that was over so long ago that it counts as pruned", merged(BASE, OLD), told(), BY_KEY, NEW_KEY),
    Case("no such job", BASE, told(name="none"), refused("unknown")),
    Case("a retired job", merged(BASE, of_job(retired_at=at(-9))), told(), refused("unknown")),
    Case("a session that is over", merged(BASE, session(until=0)), told(), Refused("LEASELOST")),
    # What tells one caller's arguments from another's.
    Case(
        "a new key with a fingerprint",
        BASE,
        told(fingerprint="new"),
        printed(BY_KEY, "new"),
        merged(NEW_KEY, row(2, fingerprint="new")),
    ),
    Case(
        "a key that waits, and none has begun it: the fingerprint is the caller's",
        merged(waits(), PRINTED),
        told(fingerprint="new"),
        printed(again(), "new"),
        merged(begun(1), row(1, fingerprint="new")),
    ),
    Case("a key that waits, and the caller has none", merged(waits(), PRINTED), told(), again(), begun(1)),
    Case(
        "a key that was begun keeps its own",
        merged(waits(attempt="1"), PRINTED),
        told(fingerprint="new"),
        printed(again(attempt=2), "old"),
        merged(begun(1, attempt="2"), PRINTED),
    ),
    Case(
        "a key that was begun without one",
        waits(attempt="1"),
        told(fingerprint="new"),
        printed(again(attempt=2), "new"),
        merged(begun(1, attempt="2"), row(1, fingerprint="new")),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_one_caller_gets_what_is_named(case: Case, place: Place) -> None:
    check(place, "acquire", case)


def test_a_time_of_a_job_with_a_trigger_moves_no_watermark(place: Place) -> None:
    there = merged(BASE, of_job(manual=None))
    check(place, "acquire", Case("", there, told(nominal=-5), won(-5), merged(by_time(-5), of_job(manual=None))))
