"""Calls to independent Redis servers in parallel; a dead or slow server delays no call."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from redis import exceptions
from redis.connection import Connection, SSLConnection

from cronsensus.errors import InvalidOption, StoreError
from cronsensus.process.interrupts import Condition, Event
from cronsensus.process.logger import Logger
from cronsensus.stores.redis.pubsub import Subscription
from cronsensus.stores.redis.redis_url import RedisUrl, read_url
from cronsensus.stores.redis.routing import DriverConnection, Route, connection_options
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.lock")

ANSWER_SECONDS = 0.5
"""Seconds to wait for a server at most; by then the others have answered long ago."""
STRAGGLER_SECONDS = 0.02
"""Seconds to wait for the slower servers when the faster ones do not agree."""


class Script:
    """A Lua script, and the hash by which a server that has run it before knows it."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


@dataclass(eq=False)
class MajorityCall:
    """A call to all servers, and the answers so far: by server, its answer or its error.

    Once the wait is over it does not change: later answers are dropped.
    """

    masters: int
    enough: Callable[[MajorityCall], bool]
    answers: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, Exception] = field(default_factory=dict)
    changed: Condition = field(default_factory=Condition)
    closed: bool = False

    def note(self, master: int, answer: Any) -> None:
        """Record an answer."""
        with self.changed:
            if self.closed:
                return
            if isinstance(answer, Exception):
                self.failed[master] = answer
            else:
                self.answers[master] = answer
            self.changed.notify_all()

    @property
    def pending(self) -> int:
        """The number of masters that have not answered yet."""
        return self.masters - len(self.answers) - len(self.failed)

    def wait(self, timeout: float, *, quorum: int | None = None) -> None:
        """Wait until there are enough answers, or all have answered, or the time is up.

        When ``quorum`` have answered, and that is not enough, wait only a moment more for the others.
        """

        def is_over() -> bool:
            return self.enough(self) or not self.pending

        with self.changed:
            self.changed.wait_for(
                lambda: is_over() or (quorum is not None and len(self.answers) >= quorum), max(0.0, timeout)
            )
            if quorum is not None and not is_over():
                self.changed.wait_for(is_over, STRAGGLER_SECONDS)
            self.closed = True


Question = tuple[MajorityCall, Script, Sequence[bytes], Sequence[bytes], float]
"""A round, its script with keys and arguments, and until when it is worth sending (monotonic seconds)."""


class Master:
    """A server: a thread that sends it scripts one after the other, over a single connection."""

    def __init__(self, number: int, url: RedisUrl, clock: Clock) -> None:
        """Prepare; no connection is opened yet."""
        self.number = number
        self.url = url
        self._clock = clock
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._connection: DriverConnection | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def ask(self, question: Question) -> None:
        """Queue a script for this server; returns at once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"cronsensus-{self.url.where}", daemon=True)
                self._thread.start()
        self._questions.put(question)

    def close(self) -> None:
        """End the thread after the queued scripts."""
        self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            round_, script, keys, arguments, until = question
            if self._clock.monotonic() >= until:
                round_.note(self.number, TimeoutError(f"{self.url.where} was still busy with what it was asked before"))
                continue
            try:
                round_.note(self.number, self._run(script, keys, arguments))
            except Exception as error:  # noqa: BLE001 - it is the answer of this server
                self._hang_up()
                round_.note(self.number, error)
        self._hang_up()

    def _run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        connection = self._connection or self._connect()
        tail = (b"%d" % len(keys), *keys, *arguments)
        try:
            connection.send_command(b"EVALSHA", script.sha, *tail)
            return connection.read_response()
        except exceptions.NoScriptError:
            connection.send_command(b"EVAL", script.text, *tail)
            return connection.read_response()

    def _connect(self) -> DriverConnection:
        host, port = self.url.hosts[0]
        options = connection_options(self.url)
        for limit in ("socket_timeout", "socket_connect_timeout"):
            options[limit] = min(options[limit], ANSWER_SECONDS)
        connection_class = Connection if self.url.tls is None else SSLConnection
        self._connection = connection = cast("DriverConnection", connection_class(**options, host=host, port=port))
        connection.connect()
        return connection

    def _hang_up(self) -> None:
        """Drop a connection on which anything went wrong: its next answer could belong to the previous script."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


