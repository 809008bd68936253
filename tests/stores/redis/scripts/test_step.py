"""A step writes what runs say in any case, and plans and claims only for a session that lives."""

from typing import Any

import pytest

from tests.stores.redis.scripts.by_hand import (
    Case,
    J,
    K,
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
    renewed,
    running,
    session,
    world,
)

ONE, TWO = occurrence_id(1), occurrence_id(2)
AROUND = merged(meta(occurrence="1"), job(next_due=at(5)), {"due": Scores({J: at(5)})}, session())
RUNS = merged(AROUND, running(1, origin="manual"))
OUTCOME = [ONE, "7", "s1", 0, "succeeded", None, None, ["final", "succeeded", None]]
NOTE = [ONE, "7", None, ["line"], None]
PLAN = [
    J, "job", "1", at(-100), 0, at(5), None, at(5), False, [[at(5), "new", at(5), None]], [], f"d:1:{at(-100)}", "f",
]  # fmt: skip
OTHER = [J, "other", *PLAN[2:]]
FIRED = [*PLAN[:7], None, *PLAN[8:]]
SETTLED = [True, "succeeded"]
CLAIM = [TWO, J, "new", "schedule", at(5), at(5), 1, at(0), "", 0, 0, False, False, at(0), False]


def told(
    *plans: list[Any],
    notes: tuple[Any, ...] = (),
    outcomes: tuple[Any, ...] = (),
    back: tuple[Any, ...] = (),
    digest: str = "digest",
    functions: tuple[str, ...] | None = None,
    ahead: int = 5,
    wants: bool = True,
) -> tuple[Any, ...]:
    """Return what a step of the session s1 says."""
    want: tuple[Any, ...] = (10, digest, functions, {}, 500)
    return notes, outcomes, back, plans, ahead, 0, 1, False, "s1", *(want if wants else ())


def over(around: State) -> State:
    return merged(around, final(1, origin="manual", started=at(-5), finished=at(0), end="succeeded"))


