"""Steps of one kind each, as tests and benchmarks say them to a store; each returns what the step answers."""

# ruff: noqa: S101 - pytest explains plain asserts

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from cronsensus.errors import LeaseLost
from cronsensus.model.acquiring import AskNamed, NotWon
from cronsensus.model.ends import Again, End, Final, Then
from cronsensus.model.occurrence import Claim, Cut, Note, RunError, Settled
from cronsensus.model.plan import Plan
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import State
from cronsensus.model.step import Done, GiveBack, Step, Want
from cronsensus.stores.base import Store

PLANNER = "planner"
"""The session for which plans are carried out where a test names none: a session that is not a node."""
_FOR_LONG = timedelta(days=36_500)


def carry_out(store: Store, plans: Sequence[Plan], session: str = "") -> list[bool]:
    """Carry plans out; ``True`` where this caller won.

    Raises:
        LeaseLost: the session is not alive.
    """
    if not session and plans:
        session = open_planner(store)
    return list(_living(store, session, Step(plans=tuple(plans))).carried_out)


def open_planner(store: Store) -> str:
    """Open the session ``PLANNER`` in the namespace of a handle, or set its lease; return its id."""
    planner = SessionSpec(
        id=PLANNER,
        node=PLANNER,
        host="host",
        pid=4711,
        pid_started=99,
        release="",
        concurrency=0,
        version="",
        functions=0,
    )
    store.open_session(planner, lease=_FOR_LONG)
    return PLANNER


def take(store: Store, session: str, limit: int, functions: Collection[str], *, lease: timedelta) -> list[Claim]:
    """Claim up to ``limit`` due occurrences of ``functions``.

    Raises:
        LeaseLost: the session is not alive.
    """
    return list(_living(store, session, Step(want=Want(limit=limit, functions=functions, lease=lease))).claims)


def win_named(
    store: Store,
    session: str,
    job: str,
    *,
    lease: timedelta,
    scheduled_for: datetime | None = None,
    key: str | None = None,
    fingerprint: str | None = None,
) -> Claim | None:
    """Acquire one occurrence by its nominal time or its key; ``None``: it is lost.

    Raises:
        LeaseLost: the session is not alive.
    """
    ask = AskNamed(job, scheduled_for=scheduled_for, key=key, fingerprint=fingerprint)
    [(answer,)] = store.acquire(session, [ask], lease=lease)
    if isinstance(answer, Claim):
        return answer
    assert answer is NotWon.LOST, answer
    return None


def say(store: Store, notes: Sequence[Note]) -> list[bool]:
    """Record progress and log lines of running attempts; ``False`` where the token is no longer current."""
    return list(store.step(PLANNER, Step(notes=tuple(notes))).noted)


def an_end(
    *,
    id: int,  # noqa: A002 - the name of the field
    token: int,
    state: State = State.SUCCEEDED,
    session: str | None = None,
    reason: str | None = None,
    result: str | None = None,
    error: RunError | None = None,
    retry_in: timedelta | None = None,
    elapsed: timedelta = timedelta(0),
    waiting: bool = False,
    then: Then | None = None,
) -> End:
    """Return an end in a state: ``PENDING`` is a failure, unless it is ``waiting``; ``then`` says it outright."""
    if then is None and state is State.PENDING:
        then = Again(retry_in or timedelta(0), failed=not waiting, reason=reason, error=None if waiting else error)
    then = Final(state, reason, result, error) if then is None else then
    return End(id=id, token=token, session=session, then=then, elapsed=elapsed)


def settle(store: Store, ends: Sequence[End]) -> list[Settled]:
    """Record how attempts ended."""
    return list(store.step(PLANNER, Step(ends=tuple(ends))).settled)


def give_back(store: Store, claims: Sequence[Claim], *, cut: Cut | None = None) -> list[bool]:
    """Give claims back; ``False`` where a claim is no longer current."""
    return list(store.step(PLANNER, Step(give_back=tuple(GiveBack(claim=claim, cut=cut) for claim in claims))).returned)


def _living(store: Store, session: str, step: Step) -> Done:
    done = store.step(session, step)
    if done.lost:
        raise LeaseLost(f"session {session} is not alive")
    return done
