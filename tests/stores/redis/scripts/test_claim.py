"""Which pending occurrences a session takes, in which order, and what it writes of each."""

import pytest

from tests.stores.redis.scripts.by_hand import (
    NOW,
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
    row,
    running,
    said,
    session,
    world,
)

LEASE = 500
LARGEST_COUNT = 2**31 - 1
TOLD = said(want=(10, "digest", None, {}, LEASE))
BASE = merged(meta(), session())
NONE = done()


def claimed(n: int, token: int, of: str = J, **fields: object) -> list[object]:
    """Return the claim of an occurrence as the script answers it."""
    row = {
        "id": occurrence_id(n), "job": of, "key": f"k{n}", "origin": "enqueue", "nominal": False, "due": at(-10),
        "attempt": 1, "token": str(token), "payload": "p", "crashes": 0, "failures": 0, "parent": False,
        "listed": False, "created": at(-50), "note": False, **fields,
    }  # fmt: skip
    return list(row.values())


STARTED = merged(BASE, renewed(), {"holding": Scores(s1=1)})
WRITTEN = [
    Case(
        "a first attempt",
        world(BASE, job(), pending(1)),
        TOLD,
        done(taken=[at(0), [claimed(1, NOW)], [[J, "spec of job"]]]),
        merged(STARTED, job(), running(1, token=at(0), started=at(0)), meta(token=at(0))),
    ),
    Case(
        "a second attempt forgets why the first one ended",
        world(
            BASE,
            meta(token=at(20)),
            job(),
            pending(
                1,
                origin="schedule",
                nominal=at(-9),
                attempt="1",
                crashes="2",
                failures="3",
                reason="crashed",
                error="e",
                node="node",
                session="s9",
                token="7",
            ),
        ),
        TOLD,
        done(
            taken=[
                at(0),
                [claimed(1, NOW + 21, origin="schedule", nominal=at(-9), attempt=2, crashes=2, failures=3)],
                [[J, "spec of job"]],
            ]
        ),
        merged(
            STARTED,
            meta(token=at(21)),
            job(),
            running(
                1,
                origin="schedule",
                nominal=at(-9),
                attempt="2",
                crashes="2",
                failures="3",
                token=at(21),
                started=at(0),
            ),
        ),
    ),
    Case(
        "other functions, and not told", world(BASE, job(), pending(1)), said(want=(10, "new", None, {}, LEASE)), False
    ),
    Case(
        "other functions, and told",
        world(BASE, job(), pending(1)),
        said(want=(10, "new", ["g", "h"], {}, LEASE)),
        NONE,
        merged(
            world(BASE, job(), pending(1)),
            {"functions:s1": None, "session:s1": {"functions": "new"}},
            {"functions:s1": {"g", "h"}},
        ),
    ),
]


@pytest.mark.parametrize("case", WRITTEN, ids=by_name)
def test_a_claim_answers_and_leaves_no_more_and_no_less(case: Case, place: Place) -> None:
    check(place, "step", case)


LIMITED = job(concurrency="1")


def ids(place: Place, limit: int = 10, left_out: dict[str, bool] | None = None) -> list[int]:
    *_, claims, _ = place.run("step", *said(want=(limit, "digest", None, left_out or {}, LEASE)))
    return [int(one[0]) for one in claims]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_is_taken_than_asked_for_of_whatever_lines(limit: int, place: Place) -> None:
    place.put(world(BASE, job(), job(K, "other"), pending(1), pending(2, K), pending(3), pending(4, priority="-1")))
    assert ids(place, limit) == [1, 2, 3][:limit]


TAKEN: list[tuple[str, State, list[int]]] = [
    (
        "one place for two kinds of work",
        # The turn of what comes one at a time is not that of its line's head: it is looked into early, and comes late.
        world(
            LIMITED,
            pending(3, origin="manual", due=at(-1)),
            pending(5, origin="manual", due=at(-4)),
            pending(6, origin="startup", due=at(-3)),
        ),
        [6],
    ),
    (
        "one that runs keeps the others waiting, also older ones",
        world(job(), pending(1, origin="manual"), running(2, origin="manual")),
        [],
    ),
    ("a payload is missing", world(job(), pending(1, payload=None)), []),
    ("a due time is no number", world(job(), pending(1), row(1, due="soon")), []),
    (
        "as many attempts as can be counted",
        world(job(), pending(1, attempt=str(LARGEST_COUNT)), pending(2, attempt=str(LARGEST_COUNT - 1))),
        [2],
    ),
]