MOVED: State = {f"job:{J}": {"watermark": at(5), "next_due": None}, "due": None}
TAKEN = merged(
    over(AROUND),
    meta(occurrence="2", token=at(0)),
    MOVED,
    renewed(),
    {"holding": Scores(s1=1), "prunable": Scores({J: at(1000)})},
    running(
        2, origin="schedule", key="new", nominal=at(5), due=at(5), created=at(0), payload="", token=at(0), started=at(5)
    ),
)
LINE: State = {f"log:{ONE}": ["1 line"]}
DEAD = {"open": Scores(s1=at(0))}
GIVEN_BACK: State = {f"attempts:{ONE}": [f'["1","7","s1","node","{at(-5)}","{at(0)}","released",null,null]']}
STEPS = [
    Case(
        "a result, then the plan that rests on it, then what the plan makes",
        RUNS,
        told(PLAN, notes=(NOTE,), outcomes=(OUTCOME,)),
        done(True, noted=(True,), settled=(SETTLED,), taken=[at(0), [CLAIM], [[J, "spec of job"]]]),
        merged(TAKEN, LINE),
    ),
    Case(
        "of two plans the second holds",
        RUNS,
        told(OTHER, PLAN, outcomes=(OUTCOME,)),
        done(False, True, settled=(SETTLED,), taken=[at(0), [CLAIM], [[J, "spec of job"]]]),
        TAKEN,
    ),
    Case(
        "of two plans the first holds",
        RUNS,
        told(PLAN, OTHER, outcomes=(OUTCOME,)),
        done(True, False, settled=(SETTLED,), taken=[at(0), [CLAIM], [[J, "spec of job"]]]),
        TAKEN,
    ),
    Case(
        "a plan of a job whose function it has not told",
        RUNS,
        told([*PLAN[:-1], False], outcomes=(OUTCOME,)),
        done(True, settled=(SETTLED,), taken=[at(0), [CLAIM], [[J, "spec of job"]]]),
        TAKEN,
    ),
    Case(
        "a plan that is not due so far ahead",
        RUNS,
        told(PLAN, outcomes=(OUTCOME,), ahead=4),
        done(False, settled=(SETTLED,)),
        over(AROUND),
    ),
    Case(
        "functions that were not known are remembered",
        merged(RUNS, {"session:s1": {"functions": "old"}, "functions:s1": {"other"}}),
        told(PLAN, outcomes=(OUTCOME,), functions=("f",)),
        done(True, settled=(SETTLED,), taken=[at(0), [CLAIM], [[J, "spec of job"]]]),
        TAKEN,
    ),
    Case(
        "a plan without a wish for work",
        RUNS,
        told(FIRED, outcomes=(OUTCOME,), wants=False),
        done(True, settled=(SETTLED,)),
        world(
            over(AROUND),
            meta(occurrence="2"),
            MOVED,
            {"prunable": Scores({J: at(1000)})},
            pending(2, origin="schedule", key="new", nominal=at(5), due=at(5), created=at(0), payload=""),
        ),
    ),
    Case(
        "a lost session's result",
        merged(RUNS, DEAD),
        told(PLAN, notes=(NOTE,), outcomes=(OUTCOME,), digest="other"),
        done(False, noted=(True,), settled=(SETTLED,), lost=True),
        merged(over(AROUND), DEAD, LINE),
    ),
    Case(
        "a lost session's claim that it gives back, and no plan",
        merged(RUNS, DEAD),
        told(PLAN, back=([ONE, "7", "s1", False, False],), wants=False),
        done(False, back=(True,), lost=True),
        world(AROUND, DEAD, pending(1, origin="manual", attempt="0", token="7"), GIVEN_BACK),
    ),
    Case(
        "functions that are not known are asked for before anything is written",
        RUNS,
        told(PLAN, notes=(NOTE,), outcomes=(OUTCOME,), digest="other"),
        False,
    ),
    Case(
        "a note that cannot be kept does not stop the result",
        merged(RUNS, {f"log:{ONE}": {"no list"}}),
        told(notes=(NOTE,), outcomes=(OUTCOME,), wants=False),
        done(noted=(False,), settled=(SETTLED,)),
        merged(over(AROUND), {f"log:{ONE}": {"no list"}}),
    ),
]


@pytest.mark.parametrize("case", STEPS, ids=by_name)
def test_step_writes_results_in_any_case_and_the_rest_for_the_living(case: Case, place: Place) -> None:
    check(place, "step", case)


def test_step_takes_what_waited_before_and_what_it_fires(place: Place) -> None:
    place.put(world(AROUND, pending(2, origin="startup"), meta(occurrence="2")))
    *_, claims, _ = place.run("step", *told(PLAN))
    assert [one[0] for one in claims] == [TWO, occurrence_id(3)]


def test_a_job_of_a_herd_that_is_broken_stops_no_other(place: Place) -> None:
    place.put(merged(AROUND, job(K, "other", next_due=at(5)), {f"job:{K}:keys": {"no hash"}}))
    other = [K, "other", *PLAN[2:]]
    _, _, _, won, _, _, claims, _ = place.run("step", *told(other, PLAN))
    assert (won, [one[1] for one in claims]) == ([False, True], [J])
    assert [key for key in place.stands() if key.endswith(" state")] == [f"occurrence:{claims[0][0]} state"]


def test_a_herd_is_given_as_many_numbers_as_it_takes(place: Place) -> None:
    place.put(merged(AROUND, job(K, "other", next_due=at(5))))
    other = [K, "other", *PLAN[2:]]
    *_, claims, _ = place.run("step", *told(PLAN, other))
    stands = place.stands()
    assert [(one[0], one[7]) for one in claims] == [(TWO, at(0)), (occurrence_id(3), at(1))]
    assert (stands["meta occurrence"], stands["meta token"]) == ("3", at(1))


def test_a_job_whose_function_is_another_by_now_is_not_claimed_by_what_its_plan_saw(place: Place) -> None:
    place.put(merged(AROUND, job(function="g")))
    _, _, _, won, _, _, claims, _ = place.run("step", *told([*PLAN[:-2], "", "f"]))
    assert (won, claims) == ([True], [])
