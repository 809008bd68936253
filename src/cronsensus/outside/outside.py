"""Claims for a process that is no node: it runs work that another program names, such as a scheduler or a broker.

::

    the program names a time or a key ──▶ acquire ──▶ Won ──▶ the program runs it ──▶ settle: recorded
                                             └──▶ Refused: another process has it, or it has ended

    another process dies in a run ──▶ its death is noticed ──▶ its run is reclaimed ──▶ ``on_leftover`` here

Nobody waits for a claim that another process lost. So a thread takes over leftovers (the runs of dead processes), if
the program wants them. It sends statements only while other processes hold claims, or something waits.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from cronsensus.errors import LeaseLost, StoreError
from cronsensus.membership.timer import Timer
from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.ends import End, Final, Then
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.model.step import GiveBack, Step
from cronsensus.outside.claims import OutsideClaims, Owned
from cronsensus.outside.leftovers import Leftovers
from cronsensus.outside.owned_claim import OwnedClaim, Ticket, uncounted_end
from cronsensus.outside.pruning import Pruning
from cronsensus.process.background import Background
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.run import Run

if TYPE_CHECKING:
    from sqlalchemy import Connection

_log = Logger("cronsensus.outside")

THREADS = 4
MOST_AT_ONCE = 200
"""Most requests, and most ends, in a step."""
CLOCK_RETRY_INTERVAL = 1.0
"""Seconds between two tries to read the store's clock."""
CLOSE_RETRY_INTERVAL = 0.2
"""Seconds between two attempts to record the end of a run whose process was killed."""
NO_TIME = "it has no nominal time, and only times that the program names are run"
"""The reason of an occurrence of such a job that was created in another way."""
DRAIN = timedelta(seconds=10)
"""How long ``close`` waits for runs and their ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Won:
    """The right to run an occurrence, until it is settled, released or lost."""

    held: OwnedClaim
    ticket: Ticket

    @property
    def claim(self) -> Claim:
        """Job, nominal time or key, token and attempt."""
        return self.held.claim

    @property
    def run(self) -> Run:
        """The run, for its code; ``run.lease_lost`` is set when another process may have it."""
        return self.held.run

    @property
    def time(self) -> datetime:
        """The nominal time; only if it was acquired by time."""
        assert self.claim.scheduled_for is not None  # noqa: S101 - it was acquired by time
        return self.claim.scheduled_for

    def __str__(self) -> str:
        time = self.claim.scheduled_for
        name = f" under {self.claim.key!r}" if time is None else f" at {time:%Y-%m-%d %H:%M:%S%z}"
        return f"run {self.claim.id} of {self.claim.job}{name}"


@dataclass(frozen=True, slots=True)
class Refused:
    """An occurrence that was not won, and why.

    Attributes:
        seen: if it was acquired by name: the existing occurrence, with its result or its session.
    """

    why: NotWon
    seen: Occurrence | None = None


Wanted = tuple[JobSpec, Ask | AskNamed]
Answer = list[Won | Refused]
"""The answer to a request: an entry for each of its times, or a single one for its key."""


class Outside:
    """The claims of a process that is no node. Safe to share between threads; a forked child needs a new one."""

    def __init__(self, claims: OutsideClaims) -> None:
        """Use ``claims``, which the caller closes after this object; guarded calls have claims of their own."""
        self._claims = claims
        self._background = Background("cronsensus-outside", most=THREADS, log=_log)
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Won] = {}
        self._empty = threading.Event()
        self._empty.set()
        self._specs: dict[str, JobSpec] = {}
        self._wanted: list[tuple[Wanted, Callable[[Answer | Exception], object]]] = []
        self._is_acquiring = False
        self._ended: list[Won] = []
        self._is_recording = False
        self._take_leftover: Callable[[Won], object] | None = None
        self._pruning = Pruning(claims.store, claims.clock)
        self._leftovers = Leftovers(claims, self.functions, self._take_over, self._pruning)
        self._timer = Timer(claims.clock)

    # --- what this process can run ------------------------------------------------------------------------------------

    def functions(self) -> list[str]:
        """Return the names of the jobs that this process can run."""
        with self._lock:
            return list(self._specs)

    def declare(self, *jobs: JobSpec) -> None:
        """Record that this process can run these jobs, so it may get their leftovers."""
        with self._lock:
            self._specs.update((job.name, job) for job in jobs)

    def withdraw(self, *names: str) -> None:
        """Record that this process cannot run these jobs any more."""
        with self._lock:
            for name in names:
                self._specs.pop(name, None)

    def on_leftover(self, take: Callable[[Won], object]) -> None:
        """Take over leftovers, and have ``take`` run or release each of them.

        It is called on a background thread. Without it nothing is taken over here: if a broker delivers messages again,
        that is enough.
        """
        self._take_leftover = take

    def look_for_leftovers(self) -> None:
        """Look for leftovers soon."""
        if self._take_leftover is not None:
            self._leftovers.watch_soon()

    def prune_when_due(self) -> None:
        """Prune old rows on a background thread, if it is time. With ``on_leftover`` that happens anyway."""
        if self._pruning.is_due():
            self._background.submit(self._prune)

    def keep_session(self) -> AbstractContextManager[None]:
        """Keep this process's session open, so that it is listed while idle."""
        return self._claims.keep_session()

    def now(self) -> datetime:
        """Return the store's time."""
        return self._claims.store.now()

    def submit(self, act: Callable[[], object]) -> None:
        """Call ``act`` on a background thread, which may wait for the store."""
        self._background.submit(act)

    def submit_at(self, time: datetime, act: Callable[[], object]) -> None:
        """Call ``act`` on a background thread at ``time`` by the store's clock, unless this is closed before."""
        self._background.submit(lambda: self._wait_for(time, act))

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(self, wanted: Sequence[Wanted]) -> list[Answer]:
        """Win times and keys in a single step of the store; the answers are in the order of ``wanted``.

        If an occurrence acquired by name is refused, the existing occurrence is read.

        Raises:
            StoreError: the store cannot be used, so nothing may run.
            LeaseLost: this process was declared dead twice in a row; nothing may run.
        """
        self.declare(*(spec for spec, _ in wanted))
        try:
            answers = self._claims.acquire_claims(wanted)
        finally:
            self.look_for_leftovers()
        return [
            [
                self._refused_answer(ask, outcome) if isinstance(outcome, NotWon) else self._hold_claim(outcome)
                for outcome in answer
            ]
            for (_, ask), answer in zip(wanted, answers, strict=True)
        ]

    def acquire_soon(self, request: Wanted, then: Callable[[Answer | Exception], object]) -> None:
        """Win times or a key on a background thread, and call ``then`` with the answer or the error.

        Requests that come while the store is busy go into the next step together.

        Raises:
            InvalidOption: an invalid key or time; ``then`` is not called.
        """
        request[1].checked()  # here, or it would fail all requests of the same step
        with self._lock:
            self._wanted.append((request, then))
            is_acquiring, self._is_acquiring = self._is_acquiring, True
        if not is_acquiring:
            self._background.submit(self._acquire_once)

    def _acquire_once(self) -> None:
        try:
            while batch := self._take_wanted():
                self._ask_together(batch)
        except BaseException:
            with self._lock:
                self._is_acquiring = False  # or no later request would be sent
            raise

    def _take_wanted(self) -> list[tuple[Wanted, Callable[[Answer | Exception], object]]]:
        with self._lock:
            batch, self._wanted = self._wanted[:MOST_AT_ONCE], self._wanted[MOST_AT_ONCE:]
            self._is_acquiring = bool(batch)
        return batch

    def _ask_together(self, batch: Sequence[tuple[Wanted, Callable[[Answer | Exception], object]]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = self.acquire([request for request, _ in batch])
        except Exception as error:  # noqa: BLE001 - passed on to each caller
            answers = [error] * len(batch)
        for (request, callback), answer in zip(batch, answers, strict=True):
            try:
                callback(answer)
            except Exception:  # noqa: BLE001 - logged; the others get their answers, too
                _log.exception("a claim of %s could not be passed to its callback, and is released", request[0].name)
                for won in () if isinstance(answer, Exception) else answer:
                    if isinstance(won, Won) and not won.ticket.over:
                        self.submit(partial(self.release, won))

    def _refused_answer(self, ask: Ask | AskNamed, why: NotWon) -> Refused:
        if why is not NotWon.LOST or not isinstance(ask, AskNamed):
            return Refused(why)
        try:
            occurrences = self._claims.store.occurrences(OccurrenceFilter(job=ask.job, key=ask.named.key), limit=1)
        except StoreError as error:  # others of the same step were won, and must run
            _log.debug("the occurrence %r cannot be read: %s", ask.key, error)
            return Refused(why)
        return Refused(why, occurrences[0] if occurrences else None)

    def reclaim_holder(self, seen: Occurrence) -> bool:
        """End the session that runs an occurrence, if its process is gone; ``True``: the occurrence is free.

        Raises:
            StoreError: the store cannot be used.
        """
        return self._claims.reclaim_if_dead(self._claims.find_session(seen.session))

    def close_by_name(self, spec: JobSpec, ask: AskNamed, then: Final, *, wait: timedelta = DRAIN) -> bool:
        """Record the end of a run whose process was killed. Return whether this call recorded it.

        It waits until the run is free. ``False``: it has an end already, or its process stayed alive all this time.

        Raises:
            StoreError: the store cannot be used.
        """
        until = self._claims.clock.monotonic() + wait.total_seconds()
        while True:
            [[answer]] = self.acquire([(spec, ask)])
            if isinstance(answer, Won):
                return self.settle_now(answer, then)
            if answer.seen is not None and answer.seen.state.final:
                return False
            if answer.seen is not None and answer.seen.session is not None and self.reclaim_holder(answer.seen):
                continue
            if self._claims.clock.monotonic() >= until:
                return False
            Event().wait(CLOSE_RETRY_INTERVAL)

    # --- ending runs --------------------------------------------------------------------------------------------------

    def settle(self, won: Won, then: Then, on_recorded: Callable[[bool], object] | None = None) -> None:
        """Record how a run ended, soon, on another thread. Ends that come together are recorded in one step.

        Args:
            won: the run.
            then: the occurrence's next state.
            on_recorded: called once on a background thread, with whether the store has accepted the end. ``False``:
                this process could not renew its session in time, and another one may run it again.
        """
        with self._lock:
            if not won.held.set_end(self._end_of(won, then), on_recorded):
                _log.warning("%s was settled already; the first end counts", won)
                return
            self._ended.append(won)
            is_recording, self._is_recording = self._is_recording, True
        if not is_recording:
            self._background.submit(self._record_ends)

    def settle_now(self, won: Won, then: Then) -> bool:
        """Record how a run ended; return whether the store has accepted it. ``False``: it was taken over meanwhile.

        Raises:
            StoreError: the store is away; this process goes on trying for as long as its session lives.
        """
        try:
            settled = self._claims.record_end(won.held, self._end_of(won, then))
        except LeaseLost:
            return False
        finally:
            self._drop_claim(won)
        return settled.accepted

    @contextmanager
    def transaction(self, won: Won) -> Iterator[Connection]:
        """Open a transaction on the store's database that commits effects with the end; see ``Run.transaction``.

        Settling it afterwards as succeeded is accepted.
        """
        with won.run.transaction() as connection:
            yield connection

    def release(self, won: Won) -> None:
        """Release a claim whose run has not started; another process may claim it at once."""
        try:
            won.held.begun = False
            self._claims.settle_unneeded(won.held)
        finally:
            self._drop_claim(won)

    def cut_off(self, won: Won) -> None:
        """Release a claim whose run was stopped in the middle: another process runs it again."""
        try:
            step = Step(give_back=(GiveBack(claim=won.claim, cut="stopped"),))
            self._claims.store.step(won.claim.session, step)
        except StoreError as error:
            _log.debug("%s could not be released now, and is free when the lease ends: %s", won.claim.job, error)
            self._claims.drop_claim(won.held)
        else:
            self._claims.drop_settled(won.held)
        finally:
            self._drop_claim(won)

    def close(self, *, wait: timedelta = DRAIN) -> None:
        """Stop taking over leftovers, wait for runs to end here, and release those that have not ended by then.

        Args:
            wait: how long; other processes run again what has not ended.
        """
        self._pruning.close()
        self._leftovers.close()
        self._timer.close()
        if not wait:
            self._record_ends()  # runs that have ended are recorded, and not run again
        elif not self._empty.wait(wait.total_seconds()):
            _log.warning("%d runs have not ended: other processes may run them again", len(self._held))
        with self._lock:
            unended = list(self._held.values())
        for won in unended:
            if not won.held.is_settled:  # else its end is on its way
                self.cut_off(won)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _prune(self) -> None:
        try:
            self._pruning.prune()
        except StoreError as error:
            _log.debug("old rows could not be pruned now: %s", error)

    def _wait_for(self, time: datetime, act: Callable[[], object]) -> None:
        try:
            seconds = (time - self.now()).total_seconds()
        except StoreError as error:
            _log.debug("the store's clock cannot be read yet: %s", error)
            self._timer.call_after(CLOCK_RETRY_INTERVAL, lambda: self.submit_at(time, act))
        else:
            self._timer.call_after(max(seconds, 0.0), lambda: self._background.submit(act))

    def _hold_claim(self, owned: Owned) -> Won:
        held, ticket = owned
        won = Won(held, ticket)
        # If it is dropped without an end, it was cut off and must run again.
        held.end_if_left = lambda claim: uncounted_end(claim.claim.id, claim.claim.token, claim.claim.session)
        held.begun = True
        with self._lock:
            self._held[held.claim.id, held.claim.token] = won
            self._empty.clear()
        return won

    def _drop_claim(self, won: Won) -> None:
        won.ticket.over = True
        with self._lock:
            self._held.pop((won.claim.id, won.claim.token), None)
            if not self._held:
                self._empty.set()

    def _end_of(self, won: Won, then: Then) -> End:
        elapsed = timedelta(seconds=self._claims.clock.monotonic() - won.held.started)
        return End.of(won.claim, then, elapsed)

    def _record_ends(self) -> None:
        try:
            while ended_runs := self._take_ended():
                by_session: dict[str, list[Won]] = defaultdict(list)
                for won in ended_runs:
                    by_session[won.claim.session].append(won)
                for ends_of_session in by_session.values():
                    self._settle_together(ends_of_session)
        except BaseException:
            with self._lock:
                self._is_recording = False  # or no later end would be sent
            raise

    def _take_ended(self) -> list[Won]:
        with self._lock:
            ended, self._ended = self._ended[:MOST_AT_ONCE], self._ended[MOST_AT_ONCE:]
            self._is_recording = bool(ended)
        return ended

    def _settle_together(self, ended_runs: Sequence[Won]) -> None:
        """Record the ends of a session's runs. A result that the store refuses, because it came too late, is logged."""
        try:
            settled = self._claims.record_ends({won.held: won.held.left_end() for won in ended_runs})
            for won, answer in zip(ended_runs, settled, strict=True):
                if not answer.accepted:
                    _log.warning(
                        "the result of %s was refused: this process could not renew its session in time, and "
                        "another one has taken the run over",
                        won,
                    )
        except StoreError as error:
            for won in ended_runs:  # the claim keeps its end
                _log.warning("the end of %s could not be recorded yet, and is tried again: %s", won, error)
        except LeaseLost as error:
            for won in ended_runs:
                _log.warning("the result of %s was refused: %s", won, error)
                won.held.report_recorded(accepted=False)
        except Exception:  # noqa: BLE001 - logged; the claims keep their ends
            _log.exception("a mistake in cronsensus; please report it. %d ends are tried again", len(ended_runs))
        for won in ended_runs:
            self._drop_claim(won)

    def _take_over(self, claim: OwnedClaim, ticket: Ticket) -> None:
        won = self._hold_claim((claim, ticket))
        spec = self._specs.get(claim.claim.job)
        if claim.claim.scheduled_for is None and spec is not None and spec.has_only_times:
            # Nobody can run it, and while it is open it takes up the job's ``concurrency``.
            _log.warning("run %d of %s has no nominal time, so it is cancelled", claim.claim.id, claim.claim.job)
            self.settle(won, Final(State.CANCELLED, NO_TIME))
            return
        _log.info("%s was left by a process that is gone: it is run here", won)
        take = self._take_leftover
        assert take is not None  # noqa: S101 - without it there is no thread for leftovers
        self._background.submit(lambda: take(won))
