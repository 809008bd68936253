"""Sessions: how they begin, are kept and end, who takes turns, and what becomes of what they hold."""

import json
from hashlib import sha1

import pytest

from cronsensus.stores.redis.redis_codec import pack
from tests.stores.redis.scripts.by_hand import (
    Case,
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
    pending,
    renewed,
    running,
    session,
    world,
)

# --- open -----------------------------------------------------------------------------------------------------------

OPENED = ("s1", "node", "spec of s1", "r1", 500)


def opened(number: str = "1", release: str | None = "r1") -> State:
    whole: State = merged(session(until=500), {"functions:s1": None})
    whole["session:s1"] |= {"number": number, "started": at(0), "renewed": at(0)}
    del whole["session:s1"]["functions"]
    whole["sessions"] = Scores(s1=number)
    if release:
        whole["session:s1"]["release"] = release
        return whole | {"turning": {"s1"}, "releases": {release: at(0)}}
    return whole | {"guests": {"s1"}}


def identity(*told: object) -> str:
    return sha1(at(0).encode() + pack(told), usedforsecurity=False).hexdigest()


FIRST = {"schema": "5", "session": "1", "newest": "s1", "born": at(0)}
KNOWN = merged(meta(session="4"), session("s2"), {"turning": {"s2"}, "releases": {"r0": "3"}})
OPENS = [
    Case("the first of all", {}, OPENED, at(0), merged(opened(), {"meta": {**FIRST, "identity": identity(*OPENED)}})),
    Case(
        "one more",
        KNOWN,
        OPENED,
        at(0),
        merged(
            KNOWN,
            opened("5"),
            {"turning": {"s1", "s2"}, "meta": {"session": "5", "newest": "s1"}},
        ),
    ),
]


@pytest.mark.parametrize("case", OPENS, ids=by_name)
def test_a_session_begins_once(case: Case, place: Place) -> None:
    check(place, "open_session", case)


# --- renew ----------------------------------------------------------------------------------------------------------

ALIVE = merged(meta(), session())
RUNS = merged(ALIVE, job(), running(1), running(2, cancel="stop", token="8"))
TOLD = ("s1", 500, 900)


def beaten(beats: int, until: int) -> State:
    return merged(renewed(until=until), {"session:s1": {"beats": str(beats)}})


def renewal(length: int, *, beats: int = 1, drain: bool = False, said: str = "this one") -> list[object]:
    return [at(0), length, [], drain, [], beats, said]


OTHERS = merged(final(3), running(4, session="s2"), {"holding": None})
RENEWS = [
    Case(
        "what is over or another's is taken out of what it holds",
        merged(
            ALIVE, OTHERS, {"holds:s1": Scores({occurrence_id(3): 3, occurrence_id(4): 4}), "holding": Scores(s1=1)}
        ),
        TOLD,
        renewal(900),
        merged(ALIVE, OTHERS, beaten(1, 900)),
    ),
    Case(
        "the space has no identity",
        merged(ALIVE, {"meta": {"identity": None}}),
        TOLD,
        renewal(900, said=""),
        merged(ALIVE, {"meta": {"identity": None}}, beaten(1, 900)),
    ),
]


@pytest.mark.parametrize("case", RENEWS, ids=by_name)
def test_a_session_is_renewed_while_it_lives(case: Case, place: Place) -> None:
    check(place, "renew", case)


# --- end ------------------------------------------------------------------------------------------------------------


def ended(name: str, how: str, why: str) -> State:
    """Return what is left of a session."""
    left = session(name, ended=at(0), ended_as=how, ended_why=why)
    return {f"session:{name}": left[f"session:{name}"], "sessions": left["sessions"], "ended": Scores({name: at(0)})}


def attempt(n: int, end: str, why: str, session: str = "s1") -> State:
    run = ["1", "7", session, "node", at(-5), at(0), end, why, None]
    return {f"attempts:{occurrence_id(n)}": [json.dumps(run, separators=(",", ":"))]}


def back(n: int, crashes: int, why: str) -> State:
    return pending(n, attempt="1", token="7", crashes=str(crashes), reason=why)


def taken(n: int, why: str, session: str = "s1", became: str = "pending", job: str = "job") -> list[object]:
    return [occurrence_id(n), job, f"k{n}", "7", session, became, why]


LOCK = "lock\x00000000"
HOLDS = merged(
    meta(),
    job(),
    session(),
    {"turning": {"s1", "s2"}, "guests": {"s1", "s2"}, "locks:s1": {LOCK}, "locks": Scores({LOCK: 0})},
    {"lock:0:lock": {"holder": "me", "token": "3", "until": at(9), "session": "s1"}},
    running(1),
)
FREE: State = {"turning": {"s2"}, "guests": {"s2"}}
IN_ORDER = ended("s1", "closed", "closed in order")
DENIED = merged(job(), final(2), running(3, session="s2"), {"holding": None})
STRAY = merged(
    meta(), session(), DENIED, {"holds:s1": Scores({occurrence_id(n): n for n in (2, 3)}), "holding": Scores(s1=1)}
)
BROKEN = merged(meta(), session(), running(1, K))
CLOSES = [
    Case(
        "what it holds goes on elsewhere",
        HOLDS,
        ("s1",),
        [taken(1, "closed in order")],
        world(meta(), job(), FREE, IN_ORDER, back(1, 0, "closed in order"), attempt(1, "released", "closed in order")),
    ),
    Case("what its row denies is left as it is", STRAY, ("s1",), [], merged(meta(), DENIED, IN_ORDER)),
]


@pytest.mark.parametrize("case", CLOSES, ids=by_name)
def test_a_session_that_is_closed_holds_nothing_more(case: Case, place: Place) -> None:
    check(place, "close_session", case)


