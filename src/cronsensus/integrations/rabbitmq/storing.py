"""``ack="stored"``: a message becomes a job under its key, and is acknowledged as soon as the store has it.

::

    fetched ──▶ enqueued, with all that wait, in one step ──▶ acknowledged ──▶ a node runs it
       ├──▶ no key, no JSON, too large ──▶ dead letter, acknowledged
       └──▶ another body has its key   ──▶ dead letter, acknowledged

If a process dies in between, the message comes again, and is known by its key then. The broker does not wait for the
work: a ``consumer_timeout`` and a delivery limit do not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cronsensus.errors import InvalidOption, InvalidPayload, PayloadMismatch, StoreError
from cronsensus.integrations.rabbitmq.deliveries import STORE_PAUSE, Delivery
from cronsensus.integrations.rabbitmq.messages import Handler, Message, MessageKey
from cronsensus.integrations.rabbitmq.options import Options
from cronsensus.integrations.rabbitmq.publishing import DeadLetter, Publisher
from cronsensus.jobs.calls import Call
from cronsensus.jobs.job import Job
from cronsensus.membership.timer import Timer
from cronsensus.payload.codec import LARGEST
from cronsensus.process.background import Background
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.rabbitmq")

PREFETCH = 200
"""Messages that are fetched at a time, and so the most of a step."""
BURY_AGAIN_SECONDS = 2.0
"""Seconds until a dead letter that the broker has not accepted is published again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    delivery: Delivery
    call: Call[Any]


class Storing:
    """The messages of a consumer on their way into the store. Safe to share between threads."""

    def __init__(
        self,
        job: Job[..., Any],
        options: Options,
        *,
        key_of: MessageKey,
        handler: Handler,
        publisher: Publisher,
        acknowledge: Callable[[Delivery], object],
    ) -> None:
        """Start nothing yet; ``acknowledge`` is called on any thread."""
        self._job, self._options, self._publisher = job, options, publisher
        self._key_of, self._handler, self._acknowledge = key_of, handler, acknowledge
        self._clock = SystemClock()
        self._timer = Timer(self._clock)
        self._thread = Background("cronsensus-rabbitmq-store", most=1, log=_log)
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._stores = self._away = False
        self._burying = 0
        self._stopping = threading.Event()

    @property
    def prefetch(self) -> int:
        """How many unacknowledged messages the broker may deliver."""
        return PREFETCH

    def receive(self, channel: Any, tag: int, message: Message) -> None:
        """Accept a message from the broker."""
        delivery = Delivery(channel, tag, message, self._clock.monotonic())
        try:
            delivery.key = self._key_of(message)
        except Exception as error:  # noqa: BLE001 - a function of the user's; the dead letter says what it raised
            text = str(error) if isinstance(error, InvalidOption) else f"{type(error).__name__}: {error}"
            self._bury(delivery, DeadLetter("no-key", f"{text}. It is in {self._options.dead_letter!r}."))
            return
        try:
            waiting = _Waiting(delivery, self._job.options(key=delivery.key).call(self._read_body(message)))
        except (InvalidPayload, InvalidOption) as error:
            reason = "too-large" if len(message.body) > LARGEST else "poison"
            self._bury(delivery, DeadLetter(reason, f"{type(error).__name__}: {error}", key=delivery.key))
            return
        with self._lock:
            self._waiting.append(waiting)
            is_storing, self._stores = self._stores, True
        if not is_storing:
            self._thread.submit(self._store_waiting)

    def _read_body(self, message: Message) -> Any:
        if len(message.body) > LARGEST:
            raise InvalidPayload(
                f"the body is {len(message.body):,} bytes, more than the {LARGEST:,} that a store keeps; store the "
                'data elsewhere and send its key, or leave out ack="stored"'
            )
        return self._handler.read_body(message.body)

    def forget_unbegun(self) -> None:
        """Forget the deliveries of a lost connection: the broker delivers them again."""
        with self._lock:
            self._waiting.clear()

    def stop(self) -> None:
        """Store nothing more."""
        self._stopping.set()
        self.forget_unbegun()
        self._timer.close()

    @property
    def is_busy(self) -> bool:
        """Whether something is being stored, or its dead letter is on its way."""
        with self._lock:
            return self._stores or bool(self._burying)

    # --- storing ------------------------------------------------------------------------------------------------------

    def _store_waiting(self) -> None:
        try:
            while batch := self._take_waiting():
                self._store_together(batch)
        except BaseException:
            with self._lock:
                self._stores = False  # otherwise nothing would be stored any more
            raise

    def _take_waiting(self) -> list[_Waiting]:
        with self._lock:
            batch, self._waiting = self._waiting, []
            self._stores = bool(batch)
        return batch

    def _store_together(self, batch: Sequence[_Waiting]) -> None:
        try:
            self._job.enqueue_many([message.call for message in batch])
        except PayloadMismatch as error:
            if len(batch) > 1:  # alone, each message shows whether it is the cause; a known key changes nothing
                for message in batch:
                    self._store_together([message])
                return
            [message] = batch
            text = f"another body has the key {message.delivery.key!r}: give messages that differ different keys"
            run = error.occurrence if isinstance(error.occurrence, int) else None
            self._bury(message.delivery, DeadLetter("mismatch", text, run=run, key=message.delivery.key))
        except Exception as error:  # noqa: BLE001 - logged; the messages stay where they are
            self._wait_for_store(batch, error)
        else:
            for message in batch:
                self._acknowledge(message.delivery)
            if self._away:
                self._away = False
                _log.warning("the store answers again: the messages of %r go on", self._options.queue)

    def _wait_for_store(self, batch: Sequence[_Waiting], error: Exception) -> None:
        if not self._away:
            self._away = True
            _log.error(
                "the store cannot be asked; nothing of %r is stored and nothing acknowledged until it can: %s",
                self._options.queue, error, exc_info=None if isinstance(error, StoreError) else error,
            )  # fmt: skip
        self._stopping.wait(STORE_PAUSE)
        with self._lock:
            if not self._stopping.is_set():
                self._waiting[:0] = [waiting for waiting in batch if waiting.delivery.channel.is_open]

    # --- dead letters -------------------------------------------------------------------------------------------------

    def _bury(self, delivery: Delivery, letter: DeadLetter) -> None:
        with self._lock:
            self._burying += 1
        self._publisher.bury(delivery.message, letter, partial(self._follow_letter, delivery, letter))

    def _follow_letter(self, delivery: Delivery, letter: DeadLetter, accepted: bool) -> None:  # noqa: FBT001 - ``then``
        with self._lock:
            self._burying -= 1
        if accepted:
            self._acknowledge(delivery)
        elif not self._stopping.is_set() and delivery.channel.is_open:
            self._timer.call_after(BURY_AGAIN_SECONDS, partial(self._bury, delivery, letter))
