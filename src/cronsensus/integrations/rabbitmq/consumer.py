"""``consumer``: the decorator and its options; and the process that consumes until a signal stops it."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

from cronsensus.errors import InvalidOption, StoreError
from cronsensus.integrations.rabbitmq.connection import Connection, read_url
from cronsensus.integrations.rabbitmq.deliveries import Deliveries
from cronsensus.integrations.rabbitmq.messages import DEFAULT_KEY, Handler, Message, MessageKey
from cronsensus.integrations.rabbitmq.options import (
    LONGEST_BACKOFF,
    Acknowledge,
    Options,
    QueueType,
    resolve_sizes,
)
from cronsensus.integrations.rabbitmq.publishing import Publisher
from cronsensus.integrations.rabbitmq.receiver import Receiver
from cronsensus.integrations.rabbitmq.storing import PREFETCH, Storing
from cronsensus.jobs.job import Job
from cronsensus.model.job import RABBITMQ, JobSpec, Policies, check_choice, name_kept_job
from cronsensus.outside import Outside
from cronsensus.process.logger import Logger
from cronsensus.scheduler import Scheduler
from cronsensus.stores.transacting import no_transactions
from cronsensus.timing.durations import Duration, parse_duration

_log = Logger("cronsensus.rabbitmq")

P = ParamSpec("P")
R = TypeVar("R")

MOST_CRASHES = 5
"""Processes that a message may end before it is put aside. Messages that run beside the guilty one count, too."""
ATTEMPTS, BACKOFF, KEEP = 5, "1s", "7d"
STORE_PAUSE = 1.0
_LONGEST_QUEUE_NAME = 200


def consumer(
    scheduler: Scheduler,
    queue: str,
    *,
    key: str | Callable[[Message], str] = DEFAULT_KEY,
    attempts: int = ATTEMPTS,
    backoff: Duration = BACKOFF,
    dead_letter: str = "{queue}.failed",
    threads: int | None = None,
    room: int | None = None,
    prefetch: int | None = None,
    type: QueueType = "quorum",  # noqa: A002 - as RabbitMQ calls it
    declare: bool = True,
    ack: Acknowledge = "done",
    transaction: bool = False,
    keep: Duration = KEEP,
) -> Callable[[Callable[P, R]], Consumer[P, R]]:
    """Make a function the consumer of a queue: each message runs once, over all processes that consume.

    The function is called with the body in the type of its first parameter (bytes as they came, text, or a type from
    JSON), and with the ``Message`` if it has a second parameter. A message that comes again is acknowledged if it has
    succeeded, and waits while it runs elsewhere. Not prevented: if a process dies in the middle, the function runs
    again; a dead letter may be there twice; a message may run again after ``keep``.

    Args:
        scheduler: names the store; it need not be started.
        queue: its name.
        key: the identity of a message: a template over ``properties``, ``headers`` and ``body`` (of JSON),
            ``"body"`` for a hash of the body, or a function of the ``Message``.
        attempts: failures after which a message is put aside, over all processes.
        backoff: wait before the second attempt; doubles with each, up to one minute.
        dead_letter: the queue for messages that fail for good.
        threads: how many messages run at a time in one process; 8 by default.
        room: how many are held in one process while they run elsewhere or wait for another attempt; as ``threads``.
        prefetch: how many the broker delivers to one process ahead of their acknowledgement, of which ``room`` may be
            held; three more for each thread than run and are held. With ``threads`` no message waits for a thread here
            while another process has one: for messages that take seconds.
        type: of the queues that are declared: ``"quorum"`` or ``"classic"``.
        declare: declare the queue; ``False``: take it as it is. The other two are always declared.
        ack: ``"done"``: acknowledge a message when its run has ended. ``"stored"``: enqueue it as a job under its key
            and acknowledge it at once; the scheduler's nodes run it. The function takes the body alone, or is a job.
        transaction: hand the function a connection of the store's database, before the body, and commit what it writes
            there together with the record: the effects of each message exactly once. For SQL stores.
        keep: how long the outcome of a message is remembered.

    Raises:
        InvalidOption: an impossible option.
        UnsupportedFunction: the function is async, or does not take a body.
    """
    check_choice(ack, Acknowledge, what="ack")
    if ack == "stored":
        refuse_with_stored(
            is_given=any(size is not None for size in (threads, room, prefetch)), transaction=transaction
        )
        threads, prefetch = 1, PREFETCH
    threads, room, prefetch = resolve_sizes(threads, room, prefetch)
    if not 0 < len(queue) <= _LONGEST_QUEUE_NAME:
        raise InvalidOption(f"queue {queue!r}: use 1 to {_LONGEST_QUEUE_NAME} characters")
    if not dead_letter:
        raise InvalidOption(f"dead_letter={dead_letter!r} would drop messages that fail for good: name a queue")
    if isinstance(attempts, bool) or attempts < 1:
        raise InvalidOption(f"attempts={attempts!r}: a whole number, at least 1")
    if ack == "done" and parse_duration(backoff, what="backoff") > LONGEST_BACKOFF:
        raise InvalidOption(
            f'backoff={backoff!r}: at most one minute, because the broker waits meanwhile; with ack="stored" it does '
            "not, and it may be any time"
        )
    job = name_kept_job(RABBITMQ, queue)
    kept_for = parse_duration(keep, what="keep")
    if not kept_for:
        raise InvalidOption(f"keep={keep!r}: a message that is kept for no time is run each time that it comes")
    policies = Policies(overlap="allow", max_crashes=MOST_CRASHES, keep=kept_for)
    options = Options(
        queue=queue,
        spec=JobSpec(name=job, function=job, policies=policies, source="runtime"),
        attempts=attempts,
        backoff=parse_duration(backoff, what="backoff"),
        dead_letter=dead_letter.replace("{queue}", queue),
        threads=threads,
        room=room,
        prefetch=prefetch,
        type=check_choice(type, QueueType, what="type"),
        declare=declare,
        transaction=transaction,
    )
    if options.dead_letter in {queue, options.held_queue}:
        raise InvalidOption(f"dead_letter={dead_letter!r} is a queue of the consumer's own: name another one")

    def decorate(function: Callable[P, R]) -> Consumer[P, R]:
        job = None
        if ack == "stored":
            non_defaults = {"attempts": attempts != ATTEMPTS, "backoff": backoff != BACKOFF, "keep": keep != KEEP}
            job = make_job(scheduler, function, options, [name for name, is_given in non_defaults.items() if is_given])
        return Consumer(scheduler, options, key, function, job)

    return decorate


def refuse_with_stored(*, is_given: bool, transaction: bool) -> None:
    """Refuse options on how messages run here, if nodes run them; ``is_given``: threads, room or prefetch.

    Raises:
        InvalidOption: there is such an option.
    """
    if is_given:
        raise InvalidOption(
            'threads, room and prefetch say how messages run here, and with ack="stored" nodes run them: leave them '
            'out; CRONSENSUS_CONCURRENCY, or @scheduler.job(concurrency=…) below @consumer(…, ack="stored")'
        )
    if transaction:
        raise InvalidOption(
            'transaction=True commits with the record of a run here, and with ack="stored" nodes run it: leave it '
            "out, and write `with current_run().transaction() as connection:` in the function"
        )


def make_job(
    scheduler: Scheduler, function: Callable[..., Any], options: Options, given: Sequence[str]
) -> Job[..., Any]:
    """Return the job that runs stored messages: the function itself, if it is a job already.

    Raises:
        InvalidOption: it is a job with its own options; ``given``: options that were given here, too.
        DuplicateJob, UnsupportedFunction: as ``Scheduler.job``.
    """
    if isinstance(function, Job):
        if given:
            raise InvalidOption(
                f"{', '.join(given)}: {function.name!r} is a job with options of its own; write them there: "
                "@scheduler.job(retries=…, retry_delay=…, keep=…)"
            )
        return function
    policies = options.spec.policies
    declared: Job[..., Any] = scheduler.job(
        overlap="allow",
        max_crashes=policies.max_crashes,
        keep=policies.keep,
        retries=options.attempts - 1,
        retry_delay=options.backoff,
        retry_max_delay=max(options.backoff, LONGEST_BACKOFF),
    )(function)
    return declared


class Consumer(Generic[P, R]):
    """A function that consumes a queue. A call calls the function itself, unguarded."""

    def __init__(
        self,
        scheduler: Scheduler,
        options: Options,
        key: str | Callable[[Message], str],
        function: Callable[P, R],
        job: Job[..., Any] | None = None,
    ) -> None:
        """Check ``key`` and ``function``; open nothing."""
        functools.update_wrapper(self, function)
        self._scheduler, self._options, self._function = scheduler, options, function
        self._job = job
        plain_function = function if job is None else job.function
        self._handler = Handler(plain_function, transaction=options.transaction, stored=job is not None)
        self._key_of = MessageKey(key, getattr(function, "__name__", "function"), options.queue)
        self._stopping = threading.Event()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self._function(*args, **kwargs)

    @property
    def scheduler(self) -> Scheduler:
        """Names the store."""
        return self._scheduler

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._options.queue

    @property
    def job(self) -> Job[..., Any] | None:
        """The job that runs stored messages; ``None``: messages run here."""
        return self._job

    def run(self, url: str) -> None:
        """Consume until SIGTERM, SIGINT or ``stop``; then finish what runs, for 10 seconds at most.

        Messages that were fetched and not started go back to the broker. It waits for a broker or store that is away.

        Raises:
            ConfigurationError: an invalid URL, or the broker refused the login or a queue.
            StoreError: the store refused, and would again.
            UnsupportedTransaction: ``transaction=True``, and the store has none.
        """
        parameters = read_url(url)
        try:
            with self._stopping_by_signals():
                outside = self._open_store()
                if outside is not None:
                    self._consume(outside, Connection(url, parameters, self._options), parameters)
        finally:
            self._stopping.clear()

    def _consume(self, outside: Outside, connection: Connection, parameters: Any) -> None:
        publisher = Publisher(parameters, self._options)
        make_receiver = partial(Deliveries, outside) if self._job is None else partial(Storing, self._job)
        deliveries: Receiver = make_receiver(
            self._options,
            key_of=self._key_of,
            handler=self._handler,
            publisher=publisher,
            acknowledge=connection.acknowledge,
        )
        try:
            with outside.keep_session():
                connection.consume(deliveries, self._stopping, outside.prune_when_due)
        finally:
            deliveries.stop()
            connection.close()
            publisher.close()

    def stop(self) -> None:
        """Let ``run`` end; from any thread."""
        self._stopping.set()

    def _open_store(self) -> Outside | None:
        is_logged = False
        while not self._stopping.is_set():
            try:
                store = self._scheduler._opened.shared()
                if self._options.transaction and not store.capabilities.transactional_finish:
                    raise no_transactions(store.capabilities.name)
                store.now()
                return self._scheduler._opened.outside()
            except StoreError as error:
                if not error.retryable:
                    raise
                if not is_logged:
                    _log.error("the store cannot be reached, so %r is not consumed yet: %s", self._options.queue, error)
                is_logged = True
                self._stopping.wait(STORE_PAUSE)
        return None

    @contextmanager
    def _stopping_by_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

        def stop(_number: int, _frame: FrameType | None) -> None:
            restore()  # a second one ends the process
            self._stopping.set()

        for number in previous_handlers:
            signal.signal(number, stop)
        try:
            yield
        finally:
            restore()
