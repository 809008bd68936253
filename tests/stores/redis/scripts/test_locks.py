"""A place of a lock: what stands there once it is granted and once it is free."""

from hashlib import sha1
from typing import Any

import pytest

from cronsensus.stores.redis.redis_codec import pack
from tests.stores.redis.scripts.by_hand import (
    Case,
    Place,
    Scores,
    State,
    at,
    by_name,
    check,
    merged,
    meta,
    session,
)


def place_of(place: int, name: str = "lock") -> str:
    return f"{name}\0{place:06d}"


def held(place: int = 0, name: str = "lock", until: int = 9, session: str | None = None, **fields: str | None) -> State:
    row = {"holder": "me", "token": "7", "acquired": at(-5), "until": at(until), "most": "1", "session": session}
    entry = place_of(place, name)
    whole: State = {f"lock:{place}:{name}": {**row, **fields}, "locks": Scores({entry: 0})}
    if session:
        whole[f"locks:{session}"] = {entry}
    else:
        whole["leases"] = Scores({entry: at(until)})
    return merged(whole)


def granted(place: int = 0, session: str | None = None, most: int = 1, **fields: str) -> State:
    """Return a place that is granted now."""
    new = {"holder": "you", "token": at(0), "acquired": at(0), "most": str(most), **fields}
    return merged(held(place, until=50, session=session, **new), {"meta": {"token": at(0)}})


def told(limit: int = 1, session: str | None = None) -> tuple[Any, ...]:
    return "lock", "you", 50, session, limit


IDENTITY = sha1(at(0).encode() + pack(told()), usedforsecurity=False).hexdigest()
BASE = merged(meta(), session())
DEAD = merged(meta(), session(until=0))
YES = [0, at(0)]
GRANTS = [
    Case("nobody has it", BASE, told(), YES, merged(BASE, granted())),
    Case(
        "nothing is there",
        {},
        told(),
        YES,
        merged(
            granted(),
            {"meta": {"schema": "5", "born": at(0), "identity": IDENTITY}},
        ),
    ),
    Case(
        "its session is over",
        merged(DEAD, held(session="s1")),
        told(),
        YES,
        merged(DEAD, granted()),
    ),
    Case(
        "its time is over, and now it is a session's",
        merged(BASE, held(until=0)),
        told(session="s1"),
        YES,
        merged(BASE, granted(session="s1")),
    ),
    Case(
        "one of two, where what the other one said of it is lost",
        merged(BASE, held(most=None)),
        told(2),
        [1, at(0)],
        merged(BASE, held(most=None), granted(1, most=2)),
    ),
    Case(
        "its index has lost what a session held",
        merged(BASE, held(session="s1"), {"locks": None}),
        told(),
        YES,
        merged(BASE, granted()),
    ),
]


@pytest.mark.parametrize("case", GRANTS, ids=by_name)
def test_a_place_is_granted_if_it_is_free(case: Case, place: Place) -> None:
    check(place, "lock", case)


def grant(**how: Any) -> tuple[Any, ...]:
    values = {"name": "lock", "place": 0, "token": "7", "holder": "me", "session": False, **how}
    return tuple(values.values())


HELD = merged(BASE, held())
OWNED = merged(BASE, held(session="s1"))


OTHERS = merged(held(1), held(name="other"), held(1, name="other", session="s1"))
FREES = [
    Case("of no session", merged(HELD, OTHERS), grant(), True, merged(BASE, OTHERS)),
    Case("of a session", merged(OWNED, OTHERS), grant(session="s1"), True, merged(BASE, OTHERS)),
]


@pytest.mark.parametrize("case", FREES, ids=by_name)
def test_a_place_is_freed(case: Case, place: Place) -> None:
    check(place, "unlock", case)
