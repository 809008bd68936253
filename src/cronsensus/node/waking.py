"""The thread that asks the store which gated claims may start, and which parked occurrences can go on.

When a claim comes that only the store can decide, when an end was accepted or a plan carried out that something may
wait for, and every 5 s for all that is parked. Not on the rounds' thread, which starts everybody's runs: with a store
far away, what waits for others would make strangers late.

What is parked is woken by whoever finds that nothing it waits for is open. Of two nodes that end the last two things
in one instant, each looks after the commit of its own, so at least one finds none open. While a look at the store shows
that anything is parked, the nodes of the active set sweep, whatever jobs they have; where nothing is, nothing is asked.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from cronsensus.errors import StoreError
from cronsensus.model.ends import Then
from cronsensus.model.occurrence import Claim
from cronsensus.model.parking import Sleeper
from cronsensus.model.plan import Plan
from cronsensus.node import turn_order
from cronsensus.node.hooks import FREELY, Begin, HooksFactory, Host, Waker
from cronsensus.node.registered import Registered
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.values import View
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

SWEEP = turn_order.SWEEP.total_seconds()
"""Least seconds between two sweeps of all that is parked."""
IDLE = 3600.0
"""Seconds until the next look where none is wanted; each request wakes the thread."""
RETRY = 1.0
"""Seconds after which what could not be asked is asked again."""
PAGE = 200

Answer = Begin | Then | None
"""What becomes of a claim; ``None``: it could not be asked, and goes back."""
Told = tuple[Waker, Hashable]


class Waking:
    """Calls the admissions and wakers of all rooms, on a thread and a store handle opened at first use.

    Attributes:
        on_told: has ``wake_due`` called soon; a simulation turns it by hand.
        on_answer: told, on the thread, what becomes of a claim that was asked about.
        refused: what is to be ended of what waits here for a slot: which claims, and as what.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        registry: Mapping[str, Registered],
        wake: Callable[[], None],
        rooms: Sequence[HooksFactory] = (),
    ) -> None:
        """Make the hooks of ``rooms``; ``wake`` has the node claim, where something was woken."""
        self._of = store
        self._clock = clock
        self._wake = wake
        self._own: Store | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._event = Event()
        self._hurry = Event()
        """Set beside the other one where a claim waits to be decided: that waits for no pause."""
        self._stopping = Event()
        self._asked: list[Claim] = []
        self._company: list[Claim] = []
        self._told: dict[Waker, dict[Hashable, None]] = defaultdict(dict)
        self._looked_at = self._swept_at = float("-inf")
        self._sweep_at: float | None = None
        self.refused: deque[tuple[Callable[[Claim], bool], Then]] = deque()
        self.on_told: Callable[[], None] = self._wake_thread
        self.on_answer: Callable[[Claim, Answer], None] = lambda *_: None
        host = Host(registry, clock, lambda: self.store, lambda applies, then: self.refused.append((applies, then)))
        hooks = [make_hooks(host) for make_hooks in rooms]
        self.admissions = [one.admission for one in hooks if one.admission is not None]
        self.wakers = [one.waker for one in hooks if one.waker is not None]

    @property
    def store(self) -> Store:
        """A handle for what runs and features ask, beside the node's own."""
        with self._lock:
            if self._own is None:
                self._own = self._of.sibling()
            return self._own

    def stop(self) -> None:
        """Ask nothing more, and close the handle."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        self._event.set()
        self._hurry.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        if self._own is not None:
            self._own.close()

    # --- may a claim begin? -------------------------------------------------------------------------------------------

    def decide_claim(self, claim: Claim) -> Begin | Then | None:
        """Decide a claim from what is known here; ``None`` if ``ask_about_claims`` must. Reads no store."""
        begin, known = FREELY, True
        for admission in self.admissions:
            if not admission.concerns_claim(claim):
                continue
            match admission.decide_claim(claim):
                case None:
                    known = False
                case Begin() as answer:
                    begin = answer if begin is FREELY else begin.combine_with(answer)
                case then:
                    return then
        return begin if known else None

    def ask_about_claims(self, claims: Sequence[Claim], company: Collection[Claim]) -> None:
        """Queue claims for the thread, which reads the store; ``on_answer`` is called with each answer.

        Args:
            claims: what ``decide_claim`` cannot decide.
            company: what was claimed in the same step.
        """
        with self._lock:
            self._asked += claims
            self._company += company
        self._hurry.set()
        self.on_told()

    def forget_answers(self) -> None:
        """Forget earlier answers of the store: an operator has just cancelled something that runs here."""
        for admission in self.admissions:
            admission.forget_answers()

    def _ask_admissions(self) -> None:
        with self._lock:
            claims, self._asked = self._asked, []
            company, self._company = self._company, []
        if not claims:
            return
        answers: dict[int, Answer] = {}
        with self._log_mistakes("Claims that were asked about go back"):
            answers = self._combine_admissions(claims, company)
        for claim in claims:
            with self._log_mistakes("A claim that was asked about is looked for again"):
                self.on_answer(claim, answers.get(claim.id))

    @contextmanager
    def _log_mistakes(self, then: str) -> Iterator[None]:
        """Keep the thread alive whatever is raised."""
        try:
            yield
        except StoreError as error:
            _log.debug("the store could not be asked. %s: %s", then, error)
        except Exception:  # noqa: BLE001 - logged
            _log.exception("a mistake in cronsensus; please report it. %s", then)

    def _combine_admissions(self, claims: Sequence[Claim], company: Collection[Claim]) -> dict[int, Answer]:
        """Return the answers of all admissions combined; the first that refuses a claim decides."""
        answers: dict[int, Answer] = dict.fromkeys((claim.id for claim in claims), FREELY)
        for admission in self.admissions:
            left = [one for one in claims if isinstance(answers[one.id], Begin) and admission.concerns_claim(one)]
            decided: dict[int, Answer] = {one.id: admission.decide_claim(one) for one in left}
            if unknown := [one for one in left if decided[one.id] is None]:
                with self._log_mistakes("Claims that were asked about go back"):  # the others need not
                    decided |= admission.admit_claims(self.store, unknown, company)
            for number, answer in decided.items():
                answers[number] = _combine_answers(answers[number], answer)
        return answers

    # --- what may go on? ----------------------------------------------------------------------------------------------

    def triggers_of_end(self, claim: Claim, then: Then) -> list[Told]:
        """Return the triggers to queue once the store has accepted this end. Safe from any thread."""
        return [(waker, what) for waker in self.wakers if (what := waker.trigger_of_end(claim, then)) is not None]

    def queue_plans(self, plans: Sequence[Plan]) -> None:
        """Queue plans that were carried out and committed."""
        if told := [(waker, what) for waker in self.wakers for what in waker.triggers_of_plans(plans)]:
            self.queue_triggers(told)

    def learn_view(self, view: View) -> None:
        """Let all wakers learn from a view of the store."""
        for waker in self.wakers:
            waker.learn_view(view)

    def queue_triggers(self, told: Sequence[Told]) -> None:
        """Queue what ended or was planned, for the thread to find whom to wake."""
        with self._lock:
            for waker, what in told:
                self._told[waker][what] = None
        self.on_told()

    def request_sweep(self) -> None:
        """Have the thread sweep all that is parked, ``SWEEP`` after the last time at the earliest."""
        if self._sweep_at is None:
            self._sweep_at = max(self._clock.monotonic(), self._swept_at + SWEEP)
            self.on_told()

    def wake_due(self) -> float:
        """Answer about claims, wake what may go on, and sweep if that is due; return the seconds until then.

        Raises nothing; what could not be asked is asked again.
        """
        self._ask_admissions()
        self._looked_at = self._clock.monotonic()
        try:
            for waker in self.wakers:
                self._wake_ready(waker)
            if self._sweep_at is not None and self._looked_at >= self._sweep_at:
                self._sweep_parked()
                self._sweep_at, self._swept_at = None, self._looked_at
        except StoreError as error:
            _log.debug("what is parked and may go on could not be looked for: %s", error)
            self._sweep_at = self._looked_at + RETRY
        except Exception:  # noqa: BLE001 - logged
            if not self._stopping.is_set():
                _log.exception("a mistake in cronsensus; please report it. What is parked is looked at again")
            self._sweep_at = self._looked_at + SWEEP
        return IDLE if self._sweep_at is None else max(0.0, self._sweep_at - self._clock.monotonic())

    def _wake_ready(self, waker: Waker) -> None:
        """Wake what can go on, in several steps; waiting claims are decided between two of them.

        What is told meanwhile goes with what is left, and else waits for the next look, after the pause.
        """
        told = self._pop_triggers(waker)
        while told and not self._stopping.is_set():
            before = dict(told)
            try:
                self._wake_runs(waker.find_wakeable(self.store, told))
            except StoreError:
                with self._lock:
                    self._told[waker] = before | self._told[waker]
                raise
            self._ask_admissions()
            if told:
                told |= self._pop_triggers(waker)

    def _pop_triggers(self, waker: Waker) -> dict[Hashable, None]:
        with self._lock:
            return self._told.pop(waker, {})

    def _sweep_parked(self) -> None:
        """Wake what may go on of all that is parked."""
        sweeps: dict[str, Callable[[Sequence[Sleeper]], Collection[int]]] | None = None
        for page in self._parked_pages():
            if sweeps is None:
                sweeps = {waker.on: waker.start_sweep(self.store) for waker in self.wakers}
            for on, sweep in sweeps.items():
                if parked := [one for one in page if one.on == on]:
                    self._wake_runs(sweep(parked))

    def _parked_pages(self) -> Iterator[list[Sleeper]]:
        last = 0
        while page := self.store.parked(after=last, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            last = page[-1].id

    def _wake_runs(self, numbers: Collection[int]) -> None:
        if numbers and self.store.wake(numbers):
            self._wake()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _wake_thread(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run_thread, name="cronsensus-waking", daemon=True)
                self._thread.start()
        self._event.set()

    def _run_thread(self) -> None:
        wait = 0.0
        while not self._stopping.is_set():
            self._event.wait(wait)
            pause = max((waker.pause for waker in self.wakers), default=0.0)
            while self._hurry.wait(max(0.0, self._looked_at + pause - self._clock.monotonic())):
                self._hurry.clear()
                if self._stopping.is_set():
                    return
                self._ask_admissions()
            self._event.clear()
            wait = self.wake_due()


def _combine_answers(before: Answer, answer: Answer) -> Answer:
    """Combine the answers of two features about a claim; the first answer lets it start."""
    if not isinstance(before, Begin) or not isinstance(answer, Begin):
        return answer
    return answer if before is FREELY else before.combine_with(answer)
