"""What people and programs do to jobs and occurrences, with or without a node in this process.

Every act is one verb of the store. Around it stand only: checking what was asked, where the caller can see it; defining
a job that this process declares and the store does not know yet; and a hint to the nodes, so that they look at once.

Each blocking method has an ``a…`` twin that does the same on a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol, TypeVar

from cronsensus.durations import Duration, parse_duration
from cronsensus.errors import ConfigurationError, InvalidOption, UnknownJob
from cronsensus.functions import Function
from cronsensus.handle import Handle
from cronsensus.instants import as_utc, format_instant, parse_instant
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Enqueued, Item, check_key
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.triggers import Trigger
from cronsensus.twins import twin
from cronsensus.typed import UNTYPED, Types

MOST_AT_ONCE = 1000
"""Most occurrences that are made in one step: a longer transaction would keep the nodes waiting for the lock."""
MOST_BACKFILLED = 10_000
"""Most nominal times of one backfill."""

T = TypeVar("T")
_MICROSECOND = timedelta(microseconds=1)


class Named(Protocol):
    """Something with a job's name: a ``Job``, a ``JobSpec``."""

    @property
    def name(self) -> str:
        """Return the name."""


class Operations(ABC):
    """The acts. A ``Scheduler`` is one; a ``Job`` passes its own on to it."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """Return the store, opened when first asked for; its schema is not touched by that."""

    @abstractmethod
    def _ready(self) -> Store:
        """Return the store with an up-to-date schema."""

    @abstractmethod
    def _known_here(self, job: str) -> JobSpec | None:
        """Return a job's definition if this process declares it."""

    @abstractmethod
    def _function_of(self, job: str) -> Function | None:
        """Return the function of a job, if this process has it."""

    @abstractmethod
    def _define(self, spec: JobSpec, by: str | None) -> None:
        """Put one definition into the store."""

    @abstractmethod
    def _who(self, by: str | None) -> str:
        """Return who acts."""

    # --- work --------------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        job: str | Named,
        /,
        *args: Any,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | str | None = None,
        priority: int | None = None,
        expires: Duration | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Ask for one run of a job with these arguments, on whichever node is free first.

        Args:
            job: a job, or its name.
            args: JSON values, or what the function's annotations name. None at all, also no ``kwargs``: the job's own.
            key: a second call with the same key does nothing and returns the occurrence of the first, also when that is
                long final. Defaults to a new one. (A parameter of the function that is called ``key`` goes by
                position.)
            delay: not before this time has passed on the store's clock.
            at: not before this instant; aware. Later than the year 2255 (``datetime.max``) means never.
            priority: higher goes first. Defaults to the job's.
            expires: not started this long after it was due: missed(late).
            kwargs: likewise, by name.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidOption: the function cannot be called with these arguments, or an option makes no sense.
            InvalidPayload: an argument is neither JSON nor what its annotation names, or they are too large.
            StoreError: the store could not do it. After a lost answer, repeat it with the same ``key``.
        """
        timing = _timing(delay, at, priority, expires)
        return self._enqueue(_name_of(job), [self._item(_name_of(job), args, kwargs, key, timing)])[0]

    aenqueue = twin(enqueue)

    def enqueue_many(
        self,
        job: str | Named,
        items: Iterable[Any],
        *,
        key: Callable[..., str] | None = None,
        delay: Duration | None = None,
        at: datetime | str | None = None,
        priority: int | None = None,
        expires: Duration | None = None,
    ) -> list[Handle]:
        """Ask for one run of a job for each item.

        Atomic: for each thousand of them, not for all. Repeat the call with the same keys if it failed half-way.

        Args:
            job: a job, or its name.
            items: a tuple holds arguments by position, a dict arguments by name, anything else is the one argument.
            key: called like the function; returns the item's key.
            delay: as for ``enqueue``, for all of them.
            at: likewise.
            priority: likewise.
            expires: likewise.

        Raises:
            UnknownJob, InvalidOption, InvalidPayload, StoreError: as ``enqueue``.
        """
        name, timing = _name_of(job), _timing(delay, at, priority, expires)
        checked = []
        for item in items:
            args, kwargs = _spread(item)
            checked.append(self._item(name, args, kwargs, None if key is None else key(*args, **kwargs), timing))
        handles: list[Handle] = []
        rest = iter(checked)
        while chunk := list(islice(rest, MOST_AT_ONCE)):
            handles += self._enqueue(name, chunk)
        return handles

    aenqueue_many = twin(enqueue_many)

    def _item(
        self, job: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None, timing: dict[str, Any]
    ) -> Item:
        function = self._function_of(job)
        if key is None:
            _refuse_while_loading("enqueues")
        else:
            check_key(key)
        if not args and not kwargs:
            # The job's own arguments; they were checked where the job was declared, unless it has none.
            spec = self._known_here(job)
            if function is not None and spec is not None and not spec.args and not spec.kwargs:
                function.bind((), {}, hint=_hint(function, kwargs))
            return Item(job=job, key=key, **timing)
        if function is not None:
            args, kwargs = function.bind(args, kwargs, hint=_hint(function, kwargs))
        else:
            given, kwargs = UNTYPED.write_arguments(args, kwargs, what=f"arguments of {job!r}")
            args = tuple(given)
        return Item(job=job, key=key, args=args, kwargs=kwargs, **timing)

    def _enqueue(self, job: str, items: Sequence[Item]) -> list[Handle]:
        return [self._handle(one) for one in self._act(job, lambda store: store.enqueue(items))]

    # --- jobs --------------------------------------------------------------------------------------------------------

    def pause(self, job: str | Named, *, reason: str, by: str | None = None) -> bool:
        """Stop firing a job; ``False`` when it is paused already. What passes meanwhile is skipped(paused).

        Args:
            job: a job, or its name.
            reason: shown beside the job until it is resumed.
            by: who; defaults to this node's name.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidOption: no reason.
            StoreError: the store could not do it.
        """
        if not reason.strip():
            raise InvalidOption('a pause needs a reason, for whoever finds the job paused; write reason="…"')
        return self._act(_name_of(job), lambda store: store.pause(_name_of(job), by=self._who(by), why=reason))

    apause = twin(pause)

    def resume(self, job: str | Named, *, by: str | None = None, reason: str = "") -> bool:
        """End a pause; ``False`` when there is none.

        Raises:
            UnknownJob, StoreError: as ``pause``.
        """
        return self._act(_name_of(job), lambda store: store.resume(_name_of(job), by=self._who(by), why=reason))

    aresume = twin(resume)

    def trigger(self, job: str | Named, *, by: str | None = None, reason: str = "") -> Handle:
        """Run a job now, beside its schedule, with its own arguments. The overlap policy still holds.

        Raises:
            UnknownJob, StoreError: as ``pause``.
            InvalidOption: its function needs arguments that the job does not have; ``enqueue`` it with them.
        """
        name = _name_of(job)
        _refuse_while_loading("triggers")
        function, spec = self._function_of(name), self._known_here(name)
        if function is not None and spec is not None:
            function.bind(spec.args, spec.kwargs, hint="; the job has none of its own: enqueue it with them")
        return self._handle(self._act(name, lambda store: store.trigger(name, by=self._who(by), why=reason)))

    atrigger = twin(trigger)

    def backfill(
        self,
        job: str | Named,
        start: datetime | str,
        end: datetime | str,
        *,
        by: str | None = None,
        reason: str = "",
    ) -> list[Handle]:
        """Run a job for its nominal times from ``start`` to ``end``, both included.

        Those with an active or a succeeded run are left as they are. The times are those of the trigger that the job
        has now.

        Atomic: for each thousand of them, not for all. Idempotent: repeat the call if it failed half-way.

        Raises:
            InvalidOption: the job has no trigger, the stretch reaches into the future, or holds more than 10,000 times.
            OccurrenceTooOld: it begins below what was pruned.
            UnknownJob, StoreError: as ``pause``.
        """
        name = _name_of(job)
        since, until = _instant(start, "start"), _instant(end, "end")
        if since > until:
            raise InvalidOption(
                f"start={format_instant(since)} is after end={format_instant(until)}; write them the other way"
            )

        def carry_out(store: Store) -> list[Enqueued]:
            now = store.now()
            if until > now:
                raise InvalidOption(
                    f"end={format_instant(until)} lies in the future; backfill up to {format_instant(now)}"
                )
            times = nominal_times(name, self._trigger_of(store, name), since, until)
            chunks = [times[index : index + MOST_AT_ONCE] for index in range(0, len(times), MOST_AT_ONCE)]
            return [one for chunk in chunks for one in store.backfill(name, chunk, by=self._who(by), why=reason)]

        return [self._handle(one) for one in self._act(name, carry_out)]

    abackfill = twin(backfill)

    def _trigger_of(self, store: Store, job: str) -> Trigger | None:
        view = store.job(job)
        if view is None or view.retired_at is not None:
            raise UnknownJob(_unknown(job))
        return view.spec.trigger

    # --- occurrences -------------------------------------------------------------------------------------------------

    def cancel(self, occurrence: int | Handle, *, reason: str, by: str | None = None) -> State:
        """Cancel a pending occurrence at once, or ask a running one to stop; return where it stands now.

        Args:
            occurrence: a handle, or its id.
            reason: kept with the occurrence.
            by: who; defaults to this node's name.

        Raises:
            InvalidTransition: it is final.
            LookupError: there is none.
            StoreError: the store could not do it.
        """
        return self._act(None, lambda store: store.cancel(_id_of(occurrence), by=self._who(by), why=reason))

    acancel = twin(cancel)

    def break_lock(self, name: str, *, reason: str, by: str | None = None) -> int:
        """Free a lock whoever holds it, and return how many held it: when a holder hangs and keeps everybody waiting.

        A former holder notices at its next renewal, within a third of the lock's TTL (``lease.lost``), and may work on
        until then. What the lock protects can refuse it by the token, which is higher for the next holder.

        Args:
            name: of the lock.
            reason: kept in the audit trail.
            by: who; defaults to this node's name.

        Raises:
            StoreError: the store could not do it.
        """
        return len(self._act(None, lambda store: store.break_lock(name, by=self._who(by), why=reason)))

    abreak_lock = twin(break_lock)

    def retry(self, occurrence: int | Handle, *, by: str | None = None, reason: str = "") -> Handle:
        """Run something final once more: a new occurrence, linked to the old one, with its arguments and nominal time.

        Raises:
            InvalidTransition: it is not final yet.
            LookupError: there is none.
            StoreError: the store could not do it.
        """
        number = _id_of(occurrence)
        _refuse_while_loading("retries")
        return self._handle(self._act(None, lambda store: store.retry(number, by=self._who(by), why=reason)))

    aretry = twin(retry)

    def _handle(self, made: Enqueued) -> Handle[Any]:
        return Handle.of(made, self, self._types_of)

    def _types_of(self, job: str) -> Types:
        function = self._function_of(job)
        return UNTYPED if function is None else function.registered.types

    def _act(self, job: str | None, verb: Callable[[Store], T]) -> T:
        """Carry a verb out and hint at it. A job that is declared here and new to the store is defined first."""
        store = self._ready()
        try:
            done = verb(store)
        except UnknownJob as unknown:
            spec = None if job is None else self._known_here(job)
            if spec is None:
                raise UnknownJob(str(unknown) if job is None else _unknown(job)) from unknown
            self._define(spec, None)
            done = verb(store)
        store.notify()
        return done


_STEERING = ("key", "delay", "at", "priority", "expires")


def _hint(function: Function, kwargs: Mapping[str, Any]) -> str:
    """Return what was perhaps meant by arguments that do not fit."""
    from difflib import get_close_matches

    parameters = () if function.signature is None else function.signature.parameters
    if any(name in parameters for name in _STEERING):
        names = ", ".join(f"`{name}`" for name in _STEERING)
        return f"; {names} steer the call itself: a parameter of that name goes by position"
    for name in kwargs:
        close = [] if name in parameters else get_close_matches(name, [*_STEERING, *parameters], n=1)
        if close:
            return f"; did you mean {close[0]}=?"
    return ""


def _refuse_while_loading(what: str) -> None:
    """Refuse to make new work where a job's own process imports the program: each such process would make it again."""
    from cronsensus.node.executors.importing import loading_program

    if loading_program():
        raise ConfigurationError(
            f"the program {what} when it is imported, and a job with executor='process' imports it in each of its "
            'processes; put what the program does under  if __name__ == "__main__":'
        )


