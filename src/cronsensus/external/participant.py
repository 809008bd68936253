"""A process that takes part in a schedule which another program keeps.

::

    the program names a time ──▶ acquire ──▶ Won ──▶ the program runs it ──▶ settle: the verdict is recorded
                                    └──▶ NotWon: another process has it, or it has its verdict

    another process dies in a run ──▶ it is seen to be gone ──▶ its run is taken back ──▶ ``on_leftover(Won)`` here

A claim is held by a session as that of guarded calls (``once.claims``), which is renewed for as long as anything is
held. Unlike a call, nobody waits for a lost claim, so a thread looks after what dead processes leave: only for as long
as others hold something. When nothing is open it asks the store nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from cronsensus.background import Background
from cronsensus.errors import LeaseLost, StoreError
from cronsensus.external.leftovers import Leftovers
from cronsensus.logger import Logger
from cronsensus.membership.timer import Timer
from cronsensus.model.acquiring import Ask, NotWon
from cronsensus.model.ends import End, Final
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, RunError
from cronsensus.model.states import State
from cronsensus.model.step import GiveBack, Step
from cronsensus.once.claims import Claims
from cronsensus.once.owned_claim import OwnedClaim, Ticket, uncounted_end

_log = Logger("cronsensus.external")

THREADS = 4
MOST_ASKED = 200
"""Jobs whose times are asked for in one step."""
ASK_AGAIN = 1.0
"""Seconds between two tries to read the store's clock."""
NO_TIME = "it has no nominal time, and only times that the program names are run"
"""The reason of what somebody made of such a job in another way."""
DRAIN = 10.0
"""Seconds that ``close`` waits for verdicts to be recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Won:
    """The right to run one occurrence, until it is settled, let go or lost."""

    held: OwnedClaim
    ticket: Ticket

    @property
    def claim(self) -> Claim:
        """Job, nominal time, token and attempt."""
        return self.held.claim

    @property
    def time(self) -> datetime:
        """The nominal time."""
        assert self.claim.scheduled_for is not None  # noqa: S101 - the program is given no other
        return self.claim.scheduled_for

    def __str__(self) -> str:
        time = self.claim.scheduled_for
        return f"run {self.claim.id} of {self.claim.job}" + ("" if time is None else f" at {time:%Y-%m-%d %H:%M:%S%z}")


class Participant:
    """One process's part in the schedule. Safe to share between threads; not for a forked child."""

    def __init__(self, claims: Claims, *, on_leftover: Callable[[Won], None]) -> None:
        """Use ``claims``, which are the caller's to close, after this.

        Args:
            claims: of this process. No guarded function may use the same object: its upkeep would cancel leftovers.
            on_leftover: is given what another process left; on a thread of this. It runs it, or lets go of it.
        """
        self._claims = claims
        self._on_leftover = on_leftover
        self._background = Background("cronsensus-external", most=THREADS, log=_log)
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Won] = {}
        self._empty = threading.Event()
        self._empty.set()
        self._specs: dict[str, JobSpec] = {}
        self._wanted: list[tuple[JobSpec, Ask, Callable[[list[Won | NotWon] | Exception], object]]] = []
        self._asks = False
        self._leftovers = Leftovers(claims, self.functions, self._take_over)
        self._timer = Timer(claims.clock)

    def functions(self) -> list[str]:
        """Return the names of the jobs that this process can run."""
        with self._lock:
            return list(self._specs)

    def declare(self, spec: JobSpec) -> None:
        """Note that this process can run a job: it may get what other processes left of it."""
        with self._lock:
            self._specs[spec.name] = spec

    def withdraw(self, name: str) -> None:
        """Note that this process can run a job no more."""
        with self._lock:
            self._specs.pop(name, None)

    def watch(self) -> None:
        """Look soon for what processes left that are gone."""
        self._leftovers.watch()

    def submit(self, act: Callable[[], object]) -> None:
        """Do ``act`` on a thread of this, which may wait for the store."""
        self._background.submit(act)

    def submit_at(self, time: datetime, act: Callable[[], object]) -> None:
        """Do ``act`` on a thread of this when the store's clock says ``time``, unless this is closed before."""
        self._background.submit(lambda: self._wait_for(time, act))

    # --- one occurrence -----------------------------------------------------------------------------------------------

    def acquire(self, wanted: Sequence[tuple[JobSpec, Ask]]) -> list[list[Won | NotWon]]:
        """Win nominal times, all in one step; the answers are in the order of what is wanted.

        Raises:
            StoreError: the store cannot be asked, so nothing may run.
        """
        for spec, _ in wanted:
            self.declare(spec)
        try:
            answers = self._claims.take_times(wanted)
        finally:
            self._leftovers.watch()
        return [[one if isinstance(one, NotWon) else self._hold(*one) for one in answer] for answer in answers]

    def acquire_soon(self, spec: JobSpec, ask: Ask, then: Callable[[list[Won | NotWon] | Exception], object]) -> None:
        """Win nominal times on a thread of this, and give ``then`` the answer, or why there is none.

        What is wanted while the store is being asked goes into the next step together.
        """
        with self._lock:
            self._wanted.append((spec, ask, then))
            asks, self._asks = self._asks, True
        if not asks:
            self._background.submit(self._ask)

    def _ask(self) -> None:
        while True:
            with self._lock:
                batch, self._wanted = self._wanted[:MOST_ASKED], self._wanted[MOST_ASKED:]
                self._asks = bool(batch)
            if not batch:
                return
            answers: Sequence[list[Won | NotWon] | Exception]
            try:
                answers = self.acquire([(spec, ask) for spec, ask, _ in batch])
            except Exception as error:  # noqa: BLE001 - each of those who asked is told
                answers = [error] * len(batch)
            for (spec, _, then), answer in zip(batch, answers, strict=True):
                try:
                    then(answer)
                except Exception:  # noqa: BLE001 - logged; the others are to be told too
                    _log.exception("what was won of %s could not be handed over, and is given back", spec.name)
                    for won in () if isinstance(answer, Exception) else answer:
                        if isinstance(won, Won) and not won.ticket.over:
                            self.submit(partial(self.let_go, won))

    def settle(
        self,
        won: Won,
        state: State,
        *,
        reason: str | None = None,
        result: str | None = None,
        error: RunError | None = None,
    ) -> None:
        """Record how a run ended, soon, on another thread. A result that comes too late is refused and logged."""
        elapsed = timedelta(seconds=self._claims.clock.monotonic() - won.held.started)
        end = End.of(won.claim, Final(state, reason, result, error), elapsed)
        self._background.submit(lambda: self._settle(won, end))

    def let_go(self, won: Won) -> None:
        """Give back what has not begun; another process may take it at once."""
        try:
            won.held.begun = False
            self._claims.let_go(won.held)
        finally:
            self._drop(won)

    def cut_off(self, won: Won) -> None:
        """Give back what was stopped in the middle: another process runs it again."""
        try:
            step = Step(give_back=(GiveBack(claim=won.claim, cut="stopped"),))
            self._claims.store.step(won.claim.session, step)
        except StoreError as error:
            _log.debug("%s could not be given back now, and is free when the lease ends: %s", won.claim.job, error)
            self._claims.forget(won.held)
        else:
            self._claims.done(won.held)
        finally:
            self._drop(won)

    def close(self, *, wait: bool = True) -> None:
        """Take over nothing more, wait for what is being run here, and give back what has not ended by then.

        Args:
            wait: for runs and their verdicts; else what still runs is free for other processes, which run it again.
        """
        self._leftovers.close()
        self._timer.close()
        if wait and not self._empty.wait(DRAIN):
            _log.warning("%d runs have not ended: other processes may run them again", len(self._held))
        with self._lock:
            left = list(self._held.values())
        for won in left:
            self.cut_off(won)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _wait_for(self, time: datetime, act: Callable[[], object]) -> None:
        try:
            left = (time - self._claims.store.now()).total_seconds()
        except StoreError as error:
            _log.debug("the store's clock cannot be read yet: %s", error)
            self._timer.after(ASK_AGAIN, lambda: self.submit_at(time, act))
        else:
            self._timer.after(max(left, 0.0), lambda: self._background.submit(act))

    def _hold(self, held: OwnedClaim, ticket: Ticket) -> Won:
        won = Won(held, ticket)
        # If it is dropped without a verdict, it was cut off and is to be run again.
        held.end_if_left = lambda one: uncounted_end(one.claim.id, one.claim.token, one.claim.session)
        held.begun = True
        with self._lock:
            self._held[held.claim.id, held.claim.token] = won
            self._empty.clear()
        return won

    def _drop(self, won: Won) -> None:
        won.ticket.over = True
        with self._lock:
            self._held.pop((won.claim.id, won.claim.token), None)
            if not self._held:
                self._empty.set()

    def _settle(self, won: Won, end: End) -> None:
        named = str(won)
        try:
            settled = self._claims.settle(won.held, end)
        except StoreError as error:
            _log.warning("the end of %s could not be recorded yet, and is tried again: %s", named, error)
            # The claim keeps what it is to say.
        except LeaseLost as error:
            _log.warning("the result of %s was refused: %s", named, error)
        else:
            if not settled.accepted:
                _log.warning(
                    "the result of %s was refused: this process was without a sign of life for too long, and another "
                    "one has taken the run over",
                    named,
                )
        self._drop(won)

    def _take_over(self, held: OwnedClaim, ticket: Ticket) -> None:
        won = self._hold(held, ticket)
        if held.claim.scheduled_for is None:
            # Nobody can run it, and while it stands it takes the place of a time.
            _log.warning("run %d of %s has no nominal time, so it is cancelled", held.claim.id, held.claim.job)
            self.settle(won, State.CANCELLED, reason=NO_TIME)
            return
        _log.info("%s at %s was left by a process that is gone: it is run here", won.claim.job, won.time)
        self._background.submit(lambda: self._on_leftover(won))
