"""Carry verbs of a scheduler's store out, with or without a node in this process.

Around each verb stand only: defining a job that this process declares and the store does not know yet; and a hint to
the nodes, so that they look at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cronsensus.batching.batch import is_batch
from cronsensus.declared.declarations import Declarations
from cronsensus.errors import UnknownJob
from cronsensus.jobs.calls import Call
from cronsensus.jobs.handle import Handle
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Enqueued, Occurrence
from cronsensus.opened.opened_store import OpenedStore
from cronsensus.opened.scheduler_setup import Setup
from cronsensus.payload.typed import UNTYPED, Types
from cronsensus.stores.base import Store

MOST_AT_ONCE = 1000
"""Most occurrences that are made in one step: a longer transaction would keep the nodes waiting for the lock."""

T = TypeVar("T")


class Acts:
    """The parts that each act of a scheduler needs.

    Attributes:
        opened: the store.
        declared: what this process's code declares.
        headers: gives what goes along with what is enqueued here and now; ``None``: nothing does.
    """

    def __init__(self, opened: OpenedStore, declared: Declarations, setup: Setup) -> None:
        """Act in ``opened``, as ``setup`` calls this process."""
        self.opened = opened
        self.declared = declared
        self._setup = setup
        self.headers: Callable[[], Mapping[str, str] | None] = lambda: None

    def add_headers(self, calls: Sequence[Call[T]]) -> Sequence[Call[T]]:
        """Return calls with the headers of whoever enqueues them now."""
        headers = self.headers()
        if headers is None:
            return calls
        return [replace(call, item=replace(call.item, headers=headers)) for call in calls]

    def act_and_hint(self, jobs: Collection[str], verb: Callable[[Store], T], *, hint: bool = True) -> T:
        """Carry a verb out and hint at it. Of ``jobs``, those declared here and new to the store are defined first.

        Args:
            jobs: their names.
            verb: what to do.
            hint: whether nodes are notified here, because the verb itself does not.

        Raises:
            UnknownJob: neither this process nor the store has one of them.
        """
        store = self.opened.ready()
        try:
            done = verb(store)
        except UnknownJob as unknown:
            self.define_unknown(jobs, unknown)
            done = verb(store)
        if hint:
            store.notify()
        return done

    def define_unknown(self, jobs: Collection[str], unknown: UnknownJob) -> None:
        """Define those of ``jobs`` that are declared here.

        Raises:
            UnknownJob: none is.
        """
        specs = [spec for job in sorted(jobs) if (spec := self.declared.spec(job)) is not None]
        if not specs:
            raise UnknownJob(unknown_job(*jobs) if len(jobs) == 1 else str(unknown)) from unknown
        self.define_jobs(specs, None)

    def define_jobs(self, specs: Sequence[JobSpec], by: str | None) -> None:
        """Define jobs in the store, and notify nodes."""
        store = self.opened.ready()
        store.define_jobs(specs, release=self._setup.release, by=self.operator_name(by))
        store.notify()

    def operator_name(self, by: str | None) -> str:
        """Return the name for the trail: ``by``, or else this node's."""
        return by or self._setup.node_name

    def handle_of(self, made: Enqueued, *, committed: bool = True) -> Handle[Any]:
        """Return the handle of an occurrence; ``committed``: it is in the store already."""
        return Handle.of(made, self.opened, self._types_of, lambda: self.operator_name(None), committed=committed)

    def _types_of(self, job: str, run: Occurrence | None = None) -> Types:
        function = self.declared.function_of(job)
        if function is None:
            return UNTYPED
        registered = function.registered
        return registered.result_types if run is not None and is_batch(registered, run) else registered.types


def unknown_job(job: str) -> str:
    """Return the message for an unknown job."""
    return f"no job is called {job!r}, neither here nor in the store; `cronsensus jobs list` shows those in the store"