class Masters:
    """All servers of a majority."""

    def __init__(self, urls: Sequence[str], clock: Clock) -> None:
        """Read the URLs; nothing is opened yet.

        Raises:
            InvalidOption: they are fewer than three, or an even number, or not of independent servers.
        """
        parsed_urls = [read_url(url) for url in urls]
        if len(parsed_urls) < 3 or len(parsed_urls) % 2 == 0:
            raise InvalidOption(
                f"{len(parsed_urls)} servers: a majority needs an odd number of independent masters, three or more"
            )
        if any(url.kind != "server" for url in parsed_urls):
            raise InvalidOption(
                "a majority is one of independent masters; write redis:// URLs, not Sentinels or Clusters"
            )
        if len({(url.hosts, url.database) for url in parsed_urls}) < len(parsed_urls):
            raise InvalidOption("a master is named twice; a majority is one of independent masters")
        self._clock = clock
        self._all = [Master(number, url, clock) for number, url in enumerate(parsed_urls)]
        self.quorum = len(parsed_urls) // 2 + 1

    def __len__(self) -> int:
        return len(self._all)

    @property
    def urls(self) -> list[RedisUrl]:
        """The URLs of the servers."""
        return [master.url for master in self._all]

    def ask(
        self,
        script: Script,
        keys: Sequence[bytes],
        *arguments: bytes,
        enough: Callable[[MajorityCall], bool],
        worth_asking_for: float = float("inf"),
        hurried: bool = False,
    ) -> MajorityCall:
        """Run a script on all servers in parallel, and return when there is ``enough``; all run it sooner or later.

        Args:
            script: run by each.
            keys: of the script.
            arguments: of the script.
            enough: whether the answers so far suffice, so that more could change nothing.
            worth_asking_for: seconds after which a server that has not started the script skips it.
            hurried: do not wait for slow ones once a majority has answered without agreeing.
        """
        call = MajorityCall(len(self._all), enough)
        worth_until = self._clock.monotonic() + worth_asking_for
        for master in self._all:
            master.ask((call, script, keys, arguments, worth_until))
        call.wait(2 * ANSWER_SECONDS, quorum=self.quorum if hurried else None)
        return call

    def close(self) -> None:
        """Close connections."""
        for master in self._all:
            master.close()


class RedlockQueues(WaitQueues):
    """Receives unlocks from the first master that accepts a subscription."""

    notifies_all = True

    def __init__(self, urls: Sequence[RedisUrl], channel: bytes) -> None:
        """Listen to ``channel``; nothing is connected before the first ``join_queue``."""
        super().__init__()
        self._urls = list(urls)
        self._channel = channel
        self._lock = threading.Lock()
        self._joined: set[str] = set()
        self._subscription: Subscription | None = None
        self._begun = Event()

    def join_queue(self, name: str) -> None:
        """Join the queue. Where no master can be listened to, nothing is received, and waiters poll."""
        with self._lock:
            self._joined.add(name)
            while self._subscription is None and self._urls and not self._closed.is_set():
                url = self._urls.pop(0)
                subscription = Subscription(Route(url), self._channel, where=url.where)
                try:
                    subscription.listen()
                    self._subscription = subscription
                except StoreError:
                    subscription.close()
        self._begun.set()

    def leave_queue(self, name: str) -> None:
        """Leave the queue."""
        with self._lock:
            self._joined.discard(name)

    def receive(self, timeout: float) -> list[str]:
        """Wait for notifications.

        Raises:
            StoreUnavailable: the connection broke; open another one and join again.
        """
        if not self._begun.wait(max(0.0, timeout)):
            return []
        subscription = self._subscription
        if subscription is None:
            self._closed.wait(max(0.0, timeout))
            return []
        unlocked = dict.fromkeys(message.decode() for message in subscription.receive(max(0.0, timeout)))
        with self._lock:
            to_notify = [name for name in unlocked if name in self._joined]
            self._joined.difference_update(to_notify)
        return to_notify

    def close(self) -> None:
        """Leave all queues."""
        self._closed.set()
        self._begun.set()
        with self._lock:
            subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
