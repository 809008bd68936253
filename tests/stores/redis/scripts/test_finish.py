"""How attempts end: by their outcome, given back, or noted meanwhile; each only under its token."""

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


YES, NO = [[True, "succeeded"]], [[False, "running"]]
RETRY = attempt("retry", "why", "e")
ENDS = [
    Case("it succeeds", RUNS, outcome(result="r"), YES, over("succeeded", result="r")),
    Case("under its session", RUNS, outcome(session="s1"), YES, over("succeeded")),
    Case(
        "it fails",
        RUNS,
        outcome("failed", reason="why", error="e"),
        [[True, "failed"]],
        over("failed", reason="why", error="e"),
    ),
    Case(
        "it is tried again later, as a new one",
        merged(RUNS, row(1, fingerprint="print", progress="1.0 2.0")),
        outcome("pending", reason="why", error="e", wait=60),
        [[True, "pending"]],
        merged(back(60, failures="1", reason="why", error="e"), RETRY),
    ),
    Case(
        "it looks again, keeps its crashes and loses what the look before noted",
        merged(RUNS, row(1, crashes="2", failures="1", note="there", fingerprint="print", expires=at(9))),
        outcome(record="snoozed", reason="why", follows=["again", 60, False, None]),
        [[True, "pending"]],
        merged(back(60, attempt="0", crashes="2", failures="1", reason="why"), attempt("snoozed", "why")),
    ),
    Case(
        "it looks again, and leaves a note and no record",
        merged(RUNS, row(1, crashes="2", failures="1", note="there")),
        outcome(record=False, follows=["again", 60, False, "here"]),
        [[True, "pending"]],
        back(60, attempt="0", crashes="2", note="here"),
    ),
    Case(
        "it is parked with its list",
        merged(RUNS, row(1, crashes="2", failures="1", note="there", error="e")),
        outcome(record="snoozed", follows=["parked", "items", "3"]),
        [[True, "pending"]],
        merged(parked("items", listed="3"), attempt("snoozed")),
    ),
    Case(
        "it is parked, and nothing ran",
        RUNS,
        outcome(record=False, reason="why", follows=["parked", "a file", None]),
        [[True, "pending"]],
        parked("a file", reason="why"),
    ),
    Case(
        "it was asked to stop, and would be parked",
        merged(RUNS, row(1, cancel="stop")),
        outcome(record=False, follows=["parked", "a file", None]),
        [[True, "cancelled"]],
        over("cancelled", cancel="stop", reason="stop"),
    ),
    Case(
        "it had waited for a slot",
        merged(RUNS, row(1, reserved="1", started=at(-9))),
        outcome(ran=5),
        YES,
        over("succeeded"),
    ),
    Case(
        "it failed before",
        merged(RUNS, row(1, failures="2")),
        outcome("pending", reason="why", error="e"),
        [[True, "pending"]],
        merged(back(0, failures="3", reason="why", error="e"), RETRY),
    ),
    Case(
        "it was asked to stop, and would be tried again",
        merged(RUNS, row(1, cancel="stop")),
        outcome("pending", reason="why", error="e"),
        [[True, "cancelled"]],
        over("cancelled", cancel="stop", reason="stop", error="e"),
    ),
    Case(
        "it was asked to stop, and succeeds",
        merged(RUNS, row(1, cancel="stop")),
        outcome(),
        YES,
        over("succeeded", cancel="stop"),
    ),
    Case("another token", RUNS, outcome(token="8"), NO),
    Case("another session", RUNS, outcome(session="s2"), NO),
    Case("it waits", world(AROUND, pending(1, token="7")), outcome(), [[False, "pending"]]),
    Case("it is gone", AROUND, outcome(), [[False, False]]),
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
AGAIN = [
    Case("said again", ENDED, outcome("failed"), YES),
    Case("said again by its session", ENDED, outcome(session="s1"), YES),
    Case("said by another session", ENDED, outcome(session="s2"), [[False, "succeeded"]]),
    Case("said of another token", ENDED, outcome(token="8"), [[False, "succeeded"]]),
    Case("it ended without an outcome", merged(ENDED, row(1, end=None)), outcome(), [[False, "succeeded"]]),
    Case("a retry said again", merged(back(0), RETRY), outcome(), [[True, "pending"]]),
    Case("a retry said again by its session", merged(back(0), RETRY), outcome(session="s1"), [[True, "pending"]]),
    Case("a retry said by another session", merged(back(0), RETRY), outcome(session="s2"), [[False, "pending"]]),
    Case("a retry said of another token", merged(back(0), RETRY), outcome(token="8"), [[False, "pending"]]),
    Case("a run that crashed", merged(back(0), attempt("crashed")), outcome(), [[False, "pending"]]),
    Case(
        "a retry of a run that was begun again",
        merged(AROUND, running(1, token="9", attempt="2"), RETRY),
        outcome(),
        [[True, "pending"]],
    ),
]


@pytest.mark.parametrize("case", [*ENDS, *AGAIN], ids=by_name)
def test_an_outcome_lands_once_and_only_under_its_token(case: Case, place: Place) -> None:
    check(place, "step", case._replace(answers=done(settled=case.answers)))


def test_what_cannot_be_put_back_is_not_said_to_be(place: Place) -> None:
    place.put(merged(RUNS, row(1, level="high")))
    assert place.run("step", *outcome("pending")) == done(settled=([False, False],))


# --- given back -------------------------------------------------------------------------------------------------------


def claim(why: str | bool = False, *, crashed: bool = False, token: str = "7", session: str | None = None) -> Any:
    return said(back=[[ONE, token, session, why, crashed]])


CRASHED = attempt("crashed", "crashed: cut")
CUT = attempt("released", "cut")


def taken_back(reason: str, crashes: int, due: int = -10) -> State:
    return back(due, reason=reason, crashes=str(crashes))


def gone_wrong(crashes: int, reason: str = "crashed: cut", state: str = "failed", **fields: str) -> State:
    return merged(
        AROUND,
        final(
            1,
            origin="manual",
            state=state,
            started=at(-5),
            finished=at(0),
            reason=reason,
            crashes=str(crashes),
            **fields,
        ),
    )


FAILS = job(on_crash="fail")
FAR = 1_000_000
BACK = [
    Case("not begun", RUNS, claim(), [True], merged(back(-10, attempt="0"), attempt("released"))),
    Case(
        "not begun, of a session",
        RUNS,
        claim(session="s1"),
        [True],
        merged(back(-10, attempt="0"), attempt("released")),
    ),
    Case("not begun, of another session", RUNS, claim(session="s2"), [False]),
    Case("not begun, under another token", RUNS, claim(token="8"), [False]),
    Case("begun, under another token", RUNS, claim("cut", token="8"), [False]),
    Case(
        "not begun, and asked to stop",
        merged(RUNS, row(1, cancel="stop", attempt="3")),
        claim(),
        [True],
        merged(
            AROUND,
            final(
                1,
                origin="manual",
                state="cancelled",
                started=at(-5),
                finished=at(0),
                attempt="2",
                cancel="stop",
                reason="stop",
            ),
            attempt("released", attempt="3"),
        ),
    ),
    Case(
        "claimed ahead of its time it is due then",
        merged(RUNS, row(1, due=at(FAR - 1))),
        claim(),
        [True],
        merged(back(FAR - 1, attempt="0"), attempt("released")),
    ),
    Case(
        "where the clock was set back it is due soon",
        merged(RUNS, row(1, due=at(9 * FAR))),
        claim(),
        [True],
        merged(back(FAR, attempt="0"), attempt("released")),
    ),
    Case("begun, and cut off in order", RUNS, claim("cut"), [True], merged(taken_back("cut", 0), CUT)),
    Case("crashed", RUNS, claim("cut", crashed=True), [True], merged(taken_back("crashed: cut", 1), CRASHED)),
    Case(
        "crashed as often as it may but once",
        merged(RUNS, row(1, crashes="1")),
        claim("cut", crashed=True),
        [True],
        merged(taken_back("crashed: cut", 2), CRASHED),
    ),
    Case(
        "crashed as often as it may",
        merged(RUNS, row(1, crashes="2")),
        claim("cut", crashed=True),
        [True],
        merged(gone_wrong(3), CRASHED),
    ),
    Case(
        "cut off in order after it crashed as often as it may",
        merged(RUNS, row(1, crashes="3")),
        claim("cut"),
        [True],
        merged(taken_back("cut", 3), CUT),
    ),
    Case(
        "cut off, and not to be begun twice",
        merged(RUNS, FAILS),
        claim("cut"),
        [True],
        merged(gone_wrong(0), FAILS, CUT),
    ),
    Case(
        "crashed, and not to be begun twice",
        merged(RUNS, FAILS),
        claim("cut", crashed=True),
        [True],
        merged(gone_wrong(1), FAILS, CRASHED),
    ),
    Case(
        "crashed, and asked to stop",
        merged(RUNS, FAILS, row(1, cancel="stop")),
        claim("cut", crashed=True),
        [True],
        merged(gone_wrong(1, "stop", "cancelled", cancel="stop"), FAILS, CRASHED),
    ),
]


@pytest.mark.parametrize("case", BACK, ids=by_name)
def test_a_claim_goes_back_only_under_its_token(case: Case, place: Place) -> None:
    check(place, "step", case._replace(answers=done(back=case.answers)))


# --- noted ------------------------------------------------------------------------------------------------------------


def note(token: str = "7", progress: str | None = "1.0 2.0", session: str | None = None) -> Any:
    return said(notes=[[ONE, token, progress, ["one", "two"], session]])


LOG: State = {f"log:{ONE}": ["1 one", "1 two"]}
NOTES = [
    Case("its progress and lines", RUNS, note(), [True], merged(RUNS, row(1, progress="1.0 2.0"), LOG)),
    Case("its lines", RUNS, note(progress=None), [True], merged(RUNS, LOG)),
    Case("under its session", RUNS, note(session="s1"), [True], merged(RUNS, row(1, progress="1.0 2.0"), LOG)),
    Case("another session", RUNS, note(session="s2"), [False]),
    Case("another token", RUNS, note(token="8"), [False]),
    Case("it is over", ENDED, note(), [False]),
]


@pytest.mark.parametrize("case", NOTES, ids=by_name)
def test_a_note_lands_only_under_its_token(case: Case, place: Place) -> None:
    check(place, "step", case._replace(answers=done(noted=case.answers)))


def test_whoever_holds_nothing_more_is_holding_no_more(place: Place) -> None:
    place.put(merged(RUNS, running(2)))
    place.run("step", *outcome())
    assert place.stands()["holding s1"] == "1"
    place.run("step", *outcome(id=occurrence_id(2)))
    assert not [entry for entry in place.stands() if entry.startswith(("holding", "holds", f"job:{J}:running"))]
