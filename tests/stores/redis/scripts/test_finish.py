"""What an attempt leaves that ended by its outcome or was given back."""

import json
from typing import Any

import pytest

from cronsensus.timing.instants import LATEST_MICROS
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
    done,
    final,
    job,
    merged,
    meta,
    occurrence_id,
    pending,
    row,
    running,
    said,
    session,
    world,
)

ONE = occurrence_id(1)
AROUND = merged(meta(), job(), session())
RUNS = merged(AROUND, running(1, origin="manual"))
ENDED = merged(AROUND, final(1, started=at(-9), end="succeeded"))


def outcome(state: str = "succeeded", **how: Any) -> tuple[Any, ...]:
    """Return what is told of one attempt."""
    follows = (
        ["again", how.pop("wait", 0), True, None] if state == "pending" else ["final", state, how.pop("result", None)]
    )
    values = {
        "id": ONE, "token": "7", "session": None, "ran": 0, "record": "retry" if state == "pending" else state,
        "reason": None, "error": None, "follows": follows, **how,
    }  # fmt: skip
    return said(outcomes=[list(values.values())])


def attempt(end: str, reason: str | None = None, problem: str | None = None, **how: Any) -> State:
    """Return an earlier run, as a list of such is kept."""
    run = {
        "attempt": "1", "token": "7", "session": "s1", "node": "node", "started": at(-5), "finished": at(0), "end": end,
        "reason": reason, "problem": problem, **how,
    }  # fmt: skip
    return {f"attempts:{ONE}": [json.dumps(list(run.values()), separators=(",", ":"))]}


def over(state: str, **fields: str) -> State:
    """Return the occurrence when its attempt ended for good."""
    return merged(AROUND, final(1, origin="manual", state=state, started=at(-5), finished=at(0), end=state, **fields))


def back(due: int, **fields: str | None) -> State:
    """Return the occurrence when it waits again."""
    return world(AROUND, pending(1, origin="manual", due=at(due), attempt="1", token="7"), row(1, **fields))


def parked(on: str, **fields: str) -> State:
    """Return the occurrence when it is parked."""
    return merged(back(LATEST_MICROS - NOW, attempt="0", parked=on, **fields), {"parked": Scores({ONE: 1})})


YES = [[True, "succeeded"]]
RETRY = attempt("retry", "why", "e")
ENDS = [
    Case("it succeeds", RUNS, outcome(result="r"), YES, over("succeeded", result="r")),
    Case(
        "it is tried again later, as a new one",
        merged(RUNS, row(1, fingerprint="print", progress="1.0 2.0")),
        outcome("pending", reason="why", error="e", wait=60),
        [[True, "pending"]],
        merged(back(60, failures="1", reason="why", error="e"), RETRY),
    ),
    Case(
        "it is parked with its list",
        merged(RUNS, row(1, crashes="2", failures="1", note="there", error="e")),
        outcome(record="snoozed", follows=["parked", "items", "3"]),
        [[True, "pending"]],
        merged(parked("items", listed="3"), attempt("snoozed")),
    ),
    Case(
        "what is kept of it is broken", merged(AROUND, {f"occurrence:{ONE}": ["a list"]}), outcome(), [[False, False]]
    ),
    Case(
        "its earlier runs cannot be read",
        merged(ENDED, {f"attempts:{ONE}": {"a": "hash"}}),
        outcome(token="8"),
        [[False, False]],
    ),
]


@pytest.mark.parametrize("case", ENDS, ids=by_name)
def test_an_outcome_leaves_no_more_and_no_less(case: Case, place: Place) -> None:
    check(place, "step", case._replace(answers=done(settled=case.answers)))


def test_what_cannot_be_put_back_is_not_said_to_be(place: Place) -> None:
    place.put(merged(RUNS, row(1, level="high")))
    assert place.run("step", *outcome("pending")) == done(settled=([False, False],))


# --- given back -------------------------------------------------------------------------------------------------------


def claim(why: str | bool = False, *, crashed: bool = False) -> Any:
    return said(back=[[ONE, "7", None, why, crashed]])


def gone(state: str, **fields: str) -> State:
    return merged(AROUND, final(1, origin="manual", state=state, started=at(-5), finished=at(0), **fields))


BACK = [
    Case("not begun", RUNS, claim(), [True], merged(back(-10, attempt="0"), attempt("released"))),
    Case(
        "not begun, and asked to stop",
        merged(RUNS, row(1, cancel="stop", attempt="3")),
        claim(),
        [True],
        merged(
            gone("cancelled", attempt="2", cancel="stop", reason="stop"),
            attempt("released", attempt="3"),
        ),
    ),
    Case(
        "crashed as often as it may",
        merged(RUNS, row(1, crashes="2")),
        claim("cut", crashed=True),
        [True],
        merged(gone("failed", reason="crashed: cut", crashes="3"), attempt("crashed", "crashed: cut")),
    ),
]


@pytest.mark.parametrize("case", BACK, ids=by_name)
def test_a_claim_that_goes_back_leaves_no_more_and_no_less(case: Case, place: Place) -> None:
    check(place, "step", case._replace(answers=done(back=case.answers)))


def test_whoever_holds_nothing_more_is_holding_no_more(place: Place) -> None:
    place.put(merged(RUNS, running(2)))
    place.run("step", *outcome())
    assert place.stands()["holding s1"] == "1"
    place.run("step", *outcome(id=occurrence_id(2)))
    assert not [entry for entry in place.stands() if entry.startswith(("holding", "holds", f"job:{J}:running"))]
