"""The methods that a store's back end implements: for each verb of ``Store`` the one with an underscore.

The contracts stand in ``base``. Arguments are checked, and there is something to do, when one of these is called.
A store implements those that are abstract; the others have a default, the reads among them in ``default_reads``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Self

from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.job import JobHistory, JobSpec
from cronsensus.model.ledger import Identity, Loss, Prune, TrailEntry
from cronsensus.model.occurrence import (
    Claim,
    Enqueued,
    Item,
    LogLine,
    Note,
    RunView,
    Takeover,
)
from cronsensus.model.rewind import Rewind
from cronsensus.model.session import LockGrant, LockView, Renewal, SessionSpec
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step
from cronsensus.stores.default_reads import DefaultReads
from cronsensus.stores.transacting import RunTransaction, no_shared_transactions, no_transactions
from cronsensus.stores.values import DefineResult, Partition, Pruned, StoreCapabilities, View
from cronsensus.stores.wait_queues import WaitQueues


class Backend(DefaultReads):
    """The verbs of one kind of store."""

    namespace: str

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """Return what this store can do."""

    # --- set-up ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _migrate(self) -> list[str]: ...
    @abstractmethod
    def _check(self) -> None: ...
    @abstractmethod
    def _close(self) -> None: ...
    @abstractmethod
    def _sibling(self) -> Self: ...
    @abstractmethod
    def _now(self) -> datetime: ...

    # --- jobs ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _define_jobs(
        self, specs: Sequence[JobSpec], *, release: str, complete: bool, by: str, retire_after: timedelta
    ) -> DefineResult: ...
    @abstractmethod
    def _retire(self, job: str, *, by: str, why: str) -> bool: ...

    # --- the scheduling round --------------------------------------------------------------------------------------

    @abstractmethod
    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View: ...
    @abstractmethod
    def _step(self, session: str, step: Step) -> Done: ...
    @abstractmethod
    def _acquire(
        self, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta
    ) -> list[tuple[Claim | NotWon, ...]]: ...

    def _transaction(self, claim: Claim) -> AbstractContextManager[RunTransaction]:  # noqa: ARG002
        raise no_transactions(self.capabilities.name)

    def _complete_in(self, connection: Any, claim: Claim, result: str | None, notes: Sequence[Note]) -> None:  # noqa: ARG002
        raise no_transactions(self.capabilities.name)

    def _enqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:  # noqa: ARG002
        raise no_shared_transactions(self.capabilities.name)

    async def _aenqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:  # noqa: ARG002
        raise no_shared_transactions(self.capabilities.name)

    # --- sessions --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _open_session(self, session: SessionSpec, lease: timedelta) -> datetime: ...
    @abstractmethod
    def _renew(self, session: str, lease: timedelta, idle_lease: timedelta) -> Renewal: ...
    @abstractmethod
    def _close_session(self, session: str) -> list[Takeover]: ...
    @abstractmethod
    def _reclaim(self, presumed_dead: Collection[str]) -> list[Takeover]: ...
    @abstractmethod
    def _drain(self, session: str, *, by: str, why: str) -> bool: ...

    # --- locks -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _lock(self, name: str, holder: str, *, ttl: timedelta, session: str | None, limit: int) -> LockGrant | None: ...
    @abstractmethod
    def _extend(self, grant: LockGrant, ttl: timedelta) -> bool: ...
    @abstractmethod
    def _unlock(self, grant: LockGrant) -> bool: ...
    @abstractmethod
    def _break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]: ...

    def _wait_queues(self) -> WaitQueues:
        return WaitQueues()

    def _wake_next(self, name: str) -> None: ...  # most stores cannot

    # --- people and programs ---------------------------------------------------------------------------------------

    @abstractmethod
    def _enqueue(self, items: Sequence[Item]) -> list[Enqueued]: ...
    @abstractmethod
    def _wake(self, numbers: Sequence[int], listed: int | None) -> int: ...
    @abstractmethod
    def _trigger(
        self, job: str, payload: str | None, key: str | None, downstream: Sequence[str], *, by: str, why: str
    ) -> Enqueued: ...
    @abstractmethod
    def _pause(self, job: str, *, by: str, why: str) -> bool: ...
    @abstractmethod
    def _resume(self, job: str, *, by: str, why: str) -> bool: ...
    @abstractmethod
    def _rewind(self, rewind: Rewind, *, by: str, why: str) -> bool: ...
    @abstractmethod
    def _cancel(self, occurrence: int, *, by: str, why: str) -> State: ...
    @abstractmethod
    def _retry(self, occurrence: int, *, by: str, why: str, again: bool) -> Enqueued: ...
    @abstractmethod
    def _forget(self, job: str, key: str, *, by: str, why: str, running: bool, only: int | None) -> State | None: ...
    @abstractmethod
    def _backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str) -> list[Enqueued]: ...

    # --- maintenance -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _prune(self, before: datetime | None, limit: int) -> Pruned: ...
    @abstractmethod
    def _wait(self, timeout: float) -> bool: ...

    def _register_presence(self, session: str | None) -> None: ...  # most stores cannot

    def _signs(self, sessions: Collection[str]) -> dict[str, bool]:  # noqa: ARG002 - most stores show none
        return {}

    def _notify(self) -> None: ...  # nodes look now and then all the same

    # --- reads -----------------------------------------------------------------------------------------------------

    # ``_jobs``, ``_occurrences``, ``_ranges``, ``_sessions``, and the reads that follow from them, are in DefaultReads.

    @abstractmethod
    def _history(self, job: str) -> JobHistory: ...
    @abstractmethod
    def _runs(self, numbers: Sequence[int]) -> list[RunView]: ...
    @abstractmethod
    def _logs(self, number: int, after: int, limit: int) -> list[tuple[int, int, LogLine]]: ...
    @abstractmethod
    def _locks(self, name: str | None, limit: int) -> list[LockView]: ...
    @abstractmethod
    def _trail(self, target: str | None, after: int | None, limit: int) -> list[TrailEntry]: ...
    @abstractmethod
    def _identity(self) -> Identity | None: ...
    @abstractmethod
    def _note_in_trail(self, act: Loss | Prune, by: str) -> None: ...

    def _describe(self) -> dict[str, Any]:
        return {"store": self.capabilities.name, "namespace": self.namespace}