def test_a_session_ends_also_if_a_run_of_it_cannot_be_taken_over(place: Place) -> None:
    place.put(BROKEN)
    assert place.run("reclaim", ["s1"]) == [[], False]
    stands = place.stands()
    assert not [entry for entry in stands if entry.startswith(("holds:", "holding", "open"))]
    assert stands["session:s1 ended_as"] == "dead"


GONE = "crashed: process gone"


def dead(name: str, why: str = "lease ran out") -> State:
    return ended(name, "dead", why)


ONE_GONE = world(meta(), job(), dead("s1", "process gone"), back(1, 1, GONE), attempt(1, "crashed", GONE))
ONE = merged(meta(), job(), session("s1", until=9), running(1))
RECLAIMS = [
    Case("one that is named often ends once", ONE, (["s1"] * 5,), [[taken(1, GONE)], False], ONE_GONE),
]


@pytest.mark.parametrize("case", RECLAIMS, ids=by_name)
def test_what_dead_sessions_held_goes_on_elsewhere(case: Case, place: Place) -> None:
    check(place, "reclaim", case)


def test_of_dead_sessions_the_oldest_ends_first_whatever_its_name(place: Place) -> None:
    young, old = session("s1", until=-1, number="9"), session("s2", until=-1, number="8")
    place.put(merged(meta(), job(), young, old, running(1), running(2, session="s2")))
    [claims, _] = place.run("reclaim", [])
    assert [one[4] for one in claims] == ["s2", "s1"]


@pytest.mark.parametrize(
    ("enough", "sessions", "taken", "more"), [(2, 3, 2, True), (3, 3, 3, False), (4, 3, 3, False), (1, 1, 1, False)]
)
def test_a_step_ends_no_further_session_when_it_took_enough(
    enough: int, sessions: int, taken: int, more: bool, place: Place
) -> None:
    names = [f"s{n + 1}" for n in range(sessions)]
    parts = [merged(session(name, until=-1), running(n + 1, session=name)) for n, name in enumerate(names)]
    place.put(merged(meta(), job(), *parts))
    claims, further = place.run("reclaim", [], smaller={"ENOUGH = 500": f"ENOUGH = {enough}"})
    assert (len(claims), further) == (taken, more)


# --- turns ----------------------------------------------------------------------------------------------------------


def turns(place: Place, state: State) -> set[str]:
    place.put(merged(meta(), state))
    *_, turning, _, _, _, _ = place.run("look", 100, 50, 0, 1, 0, "", False, "", smaller={"FEW = 100": "FEW = 3"})
    assert len(set(turning)) == len(turning)
    return set(turning)


def some(*names: str, until: int = 9, turning: str = "", guests: str = "") -> State:
    return {
        "open": Scores(dict.fromkeys(names, at(until))), "turning": set(turning.split()), "guests": set(guests.split())
    }  # fmt: skip


FOUR = ("s1", "s2", "s3", "s4")
TURNS: list[tuple[str, State, set[str]]] = [
    ("none is open", {}, set()),
    ("few", some("s1", "s2", turning="s1 s2"), {"s1", "s2"}),
    ("few, and one is a guest", some("s1", "s2", turning="s1", guests="s2"), {"s1"}),
    ("few, and one is over", merged(some("s1"), some("s2", until=0)), {"s1"}),
    ("as many as few are", some("s1", "s2", "s3", turning="s1 s2 s3"), {"s1", "s2", "s3"}),
    ("many", some(*FOUR, turning="s1 s2 s3 s4"), set(FOUR)),
    ("many, and guests", some(*FOUR, turning="s1 s2", guests="s3 s4"), {"s1", "s2"}),
    ("many, and one is over", merged(some(*FOUR, turning="s1 s2 s3 s4 s5"), some("s5", until=0)), set(FOUR)),
]


@pytest.mark.parametrize(("_", "state", "expected"), TURNS, ids=[name for name, *_ in TURNS])
def test_the_live_sessions_that_are_no_guests_take_turns(
    _: str, state: State, expected: set[str], place: Place
) -> None:
    assert turns(place, state) == expected


@pytest.mark.parametrize(
    ("open_ones", "known", "told", "expected"),
    [
        ("s1 s2", "2 s2", "", (["s1"], ["s2"])),
        ("s1 s2", "2 s2", "1 s1", (["s1"], ["s2"])),
        ("s1 s2", "2 s2", "2 s2", (["s1", "s2"], False)),
        ("s1 s2", False, "2 s2", (["s1", "s2"], False)),
        ("s1 s2", "1 s1", "2 s2", (["s1"], ["s2"])),  # signs are asked for, and guests are not
        ("s1 s2", "2 s2", "2 s4", (["s1"], ["s2"])),  # a failover lost s4
        ("s1 s2 s3", "2 s2", "2 s2", (["s1", "s3"], False)),  # many
    ],
)
def test_guests_are_told_once(
    open_ones: str, known: str | bool, told: str, expected: tuple[list[str], object], place: Place
) -> None:
    place.put(merged(meta(session="2", newest="s2"), some(*open_ones.split(), turning="s1 s3", guests="s2")))
    answer = place.run("look", 100, 50, 0, 1, 0, "s1", known, told, smaller={"FEW = 100": "FEW = 3"})
    turning, guests = answer[-5:-3]
    assert (sorted(turning), guests) == expected


def test_a_session_that_holds_something_is_shown_with_what_is_left_of_its_lease(place: Place) -> None:
    place.put(merged(meta(), job(), session(until=9), running(1), {"holding": Scores(s1=1, s2=2)}))
    *_, holders, _, _, _, _, _ = place.run("look", 100, 50, 0, 1, 0, "", False, "")
    assert holders == [["spec of s1", at(-500), False, False, False, False, False, "9", 1], [*[False] * 8, 0]]
