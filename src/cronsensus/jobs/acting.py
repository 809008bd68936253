"""Call verbs of a scheduler's store, with or without a node in this process.

Two things are added to each verb: if a job that this process declares is unknown to the store, it is defined, and the
verb is called again; afterwards nodes are notified, so that they look at once.
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
"""Most occurrences that are created in one step: a longer transaction would keep nodes waiting for the lock."""

T = TypeVar("T")


class Acts:
    """What each act of a scheduler uses: the store, the declarations, and the operator's name.

    Attributes:
        opened: the store.
        declared: what this process's code declares.
        headers: returns the headers of runs that are enqueued now, such as those of a trace; ``None``: they have none.
    """

    def __init__(self, opened: OpenedStore, declared: Declarations, setup: Setup) -> None:
        """Act in ``opened``, under the name of this process in ``setup``."""
        self.opened = opened
        self.declared = declared
        self._setup = setup
        self.headers: Callable[[], Mapping[str, str] | None] = lambda: None

    def add_headers(self, calls: Sequence[Call[T]]) -> Sequence[Call[T]]:
        """Return calls with the present headers."""
        headers = self.headers()
        if headers is None:
            return calls
        return [replace(call, item=replace(call.item, headers=headers)) for call in calls]

    def act_and_notify(self, jobs: Collection[str], verb: Callable[[Store], T], *, notify: bool = True) -> T:
        """Call a verb, and notify nodes. Those of ``jobs`` that are declared here and unknown to the store are defined.

        Args:
            jobs: their names.
            verb: calls it on the store.
            notify: whether nodes are notified here, because the verb itself does not.

        Raises:
            UnknownJob: neither this process nor the store has one of them.
        """
        store = self.opened.ready()
        try:
            answer = verb(store)
        except UnknownJob as unknown:
            self.define_unknown(jobs, unknown)
            answer = verb(store)
        if notify:
            store.notify()
        return answer

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

    def handle_of(self, enqueued: Enqueued, *, committed: bool = True) -> Handle[Any]:
        """Return the handle of an occurrence; ``committed``: it is in the store already."""
        return Handle.of(enqueued, self.opened, self._types_of, lambda: self.operator_name(None), committed=committed)

    def _types_of(self, job: str, run: Occurrence | None = None) -> Types:
        function = self.declared.function_of(job)
        if function is None:
            return UNTYPED
        registered = function.registered
        return registered.result_types if run is not None and is_batch(registered, run) else registered.types


def unknown_job(job: str) -> str:
    """Return the message for an unknown job."""
    return f"no job is called {job!r}, neither here nor in the store; `cronsensus jobs list` shows those in the store"
