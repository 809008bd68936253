"""A plan is carried out if all that it rests on stands as it was seen, and otherwise nothing of it is."""

from typing import Any, NamedTuple

import pytest

from tests.stores.redis.scripts.by_hand import (
    Case,
    J,
    K,
    Place,
    Scores,
    State,
    at,
    check,
    done,
    final,
    job,
    merged,
    meta,
    occurrence_id,
    pending,
    running,
    said,
    session,
    world,
)

SEEN = 2
"""Occurrences that were active when the plan was made."""
DEFINITION = f"d:1:{at(-100)}"
BASE = world(
    meta(occurrence="2", range="4"),
    job(next_due=at(-20)),
    {"due": Scores({J: at(-20)}), "prunable": Scores({J: at(2000)})},
    pending(1, origin="manual"),
    running(2, origin="manual", key="taken"),
    session(),
)


def plan(**how: Any) -> list[Any]:
    """Return a plan: three occurrences, of which one is there already, and one verdict."""
    values = {
        "job": J, "name": "job", "revision": "1", "watermark_seen": at(-100), "active_seen": SEEN, "watermark": at(-2),
        "next_due": at(30), "not_before": None, "cancel_previous": False,
        "occurrences": [
            [at(-4), "new", at(-3), None], [at(-6), "taken", at(-6), None], [at(-2), "other", at(-1), at(70)],
        ],
        "verdicts": [[at(-50), "text"]], "definition": DEFINITION, **how,
    }  # fmt: skip
    return list(values.values())


def fired(n: int, **row: str) -> State:
    return pending(n, origin="schedule", created=at(0), payload="", **row)


DONE = world(
    BASE,
    meta(occurrence="4", range="5"),
    job(watermark=at(-2), next_due=at(30)),
    {
        "due": Scores({J: at(30)}),
        "prunable": Scores({J: at(950)}),
        f"job:{J}:ranges": Scores({f"{occurrence_id(5)} {at(0)} text": 5}),
        "decided": Scores({f"{occurrence_id(5)} {J}": 5}),
        f"job:{J}:lasts": Scores({occurrence_id(5): at(-50)}),
    },
    fired(3, key="new", nominal=at(-4), due=at(-3)),
    fired(4, key="other", nominal=at(-2), due=at(-1), expires=at(70)),
)


class Fired(NamedTuple):
    """What stands there, a plan, and what stands there then: if None, the same."""

    name: str
    before: State
    plan: list[Any]
    after: State | None = None


HOLDS = [
    Fired("all is as it was", BASE, plan(), DONE),
    Fired("it does not say which definition it rests on", BASE, plan(definition=""), DONE),
    Fired("its time is now", BASE, plan(not_before=at(0)), DONE),
    Fired(
        "it leaves the watermark where it is, and there is no further time",
        BASE,
        plan(watermark=at(-100), occurrences=[], verdicts=[], next_due=None),
        merged(BASE, {f"job:{J}": {"next_due": None}, "due": None}),
    ),
    Fired(
        "overlap is allowed, so none is counted",
        merged(BASE, job(overlap="allow")),
        plan(active_seen=0, occurrences=[], verdicts=[]),
        merged(BASE, job(overlap="allow", watermark=at(-2), next_due=at(30)), {"due": Scores({J: at(30)})}),
    ),
]
FALLS = [
    Fired("another job has the number", BASE, plan(name="other")),
    Fired("another revision", BASE, plan(revision="2")),
    Fired("another watermark", BASE, plan(watermark_seen=at(-99))),
    Fired("another definition", BASE, plan(definition=f"d:1:{at(-99)}")),
    Fired("a paused job", merged(BASE, job(paused_at=at(-1))), plan()),
    Fired("a retired job", merged(BASE, job(retired_at=at(-1))), plan()),
    Fired("more active than were seen", BASE, plan(active_seen=1)),
    Fired("fewer active than were seen", BASE, plan(active_seen=3)),
    Fired("the watermark would go back", BASE, plan(watermark=at(-101))),
    Fired("before its time", BASE, plan(not_before=at(1))),
    Fired("for how long to keep is no number", merged(BASE, job(keep="long")), plan()),
    Fired("a priority is no number", merged(BASE, job(priority="high")), plan()),
    Fired("the payload is missing", merged(BASE, {f"job:{J}": {"payload": None}}), plan()),
    Fired("no such job", BASE, plan(job=K)),
]


@pytest.mark.parametrize("case", HOLDS, ids=lambda case: case.name)
def test_a_plan_that_holds_is_carried_out(case: Fired, place: Place) -> None:
    check(place, "step", Case(case.name, case.before, said(case.plan), done(True), case.after))


@pytest.mark.parametrize("case", FALLS, ids=lambda case: case.name)
def test_a_plan_that_does_not_hold_changes_nothing(case: Fired, place: Place) -> None:
    check(place, "step", Case(case.name, case.before, said(case.plan), done(False)))


def test_each_plan_finds_what_the_one_before_it_made(place: Place) -> None:
    second = plan(watermark_seen=at(-2), watermark=at(-1), active_seen=SEEN + 2, occurrences=[], verdicts=[])
    steps = said(plan(), plan(), second)
    check(place, "step", Case("", BASE, steps, done(True, False, True), merged(DONE, moved(-1))))


def moved(watermark: int) -> State:
    return {f"job:{J}": {"watermark": at(watermark)}}


def test_what_was_planned_before_is_cancelled_or_asked_to_stop(place: Place) -> None:
    cancels = plan(cancel_previous=True, occurrences=[], verdicts=[])
    one = final(1, origin="manual", state="cancelled", reason="cancel_previous", finished=at(0))
    for name in ("attempt", "token", "session", "node"):
        del one[f"occurrence:{occurrence_id(1)}"][name]
    after = merged(
        meta(occurrence="2", range="4"),
        job(watermark=at(-2), next_due=at(30)),
        {"due": Scores({J: at(30)}), "prunable": Scores({J: at(2000)})},
        one,
        running(2, origin="manual", key="taken", cancel="cancel_previous"),
        session(),
    )
    check(place, "step", Case("", BASE, said(cancels), done(True), after))