@pytest.mark.parametrize(("_", "there", "taken"), TAKEN, ids=[name for name, *_ in TAKEN])
def test_what_is_taken_and_what_not(_: str, there: State, taken: list[int], place: Place) -> None:
    place.put(merged(BASE, there))
    assert ids(place) == taken


def test_of_jobs_and_occurrences_that_are_left_out_nothing_is_taken(place: Place) -> None:
    place.put(world(BASE, job(), job(K, "other"), pending(1), pending(2), pending(3, K)))
    assert ids(place, left_out={K: True, occurrence_id(1): True}) == [2]


def test_a_job_that_is_full_or_left_out_is_not_looked_into(place: Place) -> None:
    damaged = {f"job:{J}:busy": {occurrence_id(9)}}
    before = world(BASE, job(), pending(1, origin="manual"), damaged)
    check(place, "step", Case("", before, said(want=(10, "digest", None, {J: True}, LEASE)), NONE))


STRAYS: list[tuple[str, State, list[int]]] = [
    ("is over", final(1), []),
    ("is gone", {}, []),
    ("stands in the line of its priority", pending(1, priority="1"), [1]),
    ("is of the other kind", pending(1, origin="manual"), [1]),
]


@pytest.mark.parametrize(("_", "there", "taken"), STRAYS, ids=[name for name, *_ in STRAYS])
def test_an_entry_of_a_line_that_its_row_denies_is_taken_out(
    _: str, there: State, taken: list[int], place: Place
) -> None:
    one = occurrence_id(1)
    place.put(world(BASE, job(), there, {"pending": Scores({one: at(-10)}), f"line:0:{J}:w": Scores({one: at(-10)})}))
    assert ids(place) == taken
    denied = (f"line:0:{J}:w", "level:0", "levels 0", "pending")
    assert not [entry for entry in place.stands() if entry.startswith(denied)]


def test_the_turn_of_what_is_gone_passes_to_the_next(place: Place) -> None:
    serial = {f"job:{J}:serial": Scores({occurrence_id(1): 0})}
    place.put(world(BASE, job(), pending(2, origin="manual"), serial))
    assert ids(place) == []
    assert ids(place) == [2]


def test_what_waits_elsewhere_goes_on_waiting_when_its_stray_entry_is_taken_out(place: Place) -> None:
    waits = world(BASE, job(), pending(1, priority="1", origin="manual", due=at(50)))
    one = occurrence_id(1)
    stray: State = {
        f"line:0:{J}:w": Scores({one: at(-10)}),
        "level:0": Scores({f"{one}:{J}:w": at(-10)}),
        "levels": Scores({"0": 0}),
    }
    check(place, "step", Case("", merged(waits, stray), TOLD, NONE, waits))


EXPIRING = {"expiring": Scores({occurrence_id(1): at(-1)})}
BROKEN = merged(BASE, row(1, state="pending", expires=at(-1)))
LATE = [
    Case(
        "what waits is missed",
        world(BASE, job(), pending(1, origin="manual", expires=at(-1))),
        TOLD,
        NONE,
        merged(
            BASE,
            job(),
            final(1, origin="manual", state="missed", reason="late", finished=at(0), expires=at(-1)),
            row(1, attempt=None, token=None, session=None, node=None),
        ),
    ),
    Case("what runs goes on", merged(BASE, job(), running(1), EXPIRING), TOLD, NONE, merged(BASE, job(), running(1))),
    Case("what is over is over", merged(BASE, job(), final(1), EXPIRING), TOLD, NONE, merged(BASE, job(), final(1))),
    Case("what cannot be read is left as it is", merged(BROKEN, EXPIRING), TOLD, NONE, BROKEN),
]


@pytest.mark.parametrize("case", LATE, ids=by_name)
def test_what_has_expired_is_missed_if_it_waits(case: Case, place: Place) -> None:
    check(place, "step", case)
