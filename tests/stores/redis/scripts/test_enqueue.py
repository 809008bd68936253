"""What is enqueued: its arguments, its times, and once for each key."""

from typing import Any

import pytest

from tests.stores.redis.scripts.by_hand import (
    Case,
    J,
    K,
    Place,
    Refused,
    Scores,
    State,
    at,
    by_name,
    check,
    job,
    merged,
    meta,
    occurrence_id,
    pending,
    world,
)

LAST = str(2**53 - 1)
DAMAGED = job(K, "other", retired_at=at(-1))
BASE = merged(meta(occurrence="0"), job(payload="of the job", priority="5", kwargs='{"a":1}'), DAMAGED)


def item(key: str = "k1", **how: Any) -> list[Any]:
    values = {
        "name": "job", "key": key, "own_key": True, "args": None, "kwargs": None, "due": None, "delay": 0,
        "priority": None, "origin": "enqueue", "expires_in": None, **how,
    }  # fmt: skip
    return list(values.values())


def told(*items: list[Any], largest: int = 20) -> tuple[Any, ...]:
    return list(items), largest


def made(n: int = 1, **fields: str) -> State:
    return merged(
        meta(occurrence=str(n)),
        pending(n, **{"created": at(0), "due": at(0), "priority": "5", "payload": "of the job", **fields}),
        {"prunable": Scores({J: at(1000)})},
    )


def new(n: int = 1) -> list[Any]:
    return [occurrence_id(n), True, "pending"]


THERE = world(BASE, meta(occurrence="1"), pending(1))
CASES = [
    Case(
        "as large as may be",
        BASE,
        told(item(args="[2]"), largest=len('[[2],{"a":1}]')),
        [new()],
        world(BASE, made(payload='[[2],{"a":1}]')),
    ),
    Case("too large", BASE, told(item(args="[2]"), largest=12), Refused("TOOLARGE 13 job")),
    Case("never, as good as", BASE, told(item(expires_in=2**53)), [new()], world(BASE, made(expires=LAST))),
    Case(
        "two of one key, and one more",
        BASE,
        told(item("a"), item("a"), item("b")),
        [new(), [occurrence_id(1), False, "pending", "of the job"], new(2)],
        world(BASE, made(1, key="a"), made(2, key="b")),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_what_is_enqueued_is_as_it_was_told(case: Case, place: Place) -> None:
    check(place, "enqueue", case)


def test_a_key_that_was_made_up_is_not_looked_for(place: Place) -> None:
    place.put(THERE)
    assert place.run("enqueue", *told(item(own_key=False))) == [new(2)]
