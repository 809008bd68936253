"""The thread that reads the store to decide which gated claims may start and which parked occurrences can go on.

It works when a claim comes that only the store can decide, when an end was accepted or a plan carried out that may free
others, and every 5 s for all parked occurrences (a sweep). The rounds' thread does not do this, because it starts every
run: with a store far away, reads for dependents would delay unrelated jobs.

Whoever finds that nothing is open that a parked occurrence waits for wakes it. If two nodes end the last two upstreams
at the same instant, each looks after its own commit, so at least one of them finds none open. While looks show parked
occurrences, the nodes in front sweep, whatever jobs they have; without parked occurrences nothing is read.
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
from cronsensus.node.hooks import ADMITTED, Admit, HooksFactory, Host, Waker
from cronsensus.node.registered import Registered
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.values import View
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

SWEEP_SECONDS = turn_order.SWEEP_EVERY.total_seconds()
"""Least seconds between two sweeps of all parked occurrences."""
IDLE_SECONDS = 3600.0
"""Seconds until the next turn if none is due; each request wakes the thread."""
RETRY_SECONDS = 1.0
"""Seconds until a failed read is repeated."""
PAGE = 200

Answer = Admit | Then | None
"""The decision about a claim; ``None``: the store could not be read, and the claim is released."""
WakeTrigger = tuple[Waker, Hashable]
"""Something that ended or was planned, which a waker checks: others may go on because of it."""


class Waking:
    """Calls the admissions and wakers of all rooms, on a thread and a store handle opened at first use.

    Attributes:
        on_queued: has ``wake_due`` called soon; a simulation calls it by hand.
        on_answer: called on the thread, with the decision about a claim.
        refused: reserved claims to end: a condition on claims, and how they end.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        registry: Mapping[str, Registered],
        wake: Callable[[], None],
        rooms: Sequence[HooksFactory] = (),
    ) -> None:
        """Make the hooks of ``rooms``; ``wake`` has the node claim, after occurrences were woken."""
        self._node_store = store
        self._clock = clock
        self._wake = wake
        self._own_store: Store | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._event = Event()
        self._hurry = Event()
        """Set in addition if a claim waits to be decided: it does not wait for the pause."""
        self._stopping = Event()
        self._queued_claims: list[Claim] = []
        self._company: list[Claim] = []
        self._triggers: dict[Waker, dict[Hashable, None]] = defaultdict(dict)
        self._looked_at = self._swept_at = float("-inf")
        self._sweep_at: float | None = None
        self.refused: deque[tuple[Callable[[Claim], bool], Then]] = deque()
        self.on_queued: Callable[[], None] = self._wake_thread
        self.on_answer: Callable[[Claim, Answer], None] = lambda *_: None
        host = Host(registry, clock, lambda: self.store, lambda applies, then: self.refused.append((applies, then)))
        hooks = [make_hooks(host) for make_hooks in rooms]
        self.admissions = [hook.admission for hook in hooks if hook.admission is not None]
        self.wakers = [hook.waker for hook in hooks if hook.waker is not None]

    @property
    def store(self) -> Store:
        """The handle for reads by runs and features, beside the node's own."""
        with self._lock:
            if self._own_store is None:
                self._own_store = self._node_store.sibling()
            return self._own_store

    def stop(self) -> None:
        """Stop the thread, and close the handle."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        self._event.set()
        self._hurry.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        if self._own_store is not None:
            self._own_store.close()

    # --- admission of claims ------------------------------------------------------------------------------------------

    def decide_claim(self, claim: Claim) -> Admit | Then | None:
        """Decide a claim from what is known here; ``None`` if ``queue_claims`` must. Reads no store."""
        admit, is_decided = ADMITTED, True
        for admission in self.admissions:
            if not admission.concerns_claim(claim):
                continue
            match admission.decide_claim(claim):
                case None:
                    is_decided = False
                case Admit() as answer:
                    admit = answer if admit is ADMITTED else admit.combine_with(answer)
                case then:
                    return then
        return admit if is_decided else None

    def queue_claims(self, claims: Sequence[Claim], company: Collection[Claim]) -> None:
        """Queue claims for the thread, which reads the store; ``on_answer`` is called with each answer.

        Args:
            claims: those that ``decide_claim`` cannot decide.
            company: all claims of the same step.
        """
        with self._lock:
            self._queued_claims += claims
            self._company += company
        self._hurry.set()
        self.on_queued()

    def forget_answers(self) -> None:
        """Drop cached answers of the store: an operator has just cancelled something that runs here."""
        for admission in self.admissions:
            admission.forget_answers()

    def _decide_queued_claims(self) -> None:
        with self._lock:
            claims, self._queued_claims = self._queued_claims, []
            company, self._company = self._company, []
        if not claims:
            return
        answers: dict[int, Answer] = {}
        with self._log_errors("The claims that were to be decided are released"):
            answers = self._combine_admissions(claims, company)
        for claim in claims:
            with self._log_errors("A claim that was to be decided is looked for again"):
                self.on_answer(claim, answers.get(claim.id))

    @contextmanager
    def _log_errors(self, consequence: str) -> Iterator[None]:
        """Keep the thread alive after any exception."""
        try:
            yield
        except StoreError as error:
            _log.debug("the store could not be read. %s: %s", consequence, error)
        except Exception:  # noqa: BLE001 - logged
            _log.exception("a mistake in cronsensus; please report it. %s", consequence)

    def _combine_admissions(self, claims: Sequence[Claim], company: Collection[Claim]) -> dict[int, Answer]:
        """Return the answers of all admissions combined; the first that refuses a claim decides."""
        answers: dict[int, Answer] = dict.fromkeys((claim.id for claim in claims), ADMITTED)
        for admission in self.admissions:
            concerned = [
                claim for claim in claims if isinstance(answers[claim.id], Admit) and admission.concerns_claim(claim)
            ]
            answers_of_one: dict[int, Answer] = {claim.id: admission.decide_claim(claim) for claim in concerned}
            if undecided := [claim for claim in concerned if answers_of_one[claim.id] is None]:
                with self._log_errors("The claims that were to be decided are released"):  # the others need not be
                    answers_of_one |= admission.admit_claims(self.store, undecided, company)
            for claim_id, answer in answers_of_one.items():
                answers[claim_id] = _combine_answers(answers[claim_id], answer)
        return answers

    # --- waking -------------------------------------------------------------------------------------------------------

    def triggers_of_end(self, claim: Claim, then: Then) -> list[WakeTrigger]:
        """Return the triggers to queue once the store has accepted this end. Safe from any thread."""
        pairs = [(waker, waker.trigger_of_end(claim, then)) for waker in self.wakers]
        return [(waker, trigger) for waker, trigger in pairs if trigger is not None]

    def queue_plans(self, plans: Sequence[Plan]) -> None:
        """Queue plans that were carried out and committed."""
        triggers = [(waker, trigger) for waker in self.wakers for trigger in waker.triggers_of_plans(plans)]
        if triggers:
            self.queue_triggers(triggers)

    def learn_view(self, view: View) -> None:
        """Let all wakers learn from a view of the store."""
        for waker in self.wakers:
            waker.learn_view(view)

    def queue_triggers(self, triggers: Sequence[WakeTrigger]) -> None:
        """Queue what ended or was planned, for the thread to find whom to wake."""
        with self._lock:
            for waker, trigger in triggers:
                self._triggers[waker][trigger] = None
        self.on_queued()

    def request_sweep(self) -> None:
        """Have the thread sweep all parked occurrences, ``SWEEP_SECONDS`` after the last sweep at the earliest."""
        if self._sweep_at is None:
            self._sweep_at = max(self._clock.monotonic(), self._swept_at + SWEEP_SECONDS)
            self.on_queued()

    def wake_due(self) -> float:
        """Decide waiting claims, wake what may go on, and sweep if that is due; return the seconds until then.

        It raises nothing; failed reads are repeated.
        """
        self._decide_queued_claims()
        self._looked_at = self._clock.monotonic()
        try:
            for waker in self.wakers:
                self._wake_ready(waker)
            if self._sweep_at is not None and self._looked_at >= self._sweep_at:
                self._sweep_parked()
                self._sweep_at, self._swept_at = None, self._looked_at
        except StoreError as error:
            _log.debug("parked occurrences that may go on could not be read: %s", error)
            self._sweep_at = self._looked_at + RETRY_SECONDS
        except Exception:  # noqa: BLE001 - logged
            if not self._stopping.is_set():
                _log.exception("a mistake in cronsensus; please report it. The parked occurrences are read again")
            self._sweep_at = self._looked_at + SWEEP_SECONDS
        return IDLE_SECONDS if self._sweep_at is None else max(0.0, self._sweep_at - self._clock.monotonic())

    def _wake_ready(self, waker: Waker) -> None:
        """Wake what can go on, in several steps; waiting claims are decided between two of them.

        Triggers that come meanwhile are processed with those that are left, or else after the pause.
        """
        triggers = self._pop_triggers(waker)
        while triggers and not self._stopping.is_set():
            before = dict(triggers)
            try:
                self._wake_runs(waker.find_wakeable(self.store, triggers))
            except StoreError:
                with self._lock:
                    self._triggers[waker] = before | self._triggers[waker]
                raise
            self._decide_queued_claims()
            if triggers:
                triggers |= self._pop_triggers(waker)

    def _pop_triggers(self, waker: Waker) -> dict[Hashable, None]:
        with self._lock:
            return self._triggers.pop(waker, {})

    def _sweep_parked(self) -> None:
        """Wake what may go on, of all parked occurrences."""
        sweeps: dict[str, Callable[[Sequence[Sleeper]], Collection[int]]] | None = None
        for page in self._parked_pages():
            if sweeps is None:
                sweeps = {waker.on: waker.start_sweep(self.store) for waker in self.wakers}
            for on, sweep in sweeps.items():
                if parked := [sleeper for sleeper in page if sleeper.on == on]:
                    self._wake_runs(sweep(parked))

    def _parked_pages(self) -> Iterator[list[Sleeper]]:
        after = 0
        while page := self.store.parked(after=after, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            after = page[-1].id

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
                self._decide_queued_claims()
            self._event.clear()
            wait = self.wake_due()


def _combine_answers(first: Answer, second: Answer) -> Answer:
    """Combine the answers of two features about a claim; the first answer lets it start."""
    if not isinstance(first, Admit) or not isinstance(second, Admit):
        return second
    return second if first is ADMITTED else first.combine_with(second)
