"""A plan is carried out if all that it rests on stands as it was seen, and otherwise nothing of it is."""

from typing import Any, NamedTuple

import pytest

from tests.stores.redis.scripts.by_hand import (
    Case,
    J,
    Place,
    Scores,
    State,
    at,
    check,
    done,
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
]
FALLS = [
    Fired("another definition", BASE, plan(definition=f"d:1:{at(-99)}")),
    Fired("for how long to keep is no number", merged(BASE, job(keep="long")), plan()),
    Fired("a priority is no number", merged(BASE, job(priority="high")), plan()),
    Fired("the payload is missing", merged(BASE, {f"job:{J}": {"payload": None}}), plan()),
]


@pytest.mark.parametrize("case", HOLDS, ids=lambda case: case.name)
def test_a_plan_that_holds_is_carried_out(case: Fired, place: Place) -> None:
    check(place, "step", Case(case.name, case.before, said(case.plan), done(True), case.after))


@pytest.mark.parametrize("case", FALLS, ids=lambda case: case.name)
def test_a_plan_that_does_not_hold_changes_nothing(case: Fired, place: Place) -> None:
    check(place, "step", Case(case.name, case.before, said(case.plan), done(False)))
