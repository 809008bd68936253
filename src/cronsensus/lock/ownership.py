"""The owner of a lease: which thread, task, run or block may use it, and with which of them it ends.

================== ==================================== ==================================================
acquired by        belongs to                           ends, if it was not released, with
================== ==================================== ==================================================
``with``           the block                            the block, in whatever thread or task that is left
``acquire()``      the thread; inside a run to the run  the thread; the run
``aacquire()``     the Lock; inside a run to the run    the Lock object; the run
================== ==================================== ==================================================

A lease of any owner ends when neither it nor its ``Lock`` can be reached any more (``LeaseRef.free_abandoned``).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Literal

from cronsensus.errors import NotTheHolder
from cronsensus.lock.backend import LockBackend, LockRequest
from cronsensus.lock.lease import Lease, LeaseRef
from cronsensus.lock.worker_pool import submit_act
from cronsensus.node.run import BaseRun, current_run

Kind = Literal["block", "thread", "object", "run"]
Here = threading.Thread | asyncio.Task[object]


class OwnedLease:
    """A lease and its owner.

    Attributes:
        frame: the id of the frame with the ``with`` statement, for as long as that is in the block.
    """

    __slots__ = ("__weakref__", "_by", "_run", "backend", "frame", "kind", "lease", "request")

    def __init__(self, kind: Kind, backend: LockBackend, request: LockRequest, lease: Lease, frame: int) -> None:
        run = None if kind == "block" else current_run()
        if run is not None and run.is_over:  # this code goes on after its run
            run = None
        self.kind: Kind = kind if run is None else "run"
        self.backend, self.request, self.lease, self.frame = backend, request, lease, frame
        self._by = weakref.ref(threading.current_thread() if self.kind == "thread" else current_owner())
        self._run = None if run is None else weakref.ref(run)
        if run is not None:
            lease.unbind()
            _ends_with(run, lease)
        elif kind == "thread":
            _thread.leases.add_lease(lease)

    @property
    def is_live(self) -> bool:
        """Whether the lease is held, as far as this process knows."""
        return not self.lease.released and self.lease.trusted

    def is_by(self, owner: Here) -> bool:
        """Whether this thread or task acquired the lease."""
        return self._by() is owner

    @property
    def is_orphaned(self) -> bool:
        """Whether the task or thread that acquired the lease has ended."""
        by = self._by()
        if by is None:
            return True
        return by.done() if isinstance(by, asyncio.Task) else not by.is_alive()

    def is_of(self, run: BaseRun | None) -> bool:
        """Whether the lease belongs to this run."""
        return self._run is not None and self._run() is run


class OwnedLeases:
    """The leases acquired through a ``Lock``. Safe to share between threads: each step is a single call of a list."""

    def __init__(self) -> None:
        self._all: list[OwnedLease] = []

    def __iter__(self) -> Iterator[OwnedLease]:
        return iter(list(self._all))

    def add_lease(self, owned: OwnedLease) -> None:
        """Add a lease."""
        for old in self if self._all else ():
            # The lease of a block is removed at its end. Other ended leases are useless.
            if old.kind != "block" and not old.is_live and (old.is_orphaned or _is_here(old)):
                self.remove_lease(old)
        self._all.append(owned)
        inside = [reference for reference in _inside.get() if (nested := reference()) is not None and nested.is_live]
        _inside.set((*inside, weakref.ref(owned)))

    def find_lease(self) -> OwnedLease | None:
        """Return the lease that this thread, task or run may use, lost or not; ``None``: there is none."""
        if len(self._all) == 1:  # the usual case
            owned = self._all[0]
            if owned.kind == "thread" and not owned.lease.released and owned.is_by(threading.current_thread()):
                return owned
        held = [owned for owned in self._all if not owned.lease.released]
        if not held:
            return None
        owner, run, inside = current_owner(), current_run(), _owned_inside()
        candidates: tuple[Callable[[OwnedLease], bool], ...] = (
            lambda owned: owned.is_by(owner) and (owned.kind != "run" or owned.is_of(run)),
            lambda owned: owned.kind == "thread" and owned.is_by(threading.current_thread()),
            lambda owned: owned.kind == "block" and owned in inside,
            lambda owned: owned.kind == "run" and owned.is_of(run),
            lambda owned: owned.kind == "object" and owned.is_orphaned,
            lambda owned: owned.kind == "object",
        )
        return _first_fitting(candidates, held)

    def end_block(self, frame: int, ended: list[OwnedLease]) -> None:
        """Move the lease of the block that ends here, in any thread or task, into ``ended``.

        It is appended there first, because a signal handler may raise in between.
        """
        while blocks := [reference for reference in self._all if reference.kind == "block"]:
            ended.append(_the_one_that_is_left(blocks, frame))
            if self.remove_lease(ended[-1]):
                _inside.set(tuple(reference for reference in _inside.get() if reference() is not ended[-1]))
                return
            ended.pop()

    def remove_lease(self, owned: OwnedLease) -> bool:
        """Remove a lease; ``False``: another thread has removed it."""
        try:
            self._all.remove(owned)
        except ValueError:
            return False
        return True

    # --- a wait for one's own lease -----------------------------------------------------------------------------------

    def refuse_twice(self, name: str) -> None:
        """Refuse a second acquire by the thread or task that holds the lock through this object.

        Raises:
            NotTheHolder: it would wait for itself.
        """
        for owned in self._all:
            if owned.is_live and _is_here(owned):
                raise NotTheHolder(
                    f"this {kind_of_here()} holds the lock {name!r} already, and would wait for itself: it is not "
                    "re-entrant"
                )


def refuse_self_wait(backend: LockBackend, request: LockRequest) -> None:
    """Refuse to wait for leases that are all held by this thread or task, through other ``Lock`` objects.

    Raises:
        NotTheHolder: it would wait for itself, without end.
    """
    lasting: list[OwnedLease] = []
    for reference in _inside.get():
        owned = reference()
        if owned is None or owned.backend is not backend or owned.request.name != request.name:
            continue
        # A lease without renewal ends by itself, so a wait for it ends.
        if owned.is_live and _is_here(owned) and owned.lease.ends_with_its_owner:
            lasting.append(owned)
    if lasting and len(lasting) >= min(request.limit, *(owned.request.limit for owned in lasting)):
        raise NotTheHolder(
            f"this {kind_of_here()} holds the lock {request.name!r} already, through another Lock object, and would "
            "wait for itself without end: it is not re-entrant. Acquire it once, outside; or pass blocking_timeout="
        )


def _is_here(owned: OwnedLease) -> bool:
    if owned.kind == "thread":
        return owned.is_by(threading.current_thread())
    if not owned.is_by(current_owner()):
        return False
    # Web frameworks run a generator in several threads: one enters a block, and another one is in it now.
    return owned.kind != "block" or owned in _owned_inside()


_inside: ContextVar[tuple[weakref.ref[OwnedLease], ...]] = ContextVar("cronsensus_locks", default=())
"""The leases acquired in this context, newest last: by this thread or task, or by the one that started this task."""


def _owned_inside() -> list[OwnedLease]:
    return [owned for reference in _inside.get() if (owned := reference()) is not None]


def frame_of_caller() -> int:
    """Return the id of the frame that called our caller: the one with the ``with`` statement.

    A block may be left in another thread or task than it was entered in, and several blocks may hold one lock. Their
    frames differ: each is one object for as long as it is in its block.
    """
    return id(sys._getframe(2))  # noqa: SLF001 - there is no public way


def _the_one_that_is_left(blocks: list[OwnedLease], frame: int) -> OwnedLease:
    owner, inside = current_owner(), _owned_inside()
    candidates: tuple[Callable[[OwnedLease], bool], ...] = (
        lambda owned: owned.frame == frame and owned.is_by(owner),
        lambda owned: owned.frame == frame,
        lambda owned: owned in inside and owned.is_by(owner),
        lambda owned: owned in inside,
        lambda owned: owned.is_orphaned,
    )
    return _first_fitting(candidates, blocks) or blocks[0]


def _first_fitting(candidates: tuple[Callable[[OwnedLease], bool], ...], among: list[OwnedLease]) -> OwnedLease | None:
    """Return the newest lease that fits the first candidate, or else the second, and so on."""
    return next((owned for matches in candidates for owned in reversed(among) if matches(owned)), None)


def current_owner() -> Here:
    """Return the task that is running, or else the thread."""
    loaded = sys.modules.get("asyncio")
    if loaded is not None and loaded._get_running_loop() is not None:  # noqa: SLF001 - cheap, and never raises
        task: asyncio.Task[object] | None = loaded.current_task()
        if task is not None:
            return task
    return threading.current_thread()


def kind_of_here() -> str:
    """Return "thread" or "task"."""
    return "thread" if isinstance(current_owner(), threading.Thread) else "task"


# --- what a lease ends with -------------------------------------------------------------------------------------------


class _OfThread(threading.local):
    """The leases of a thread. Python drops this object when the thread ends, for any kind of thread."""

    def __init__(self) -> None:
        self.leases = _Leases()


class _Leases:
    def __init__(self) -> None:
        # A separate dictionary: leases refer to it; a reference to this object would keep it alive after the thread.
        self._all: dict[LeaseRef, None] = {}

    def add_lease(self, lease: Lease) -> None:
        lease.register(lambda ref: ref.ends_with(self._all))

    def __del__(self) -> None:
        for reference in list(self._all):
            reference.thread_ended()


_thread = _OfThread()


def _ends_with(run: BaseRun, lease: Lease) -> None:
    reference, name = weakref.ref(lease), f"{run.job} {run.key}"

    def end() -> None:
        held_lease = reference()
        if held_lease is None or held_lease.released or not held_lease.ends_with_its_owner:
            return
        why = f"the run {name} that acquired it ended without releasing it"
        if isinstance(current_owner(), threading.Thread):
            held_lease.abandon(why)
        else:
            submit_act(lambda: held_lease.abandon(why))

    run.at_end(end)
