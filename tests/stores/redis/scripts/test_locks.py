"""A place of a lock: who gets it, and who may extend it or give it back."""

from hashlib import sha1
from typing import Any

import pytest

from cronsensus.stores.redis.redis_codec import pack
from tests.stores.redis.scripts.by_hand import (
    Case,
    Place,
    Refused,
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
    Case("for a session", BASE, told(session="s1"), YES, merged(BASE, granted(session="s1"))),
    Case("for a session that is over", DEAD, told(session="s1"), Refused("LEASELOST")),
    Case("for a session that is not there", BASE, told(session="s2"), Refused("LEASELOST")),
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
    Case("it is held", merged(BASE, held(until=1)), told(), False),
    Case("it is held by a session that lives", merged(BASE, held(session="s1")), told(), False),
    Case("its time is over", merged(BASE, held(until=0)), told(), YES, merged(BASE, granted())),
    Case(
        "its time is over, and it was a session's",
        merged(BASE, held(until=0, session="s1")),
        told(),
        YES,
        merged(BASE, granted()),
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
        "a second place",
        merged(BASE, held(most="2")),
        told(2),
        [1, at(0)],
        merged(BASE, held(most="2"), granted(1, most=2)),
    ),
    Case(
        "the first place that is free",
        merged(BASE, held(1, most="3")),
        told(3),
        YES,
        merged(BASE, held(1, most="3"), granted(0, most=3)),
    ),
    Case("one of two, where the other one wants to be alone", merged(BASE, held(most="1")), told(2), False),
    Case("alone, where there is another one", merged(BASE, held(most="2")), told(1), False),
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
    Case(
        "a lock of another name is held",
        merged(BASE, held(name="lock2")),
        told(),
        YES,
        merged(BASE, held(name="lock2"), granted()),
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
NOT_MINE: list[tuple[str, State, tuple[Any, ...]]] = [
    ("another token", HELD, grant(token="8")),
    ("another holder", HELD, grant(holder="you")),
    ("for a session, and it has none", HELD, grant(session="s1")),
    ("for no session, and it has one", OWNED, grant()),
    ("another session", OWNED, grant(session="s2")),
    ("another place", HELD, grant(place=1)),
    ("another lock", HELD, grant(name="other")),
    ("its time is over", merged(BASE, held(until=0)), grant()),
    ("its session is over", merged(DEAD, held(session="s1")), grant(session="s1")),
    ("none has it", BASE, grant()),
]


@pytest.mark.parametrize(("_", "there", "of"), NOT_MINE, ids=[name for name, *_ in NOT_MINE])
@pytest.mark.parametrize("verb", ["extend", "unlock"])
def test_a_place_is_kept_and_freed_only_under_its_grant(
    _: str, there: State, of: tuple[Any, ...], verb: str, place: Place
) -> None:
    check(place, verb, Case("", there, (*of, 60) if verb == "extend" else of, False))


EXTENDS = [
    Case("of no session", HELD, (*grant(), 60), True, merged(BASE, held(until=60))),
    Case("of a session", OWNED, (*grant(session="s1"), 60), True, merged(BASE, held(until=60, session="s1"))),
]
OTHERS = merged(held(1), held(name="other"), held(1, name="other", session="s1"))
FREES = [
    Case("of no session", merged(HELD, OTHERS), grant(), True, merged(BASE, OTHERS)),
    Case("of a session", merged(OWNED, OTHERS), grant(session="s1"), True, merged(BASE, OTHERS)),
]


@pytest.mark.parametrize("case", EXTENDS, ids=by_name)
def test_a_place_is_extended(case: Case, place: Place) -> None:
    check(place, "extend", case)


@pytest.mark.parametrize("case", FREES, ids=by_name)
def test_a_place_is_freed(case: Case, place: Place) -> None:
    check(place, "unlock", case)
