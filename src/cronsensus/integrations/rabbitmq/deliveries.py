"""Process the messages that a consumer has fetched.

::

    fetched ──▶ acquired ──▶ the function ──▶ its end is recorded ──▶ acknowledged
       │           │                               ├──▶ failed: held, and tried again
       │           │                               └──▶ failed for good ──▶ dead letter, acknowledged
       │           ├──▶ has succeeded before: acknowledged
       │           ├──▶ has failed for good before: dead letter, acknowledged
       │           └──▶ runs elsewhere: held, and asked again
       └──▶ its key is here already: it waits for that one

A message that is held stays unacknowledged in this process, as long as there is room; further ones wait in the delay
queue. It never goes back by ``nack``: the broker would deliver it again at once, thousands of times a second, and count
each time towards a delivery limit.

Some messages are acquired ahead for each thread, so that no thread waits for the store; they are released when the
consumer stops. If a message kills its process, all messages that run or wait there count as crashed. So a message that
has crashed twice is a suspect, and a process runs only one suspect at a time: then only the guilty one crashes again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

from cronsensus.errors import InvalidOption, InvalidPayload, LeaseLost, StoreError
from cronsensus.integrations.rabbitmq.limits import DeliveryLimitWarning
from cronsensus.integrations.rabbitmq.messages import Handler, Message, MessageKey
from cronsensus.integrations.rabbitmq.options import LONGEST_BACKOFF, Options
from cronsensus.integrations.rabbitmq.publishing import DeadLetter, Publisher
from cronsensus.integrations.results import error_text
from cronsensus.membership.timer import Timer
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Again, Final, Then
from cronsensus.model.states import State
from cronsensus.node.run import enter_run
from cronsensus.outside import Answer, Outside, Refused, Won
from cronsensus.process.background import Background
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.rabbitmq")

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
"""Seconds until the next try to acquire a message that runs elsewhere: doubled each time."""
STORE_PAUSE = 0.5
"""Seconds between two tries while the store is away."""
LONGEST_HELD_SECONDS = 900.0
"""Seconds that a message is held here at most: half of the 30 minutes after which a broker closes the channel."""
SUSPECT_CRASHES = 2
"""Crashes from which a message is a suspect, which runs beside no other suspect."""


class Place(Enum):
    """Where a delivery is."""

    WAITING = "waiting"
    BUSY = "busy"
    HELD = "held"


@dataclass(eq=False, slots=True)
class Delivery:
    """A delivery of a message. Only the channel that it came by can acknowledge it.

    Attributes:
        fetched_at: on the monotonic clock.
        copies: later deliveries of the same key, which wait for this delivery.
    """

    channel: Any
    tag: int
    message: Message
    fetched_at: float
    key: str = ""
    fingerprint: str = ""
    place: Place = Place.WAITING
    pause: float = FIRST_PAUSE
    copies: list[Delivery] = field(default_factory=list)


class Deliveries:
    """The messages of a consumer in this process. Safe to share between threads."""

    def __init__(
        self,
        outside: Outside,
        options: Options,
        *,
        key_of: MessageKey,
        handler: Handler,
        publisher: Publisher,
        acknowledge: Callable[[Delivery], object],
    ) -> None:
        """Start nothing yet; ``acknowledge`` is called on any thread."""
        self._outside, self._options, self._publisher = outside, options, publisher
        self._key_of, self._handler, self._acknowledge = key_of, handler, acknowledge
        self._clock = SystemClock()
        self._timer = Timer(self._clock)
        self._limit = DeliveryLimitWarning(options.queue)
        self._threads = Background("cronsensus-rabbitmq", most=options.threads, log=_log)
        self._lock = threading.Lock()
        self._by_key: dict[str, Delivery] = {}
        self._waiting: deque[Delivery] = deque()
        self._ready: deque[tuple[Delivery, Won]] = deque()
        self._free = options.prefetch - options.room
        self._suspect: Delivery | None = None
        self._held = 0
        self._publishing = 0
        self._away = self._asks = self._stopping = False
        self._ask_at = 0.0

    # --- from the connection ------------------------------------------------------------------------------------------

    @property
    def prefetch(self) -> int:
        """How many unacknowledged messages the broker may deliver."""
        return self._options.prefetch

    def receive(self, channel: Any, tag: int, message: Message) -> None:
        """Accept a message from the broker."""
        delivery = Delivery(channel, tag, message, self._clock.monotonic())
        try:
            delivery.key, delivery.fingerprint = self._key_of(message), message.fingerprint
        except Exception as error:  # noqa: BLE001 - a function of the user's; the dead letter says what it raised
            text = str(error) if isinstance(error, InvalidOption) else f"{type(error).__name__}: {error}"
            self._bury(delivery, DeadLetter("no-key", f"{text}. It is in {self._options.dead_letter!r}."))
            return
        backoff = message.not_before - self._now_in_ms()
        is_early = backoff > 0
        with self._lock:
            first_of_key = self._by_key.setdefault(delivery.key, delivery)
            is_full = self._held >= self._options.room
            if first_of_key is delivery and not is_early:
                self._waiting.append(delivery)
            elif first_of_key is not delivery and not is_full:
                first_of_key.copies.append(delivery)
                self._held += 1
        if first_of_key is delivery and is_early:
            # Bounded: the time comes from a process whose clock may be fast, or from anybody who publishes.
            self._hold_message(delivery, timedelta(seconds=min(backoff / 1000, LONGEST_BACKOFF.total_seconds())))
        elif first_of_key is delivery:
            self._ask_for_waiting()
        elif is_full:
            self._delay(delivery)

    def forget_unbegun(self) -> None:
        """Forget the deliveries of a lost connection that have not started: the broker delivers them again."""
        with self._lock:
            self._waiting.clear()
            self._by_key = {key: delivery for key, delivery in self._by_key.items() if delivery.place is Place.BUSY}
            for delivery in self._by_key.values():
                delivery.copies.clear()
            self._held = 0

    def stop(self) -> None:
        """Start nothing more, and release what no thread has started."""
        with self._lock:
            self._stopping = True
            self._waiting.clear()
            not_started = list(self._ready)
            self._ready.clear()
        self._timer.close()
        for delivery, won in not_started:
            self._outside.submit(partial(self._give_back, delivery, won))

    @property
    def is_busy(self) -> bool:
        """Whether something runs, or its end or dead letter is on its way."""
        with self._lock:
            return bool(self._publishing) or any(delivery.place is Place.BUSY for delivery in self._by_key.values())

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def _ask_for_waiting(self) -> None:
        while (delivery := self._next_waiting()) is not None:
            ask = AskNamed(self._options.spec.name, key=delivery.key, fingerprint=delivery.fingerprint)
            self._outside.acquire_soon((self._options.spec, ask), partial(self._receive_answer, delivery))

    def _next_waiting(self) -> Delivery | None:
        with self._lock:
            if self._stopping or not self._waiting or not self._free:
                return None
            if self._away:  # a single try for all, now and then
                if self._asks or self._clock.monotonic() < self._ask_at:
                    return None
                self._asks = True
            self._free -= 1
            delivery = self._waiting.popleft()
            delivery.place = Place.BUSY
            return delivery

    def _receive_answer(self, delivery: Delivery, answer: Answer | Exception) -> None:
        if isinstance(answer, Exception):
            self._wait_for_store(delivery, answer)
            return
        with self._lock:
            was_away, self._away, self._asks = self._away, False, False
        if was_away:
            _log.warning("the store answers again: the messages of %r go on", self._options.queue)
        [won] = answer
        if isinstance(won, Refused):
            self._answer_refusal(delivery, won)
        elif self._is_other(delivery, won.claim.fingerprint):
            self._outside.release(won)
            self._bury_mismatch(delivery, won.claim.id)
        elif won.claim.crashes >= SUSPECT_CRASHES and not self._is_only_suspect(delivery):
            self._outside.release(won)
            self._hold_message(delivery)
        elif self._make_ready(delivery, won):
            return
        else:
            self._give_back(delivery, won)
        self._free_slot()

    def _is_only_suspect(self, delivery: Delivery) -> bool:
        with self._lock:
            if self._suspect is None:
                self._suspect = delivery
            return self._suspect is delivery

    def _wait_for_store(self, delivery: Delivery, error: Exception) -> None:
        with self._lock:
            was_away, self._away, self._asks = self._away, True, False
            self._ask_at = self._clock.monotonic() + STORE_PAUSE
            self._requeue_locked(delivery, first=True)
            self._free += 1
        if not was_away:
            _log.error(
                "the store cannot be asked; nothing of %r is run and nothing acknowledged until it can: %s",
                self._options.queue,
                error,
                exc_info=None if isinstance(error, StoreError | LeaseLost) else error,
            )
        self._timer.call_after(STORE_PAUSE, self._ask_for_waiting)

    def _answer_refusal(self, delivery: Delivery, refused: Refused) -> None:
        known_run = refused.seen
        if known_run is None:  # a new message of a paused job
            self._hold_message(delivery)
        elif self._is_other(delivery, known_run.fingerprint):
            self._bury_mismatch(delivery, known_run.id)
        elif known_run.state is State.SUCCEEDED:
            self._finish(delivery)
        elif known_run.state.final:
            attempts = known_run.failures + (known_run.state is State.FAILED)
            self._bury(delivery, DeadLetter.of_end(known_run, run=known_run.id, attempts=attempts, key=delivery.key))
        elif known_run.state is not State.RUNNING or self._reclaim_holder(refused):
            self._requeue(delivery)
        else:
            self._hold_message(delivery)

    def _reclaim_holder(self, refused: Refused) -> bool:
        try:
            return refused.seen is not None and self._outside.reclaim_holder(refused.seen)
        except (StoreError, LeaseLost):
            return False

    def _is_other(self, delivery: Delivery, fingerprint: str | None) -> bool:
        return fingerprint is not None and fingerprint != delivery.fingerprint

    def _bury_mismatch(self, delivery: Delivery, run: int) -> None:
        text = f"another body has the key {delivery.key!r}: give messages that differ different keys"
        self._bury(delivery, DeadLetter("mismatch", text, run=run, key=delivery.key))

    # --- running ------------------------------------------------------------------------------------------------------

    def _make_ready(self, delivery: Delivery, won: Won) -> bool:
        with self._lock:
            if self._stopping:
                return False
            self._ready.append((delivery, won))
        self._threads.submit(self._run_next)
        return True

    def _give_back(self, delivery: Delivery, won: Won) -> None:
        try:
            self._outside.release(won)
        finally:
            self._drop(delivery)

    def _run_next(self) -> None:
        with self._lock:
            if not self._ready:  # all were released
                return
            delivery, won = self._ready.popleft()
        self._limit.check_count(delivery.message, won.claim.attempt)
        outcome = self._call_function(delivery.message, won)
        with self._lock:
            if self._suspect is delivery:
                self._suspect = None
        self._outside.settle(won, outcome, partial(self._follow_end, delivery, won, outcome))
        self._free_slot()

    def _call_function(self, message: Message, won: Won) -> Then:
        try:
            body = self._handler.read_body(message.body)
        except InvalidPayload as error:  # another attempt would read the same
            return Final(State.FAILED, "poison", error=error_text(error))
        enter_run(won.run)
        try:
            return self._handler.call_function(body, message, won.run)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: it is recorded, and the thread goes on
            if won.run.was_cut_off(error):  # the store failed, or gave way to another transaction: nothing is done
                _log.warning("the store failed under %s, which is run again: %r", won, error)
                return Again(self._options.backoff_after(1), failed=False, error=error_text(error))
            failures = won.claim.failures + 1
            if failures >= self._options.attempts:
                return Final(State.FAILED, error=error_text(error))
            _log.warning("%s failed, attempt %d of %d: %r", won, failures, self._options.attempts, error)
            return Again(self._options.backoff_after(failures), failed=True, error=error_text(error))
        finally:
            enter_run(None)

    def _follow_end(self, delivery: Delivery, won: Won, outcome: Then, accepted: bool) -> None:  # noqa: FBT001 - ``on_recorded``
        if not accepted:  # another process has it, or has had it
            self._requeue(delivery)
        elif isinstance(outcome, Again):
            self._hold_message(delivery, outcome.after)
        elif isinstance(outcome, Final) and outcome.state is not State.SUCCEEDED:
            attempts = won.claim.failures + 1
            self._bury(delivery, DeadLetter.of_end(outcome, run=won.claim.id, attempts=attempts, key=delivery.key))
        else:
            self._finish(delivery)

    def _free_slot(self) -> None:
        with self._lock:
            self._free += 1
        self._ask_for_waiting()

    # --- after that ---------------------------------------------------------------------------------------------------

    def _finish(self, delivery: Delivery) -> None:
        """Acknowledge a message that has succeeded, and its copies that wait here."""
        with self._lock:
            copies = [copy for copy in delivery.copies if copy.fingerprint == delivery.fingerprint]
            delivery.copies = [copy for copy in delivery.copies if copy.fingerprint != delivery.fingerprint]
            self._held = max(0, self._held - len(copies))
        for acknowledged in (delivery, *copies):
            self._acknowledge(acknowledged)
        self._drop(delivery)

    def _drop(self, delivery: Delivery) -> None:
        with self._lock:
            self._drop_locked(delivery)
        self._ask_for_waiting()

    def _drop_locked(self, delivery: Delivery) -> None:
        """Remove a delivery. The first of its copies takes its place: it may have come by a later connection."""
        if self._by_key.get(delivery.key) is not delivery:
            return
        del self._by_key[delivery.key]
        copies = [copy for copy in delivery.copies if copy.channel.is_open and not self._stopping]
        self._held = max(0, self._held - len(delivery.copies) + len(copies[1:]))
        if copies:
            following = copies[0]
            following.copies = copies[1:]
            self._by_key[following.key] = following
            self._waiting.append(following)

    def _requeue(self, delivery: Delivery) -> None:
        with self._lock:
            self._requeue_locked(delivery)
        self._ask_for_waiting()

    def _requeue_locked(self, delivery: Delivery, *, first: bool = False) -> None:
        delivery.place = Place.WAITING
        if not delivery.channel.is_open or self._stopping:  # its message is the broker's again
            self._drop_locked(delivery)
            return
        (self._waiting.appendleft if first else self._waiting.append)(delivery)

    def _hold_message(self, delivery: Delivery, after: timedelta | None = None, *, here: bool = False) -> None:
        """Keep a message that must not run now: here, or in the delay queue without room or after too long.

        Without ``after`` it is tried again after a growing pause.
        """
        seconds = delivery.pause if after is None else after.total_seconds()
        if after is None:
            delivery.pause = min(LONGEST_PAUSE, delivery.pause * 2)
        with self._lock:
            aged = self._clock.monotonic() - delivery.fetched_at > LONGEST_HELD_SECONDS
            stays = here or not (aged or self._held >= self._options.room)
            if stays:
                delivery.place = Place.HELD
                self._held += 1
        if stays:
            self._timer.call_after(seconds, partial(self._resume, delivery))
        else:
            self._delay(delivery, after)

    def _resume(self, delivery: Delivery) -> None:
        with self._lock:
            if delivery.place is not Place.HELD or self._by_key.get(delivery.key) is not delivery:
                return
            self._held = max(0, self._held - 1)
            self._requeue_locked(delivery)
        self._ask_for_waiting()

    def _delay(self, delivery: Delivery, after: timedelta | None = None) -> None:
        until = None if after is None else self._now_in_ms() + int(after.total_seconds() * 1000)
        self._publish(delivery, partial(self._publisher.delay, delivery.message, until=until))

    def _now_in_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    def _bury(self, delivery: Delivery, letter: DeadLetter) -> None:
        self._publish(delivery, partial(self._publisher.bury, delivery.message, letter))

    def _publish(self, delivery: Delivery, publish: Callable[[Callable[[bool], object]], object]) -> None:
        with self._lock:
            self._publishing += 1

        def follow(accepted: bool) -> None:  # noqa: FBT001 - as the publisher answers
            with self._lock:
                self._publishing -= 1
                stopping = self._stopping
            if accepted:
                self._acknowledge(delivery)
                self._drop(delivery)
            elif stopping or not delivery.channel.is_open:
                self._drop(delivery)  # the broker has it again, or gets it when the connection is closed
            elif self._by_key.get(delivery.key) is delivery:
                self._hold_message(delivery, timedelta(seconds=LONGEST_PAUSE), here=True)
            else:  # it has no key, or is a copy of a message that is here
                self._timer.call_after(LONGEST_PAUSE, lambda: self._publish(delivery, publish))

        publish(follow)
