"""Ending runs: what one step answers that names a run twice, or a run that is not its own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from cronsensus.errors import LeaseLost
from cronsensus.model.ends import Final
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Item, Settled
from cronsensus.model.states import State
from cronsensus.stores.sql import completing
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import LEASE, a_session
from cronsensus.testing.conformance.steps import an_end, give_back, settle, take


@pytest.fixture
def store(open_sqlite: Callable[..., SqliteStore]) -> SqliteStore:
    store = open_sqlite()
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    return store


def a_claim(store: SqliteStore) -> Claim:
    store.enqueue([Item(job="job")])
    (claim,) = take(store, "s1", 1, ["f"], lease=LEASE)
    return claim


def test_of_outcomes_of_one_run_in_one_step_only_those_under_its_token_are_answered_like_the_first(
    store: SqliteStore,
) -> None:
    claim = a_claim(store)
    first = an_end(id=claim.id, token=claim.token, state=State.FAILED)
    again, other = structs.replace(first, then=Final(State.SUCCEEDED)), structs.replace(first, token=claim.token - 1)
    answers = settle(store, [other, first, again, other])
    assert answers == [
        Settled(claim.id, other.token, accepted=False, state=State.RUNNING),
        Settled(claim.id, claim.token, accepted=True, state=State.FAILED),
        Settled(claim.id, claim.token, accepted=True, state=State.FAILED),
        Settled(claim.id, other.token, accepted=False, state=State.FAILED),
    ]
    assert [run.end for run in store.runs(claim.id)] == ["failed"]


def test_of_a_claim_that_is_given_back_twice_in_one_step_the_attempt_is_given_back_once(store: SqliteStore) -> None:
    claim = a_claim(store)
    of_nothing = structs.replace(claim, id=987_654)
    assert give_back(store, [of_nothing, claim, claim]) == [False, True, False]
    found = store.occurrence(claim.id)
    assert found is not None
    assert (found.state, found.attempt) == (State.PENDING, 0)
    assert [run.end for run in store.runs(claim.id)] == ["released"]


def test_a_claim_that_is_given_back_and_was_asked_to_stop_is_cancelled(store: SqliteStore) -> None:
    claim, other = a_claim(store), a_claim(store)
    store.cancel(claim.id, by="ann", why="enough")
    assert give_back(store, [claim, other]) == [True, True]
    found = [store.occurrence(one.id) for one in (claim, other)]
    assert [one.state for one in found if one] == [State.CANCELLED, State.PENDING]
    assert [[run.end for run in store.runs(one.id)] for one in (claim, other)] == [["released"], ["released"]]


def test_what_was_asked_to_stop_and_ended_before_it_heard_of_that_ended_as_it_did(store: SqliteStore) -> None:
    claims = [a_claim(store) for _ in range(3)]
    ends = [State.SUCCEEDED, State.FAILED, State.PENDING]
    for claim in claims:
        store.cancel(claim.id, by="ann", why="enough")
    answers = settle(
        store, [an_end(id=one.id, token=one.token, state=end) for one, end in zip(claims, ends, strict=True)]
    )
    assert [answer.state for answer in answers] == [State.SUCCEEDED, State.FAILED, State.CANCELLED]


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"session": "s2"}, "it is running under token 7"),
        ({"token": 8}, "it is running under token 8"),
        ({"state": "succeeded"}, "it is succeeded under token 7"),
        (None, "it is not to be found in this database"),
    ],
    ids=str,
)
def test_only_a_run_that_is_current_in_everything_is_completed(differs: dict[str, Any] | None, said: str) -> None:
    claim: Any = SimpleNamespace(id=1, job="job", attempt=1, token=7, session="s1")
    row: Any = SimpleNamespace(state="running", token=7, session="s1")
    completing._require_current(claim, row)
    if differs is not None:
        row.__dict__.update(differs)
    with pytest.raises(LeaseLost, match=said):
        completing._require_current(claim, row if differs is not None else None)
