"""``Once``: a function that runs once for each key.

::

    call ──▶ key ──▶ won ──▶ the function runs ──▶ its result is recorded ──▶ returned
              │                    └── raised: the key is free again (or kept), and the exception goes on
              └──▶ it ran before: the recorded result, or an error that contains the recorded one
              └──▶ it is running: wait, skip, or raise
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from msgspec import structs

from cronsensus.declared.functions import is_async, mark_async
from cronsensus.errors import ConfigurationError, InvalidPayload, LeaseLost, RunFailed, StillRunning, StoreBusy
from cronsensus.lock.drive import adrive_flow, drive_flow
from cronsensus.lock.worker_pool import call_surely, on_worker, submit_act
from cronsensus.model.ending import Ending
from cronsensus.model.ends import Again, End, Final, Then
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Occurrence, RunError
from cronsensus.model.states import State
from cronsensus.node.executors.result import describe_error
from cronsensus.node.run import BaseRun, current_run, enter_run
from cronsensus.node.run_transaction import UNCOMMITTED
from cronsensus.once.acquiring import AcquireResult, acquire, release_claim
from cronsensus.once.call_key import CallKey
from cronsensus.once.choices import OnBusy, OnError
from cronsensus.once.claims import FREED, Claims
from cronsensus.outside.owned_claim import UNSET, OwnedClaim, Ticket
from cronsensus.payload.typed import Types
from cronsensus.process.logger import Logger
from cronsensus.process.twins import twin
from cronsensus.stores.transacting import no_transactions

_log = Logger("cronsensus.once")

_chain: ContextVar[tuple[OwnedClaim, ...]] = ContextVar("cronsensus.once.chain", default=())
"""The claims of the calls of guarded functions around this code, outermost first."""
INTERRUPTED = Ending(
    kind="raised",
    error=RunError(type="Interrupted", message="the call was left before it was known how its function ended"),
)
MOST_REPEATS = 2
"""How often a function is run again, as another attempt, after the database rolled its transaction back."""

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

CallKeyOf = Callable[[JobSpec, tuple[Any, ...], dict[str, Any]], CallKey]
"""Returns the key of a call. May read the store."""
RecordedKeyOf = Callable[[tuple[Any, ...], dict[str, Any]], str]
"""Returns the key under which a call is recorded. Arguments that are not in it may be left out."""


@dataclass(frozen=True, slots=True)
class BusyPolicy:
    """What a call does while another call has the key.

    Attributes:
        patience: seconds to wait for the other call; ``None``: no limit.
        should_stop: whether to stop waiting.
    """

    on_busy: OnBusy
    patience: float | None
    should_stop: Callable[[], bool] | None = None


_OF_TASKS = ("delay", "apply_async", "send", "enqueue", "s", "si", "signature")


class Once(Generic[P, R_co]):
    """A function that runs once for each key. Calling it runs it, or returns the recorded result.

    Made by ``Scheduler.once``, ``Scheduler.once_per`` and ``Scheduler.startup``.

    Attributes:
        name: of the implicit job; each key is an occurrence of it.
        function: the function itself, without a guard.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        spec: Callable[[], JobSpec],
        claims: Callable[[], Claims],
        call_key_of: CallKeyOf,
        on_busy: OnBusy,
        on_error: OnError,
        transaction: bool = False,
        wait_for: timedelta | None = None,
        recorded: RecordedKeyOf | None = None,
    ) -> None:
        """Guard ``function``; see ``Scheduler.once``."""
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name: str = spec().name
        self._spec = spec
        self._claims = claims
        self._call_key_of = call_key_of
        self._recorded = recorded or (lambda args, kwargs: self._call_key_of(self._spec(), args, kwargs).key)
        self._types = Types(function)
        self._on_error = on_error
        self._transaction = transaction
        patience = 0.0 if on_busy != "wait" else None if wait_for is None else wait_for.total_seconds()
        self._how = BusyPolicy(on_busy, patience)
        if transaction:
            # Frameworks read the signature to know what to pass, and callers do not pass the connection.
            with contextlib.suppress(ValueError, TypeError):
                signature = inspect.signature(function)
                self.__signature__: inspect.Signature = signature.replace(
                    parameters=[*signature.parameters.values()][1:]
                )
        self.is_async: bool = is_async(function)
        mark_async(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function, unless it has run under this key; return its result, or the recorded one.

        Raises:
            RunFailed: it failed for good under this key; the message has the recorded error.
            PayloadMismatch: a recorded call has this key, and other arguments.
            StillRunning: it is running elsewhere, and this call does not wait, or has waited long enough.
            LeaseLost: it ran, but showed no sign of life for too long, and was taken over; its result is not recorded.
            InvalidOption: the key cannot be made from these arguments.
            InvalidPayload: the result is not JSON. The key is kept, because the work was done.
            StoreError: the store cannot be used, and nothing was run; or it could not record the result, and this
                process keeps trying.
        """
        return cast("R_co", self.call(self._how, args, kwargs))

    def call(self, how: BusyPolicy, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call it; ``how`` is what to do if the key is running."""
        if self.is_async:
            return self._acall_guarded(how, args, kwargs or {})
        return self._call_guarded(how, args, kwargs or {})

    if not TYPE_CHECKING:  # else every misspelt attribute would pass a type checker

        def __getattr__(self, attribute: str) -> Any:
            """Raise; for a method of a task queue's task, with what to write instead.

            Raises:
                AttributeError: always.
            """
            if attribute not in _OF_TASKS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")
            is_task = hasattr(self.__dict__.get("function"), attribute)
            advice = (
                "the guard belongs inside of the task: put the task's decorator above @scheduler.once(…)"
                if is_task
                else "it runs where it is called; for a run on any node write @scheduler.job(), then enqueue(…)"
            )
            raise AttributeError(f"a guarded function has no {attribute}; {advice}")

    # --- forgetting ---------------------------------------------------------------------------------------------------

    def forget(self, *args: Any, **kwargs: Any) -> bool:
        """Forget the recorded result of a call, so that the next one runs the function; ``False`` if there was none.

        Takes the function's own arguments, at least those in the key. ``forget_key`` takes the key itself.

        Raises:
            InvalidTransition: the function is running under this key.
            InvalidOption: the key cannot be made from these arguments; or it is the slot of a trigger.
            StoreError: the store cannot be used.
        """
        return self.forget_key(self._recorded(args, kwargs))

    def forget_key(self, key: str, *, running: bool = False, by: str | None = None, why: str = "") -> bool:
        """Forget the result recorded under a key; ``False``: nothing was. The audit trail names the operator.

        Args:
            key: as ``cronsensus runs list`` prints it.
            running: also if the function is running under it: that call cannot record its result any more, and the next
                one runs beside it.
            by: the operator, for the trail; default: this process.
            why: the reason, for the trail.

        Raises:
            InvalidTransition: the function is running under this key, and ``running`` is not given.
            InvalidOption: no key, or the slot of a trigger.
            StoreError: the store cannot be used.
        """
        claims = self._claims()
        return claims.store.forget(self.name, key, by=by or claims.name, why=why, running=running) is not None

    @twin(forget, on_worker)
    def aforget(self) -> None:
        """Do what ``forget`` does without blocking the event loop."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the method of an object, as a function does."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        """Be pickled like a function, by name."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<Once {self.name!r}>"

    # --- on this thread -----------------------------------------------------------------------------------------------

    def _call_guarded(
        self, how: BusyPolicy, args: tuple[Any, ...], kwargs: dict[str, Any], *, tries_left: int = MOST_REPEATS
    ) -> Any:
        claims = self._claims()
        ticket = Ticket()
        try:
            return self._call_with(ticket, claims, how, args, kwargs, tries_left)
        finally:
            claims.note_owner_gone(ticket)

    def _call_with(  # noqa: PLR0917 - it is one call
        self,
        ticket: Ticket,
        claims: Claims,
        how: BusyPolicy,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tries_left: int,
    ) -> Any:
        outer_claims = _chain.get()
        call_key = self._asked_for(claims, how, args, kwargs, outer_claims, _key_of_run(current_run()))
        flow = acquire(claims, call_key, ticket, how.patience, how.should_stop, _names_of_held(outer_claims, claims))
        outcome = drive_flow(
            flow,
            f"{self.name}(), which is being run under the key {call_key.key!r},",
            "make the function `async def` and await it, or call it by `await asyncio.to_thread(…)`",
        )
        if not isinstance(outcome, OwnedClaim):
            return self._recorded_answer(call_key, outcome, how.on_busy)
        outer = current_run()
        try:
            self._note_start(claims, outcome, outer_claims)
            if self._transaction:
                with outcome.run.transaction() as connection:
                    outcome.value = self.function(connection, *args, **kwargs)
                    outcome.run.complete(outcome.value)
            else:
                outcome.value = self.function(*args, **kwargs)
        except BaseException as error:
            if claims.crossed_a_fork:
                raise
            if self._recorded_anyway(
                outcome, error, self._record_ending(claims, outcome, self._ending_of_error(outcome, error))
            ):
                return self._read_result(claims, outcome)
            if not (tries_left and self._is_undone(error)):
                raise
        else:
            _end_waits(outer, outer_claims)
            return self._record_return(claims, outcome)
        finally:
            _end_waits(outer, outer_claims)
            outcome.run.release_leftovers()
        return self._call_guarded(how, args, kwargs, tries_left=tries_left - 1)

    # --- on an event loop ---------------------------------------------------------------------------------------------

    async def _acall_guarded(
        self, how: BusyPolicy, args: tuple[Any, ...], kwargs: dict[str, Any], *, tries_left: int = MOST_REPEATS
    ) -> Any:
        ticket = Ticket()
        try:
            return await self._acall_with(ticket, how, args, kwargs, tries_left)
        finally:
            ticket.over = True
            if ticket.held is not None:
                # Not awaited: the task may be gone by now, and its loop too. Else the background queue does it.
                with contextlib.suppress(RuntimeError):
                    submit_act(partial(ticket.held.claims.note_owner_gone, ticket))

    async def _acall_with(
        self, ticket: Ticket, how: BusyPolicy, args: tuple[Any, ...], kwargs: dict[str, Any], tries_left: int
    ) -> Any:
        claims = await on_worker(self._claims)
        # Context variables, which the threads of ``on_worker`` do not have.
        outer, outer_claims = current_run(), _chain.get()
        call_key = await on_worker(
            partial(self._asked_for, claims, how, args, kwargs, outer_claims, _key_of_run(outer))
        )
        flow = acquire(claims, call_key, ticket, how.patience, how.should_stop, _names_of_held(outer_claims, claims))
        outcome = await adrive_flow(flow, lambda answer: release_claim(answer, claims))
        if not isinstance(outcome, OwnedClaim):
            return self._recorded_answer(call_key, outcome, how.on_busy)
        try:
            self._note_start(claims, outcome, outer_claims)
            if self._transaction:
                async with outcome.run.atransaction() as connection:
                    outcome.value = await self.function(connection, *args, **kwargs)
                    outcome.run.complete(outcome.value)
            else:
                outcome.value = await self.function(*args, **kwargs)
        except GeneratorExit:
            raise  # nothing can be awaited any more; another thread records the end of the claim
        except BaseException as error:
            if claims.crossed_a_fork:
                raise
            ending = self._ending_of_error(outcome, error)
            if self._recorded_anyway(
                outcome, error, await call_surely(lambda: self._record_ending(claims, outcome, ending))
            ):
                return await on_worker(lambda: self._read_result(claims, outcome))
            if not (tries_left and self._is_undone(error)):
                raise
        else:
            _end_waits(outer, outer_claims)
            return await call_surely(lambda: self._record_return(claims, outcome))
        finally:
            _end_waits(outer, outer_claims)
            outcome.run.release_leftovers()
        return await self._acall_guarded(how, args, kwargs, tries_left=tries_left - 1)

    # --- for both -----------------------------------------------------------------------------------------------------

    def _asked_for(  # noqa: PLR0917 - it is one call
        self,
        claims: Claims,
        how: BusyPolicy,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outer_claims: tuple[OwnedClaim, ...],
        outer_key: tuple[str, str] | None,
    ) -> CallKey:
        if self._transaction and not claims.store.capabilities.transactional_finish:
            raise no_transactions(claims.store.capabilities.name)
        call_key = self._call_key_of(self._spec(), args, kwargs)
        held_names = _names_of_held(outer_claims, claims)
        if call_key.name == outer_key or (how.patience != 0 and call_key.name in held_names):
            through = (
                "" if call_key.name == outer_key else f", through {held_names[-1][0]!r} under {held_names[-1][1]!r},"
            )
            raise ConfigurationError(
                f"{self.name!r} was called under the key {call_key.key!r} by the very run that has it{through} and "
                "would wait for itself; call the function without its guard there, by `.function`"
            )
        return call_key

    def _note_start(self, claims: Claims, owned: OwnedClaim, outer_claims: tuple[OwnedClaim, ...]) -> None:
        """Set the end that is recorded if this call goes away from here on; then the function may start."""
        owned.run.type_result(self._types)
        owned.end_if_left = self._abandoned_end(claims)
        enter_run(owned.run)
        _chain.set((*outer_claims, owned))
        owned.begun = True

    def _recorded_answer(self, call_key: CallKey, occurrence: AcquireResult, on_busy: OnBusy) -> Any:
        """Return the recorded result, or raise if there is none."""
        if occurrence is None:
            _log.info("%s: %s is not run: it is pruned, or the function is paused", self.name, call_key.key)
            return None
        assert isinstance(occurrence, Occurrence)  # noqa: S101 - the caller handles claims
        if occurrence.state is State.SUCCEEDED:
            return self._types.read_result(occurrence.result)
        if not occurrence.state.final:
            if on_busy == "skip":
                return None
            by = f" by {occurrence.node}" if occurrence.node else ""
            raise StillRunning(
                f"{self.name!r} is being run under the key {call_key.key!r}{by}; try again later, or let it wait: "
                "on_busy='wait'"
            )
        error = occurrence.error
        why = f"{error.type}: {error.message}" if error is not None else occurrence.reason or "no reason given"
        raise RunFailed(
            f"{self.name!r} is {occurrence.state} under the key {call_key.key!r}, and is not run again: {why}; more "
            f"with `cronsensus runs show {occurrence.id}`",
            occurrence=occurrence,
        )

    def _record_return(self, claims: Claims, owned: OwnedClaim) -> Any:
        """Record the function's result, and return it."""
        value = owned.value
        if claims.crossed_a_fork:
            return value  # the call and its claim belong to the parent
        if owned.run.committed:
            claims.drop_settled(owned)
            claims.maintain_store()
            return value
        ending, refused = self._ending_of(value)
        settled = self._record_ending(claims, owned, ending)
        if refused is not None:
            raise refused
        if settled is State.SUCCEEDED:
            return value
        if settled is None:
            raise LeaseLost(
                f"{self.name!r} ran to its end under the key {owned.claim.key!r}, but its session had been given up "
                "for dead, and the key was taken over: what it returned is not recorded"
            )
        raise RunFailed(f"{self.name!r} under the key {owned.claim.key!r}: {UNCOMMITTED.message}")

    def _ending_of(self, value: Any) -> tuple[Ending, InvalidPayload | None]:
        """Return the ending of a function that returned a value, and the error if the value cannot be recorded."""
        try:
            text = self._types.write_result(value, what=f"what {self.name!r} returned")
        except InvalidPayload as error:
            # Its work is done. Freeing the key would mean doing it twice.
            return Ending(kind="raised", error=describe_error(error), permanent=True), error
        return Ending(kind="returned", result=text), None

    def _ending_of_error(self, owned: OwnedClaim, error: BaseException) -> Ending:
        """Return the ending of a call that raised: its result, if the function had already returned."""
        if owned.value is not UNSET and not self._transaction:
            return self._ending_of(owned.value)[0]
        return self._record_error(owned, error)

    def _abandoned_end(self, claims: Claims) -> Callable[[OwnedClaim], End]:
        """Return a function that makes the end of a call that went away in the middle."""

        def end(owned: OwnedClaim) -> End:
            ending = INTERRUPTED if owned.value is UNSET or self._transaction else self._ending_of(owned.value)[0]
            return self._make_end(owned, self._with_timing(claims, owned, ending))

        return end

    def _is_undone(self, error: BaseException) -> bool:
        """Whether the database rolled the transaction back in favour of another one, as in a deadlock."""
        return self._transaction and isinstance(error, StoreBusy)

    def _record_error(self, owned: OwnedClaim, error: BaseException) -> Ending:
        undone = self._is_undone(error) or owned.run.was_cut_off(error)
        return Ending(kind="retry" if undone else "raised", error=describe_error(error))

    def _recorded_anyway(self, owned: OwnedClaim, error: BaseException, recorded_state: State | None) -> bool:
        """Whether the store recorded a success although the call raised: the answer to a commit was lost."""
        if recorded_state is State.SUCCEEDED:
            _log.warning("%s under the key %s is committed, although it raised %r", self.name, owned.claim.key, error)
        return recorded_state is State.SUCCEEDED and isinstance(error, Exception)

    def _read_result(self, claims: Claims, owned: OwnedClaim) -> Any:
        occurrence = claims.store.occurrence(owned.claim.id)
        return None if occurrence is None else self._types.read_result(occurrence.result)

    def _record_ending(self, claims: Claims, owned: OwnedClaim, ending: Ending) -> State | None:
        """Record an ending; return the key's state, or ``None`` if the claim had been taken over."""
        # Kept first: if this call goes away here, another one, or the background queue, records it.
        owned.unsettled = self._make_end(owned, self._with_timing(claims, owned, ending))
        settled = claims.record_end(owned, owned.unsettled)
        claims.maintain_store()
        if not settled.accepted:
            _log.warning(
                "%s under the key %s was taken over; how it ended here is not recorded", self.name, owned.claim.key
            )
            return None
        return settled.state

    @staticmethod
    def _with_timing(claims: Claims, owned: OwnedClaim, ending: Ending) -> Ending:
        elapsed = timedelta(seconds=claims.clock.monotonic() - owned.started)
        return structs.replace(owned.run.effective_ending(ending), elapsed=elapsed)

    def _make_end(self, owned: OwnedClaim, ending: Ending) -> End:
        return End.of(owned.claim, self._what_follows(owned, ending), ending.elapsed)

    def _what_follows(self, owned: OwnedClaim, ending: Ending) -> Then:
        if ending.kind == "returned":
            return Final(State.SUCCEEDED, result=ending.result)
        if ending.permanent or (self._on_error == "keep" and ending.kind != "retry"):
            return Final(State.FAILED, error=ending.error)
        # Due when it may be forgotten: until then no node need look at it, and the next call takes it anyway. Its error
        # shows that the key is free: a call that was cut off leaves none.
        error = ending.error or RunError(type="Retry", message=ending.reason or "a retry was asked for")
        return Again(owned.claim.spec.policies.keep, failed=True, reason=FREED, error=error)


def _names_of_held(outer_claims: tuple[OwnedClaim, ...], claims: Claims) -> tuple[tuple[str, str], ...]:
    """Return the names of the claims that the calls around this one still hold."""
    return tuple(owned.name for owned in outer_claims if owned.claims is claims and not owned.is_over)


def _end_waits(outer: BaseRun | None, outer_claims: tuple[OwnedClaim, ...]) -> None:
    enter_run(outer)
    _chain.set(outer_claims)


def _key_of_run(run: Any) -> tuple[str, str] | None:
    return None if run is None else (run.job, run.key)