def _name_of(job: str | Named) -> str:
    name = job if isinstance(job, str) else getattr(job, "name", None)
    if not isinstance(name, str):
        raise InvalidOption(f"{job!r} is neither a job nor a job's name; declare it with @scheduler.job(…) first")
    return name


def _id_of(occurrence: int | Handle) -> int:
    return occurrence.id if isinstance(occurrence, Handle) else occurrence


def _unknown(job: str) -> str:
    return f"no job is called {job!r}, neither here nor in the store; `cronsensus jobs list` shows those in the store"


def _instant(value: datetime | str, what: str) -> datetime:
    return parse_instant(value, what=what) if isinstance(value, str) else as_utc(value, what=what)


def _timing(
    delay: Duration | None, at: datetime | str | None, priority: int | None, expires: Duration | None
) -> dict[str, Any]:
    """Return the options of an ``Item`` that say when."""
    if delay is not None and at is not None:
        raise InvalidOption("delay and at both say when; give one of them")
    if priority is not None:
        Policies.read({"priority": priority})
    return {
        "delay": timedelta(0) if delay is None else parse_duration(delay, what="delay"),
        "due_at": None if at is None else _instant(at, "at"),
        "priority": priority,
        "expires_in": None if expires is None else parse_duration(expires, what="expires"),
    }


def _spread(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(item, tuple):
        return item, {}
    if isinstance(item, Mapping):
        return (), dict(item)
    return (item,), {}


def nominal_times(job: str, trigger: Trigger | None, since: datetime, until: datetime) -> list[datetime]:
    """Return a job's nominal times from ``since`` to ``until``, both included.

    Raises:
        InvalidOption: there is no trigger, or there are more than ``MOST_BACKFILLED``.
    """
    if trigger is None:
        raise InvalidOption(f"{job!r} has no trigger, so it has no nominal times; enqueue it instead")
    times: list[datetime] = []
    nominal = trigger.next_after(since - _MICROSECOND)
    while nominal is not None and nominal <= until:
        if len(times) == MOST_BACKFILLED:
            raise InvalidOption(
                f"more than {MOST_BACKFILLED:,} nominal times of {job!r} lie between {format_instant(since)} and "
                f"{format_instant(until)}; backfill up to {format_instant(times[-1])} first"
            )
        times.append(nominal)
        nominal = trigger.next_after(nominal)
    return times
