"""Run scripts on the server, one at a time on a connection.

After any error of a connection it is closed and never used again: its next answer could be that of an earlier command.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions

from cronsensus.errors import StoreUnavailable
from cronsensus.process.interrupts import Event
from cronsensus.process.this_process import this_process
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.redis_errors import code_of, moved_to, other_schema, refusal_of, translate_error
from cronsensus.stores.redis.redis_url import RedisUrl
from cronsensus.stores.redis.routing import DriverConnection, Pool, Route
from cronsensus.stores.redis.scripts import Script
from cronsensus.timing.clock import SystemClock

MOST_REDIRECTS = 5
MOST_WARM_CONNECTIONS = 4
"""Most connections that are kept for reuse."""
WARM_FOR = 1.0
"""Seconds after which a connection returns to the driver's pool, which checks it more thoroughly."""
_NOT_THIS_SERVER = {"READONLY", "CLUSTERDOWN", "MASTERDOWN"}
"""Errors after which the keys may be on another server."""

Answer = TypeVar("Answer")
_CLOCK = SystemClock()


class TooFewReplicas(StoreUnavailable):
    """A write was done, but fewer replicas than wanted have it. ``answer`` is the script's answer."""

    def __init__(self, message: str, answer: bytes) -> None:
        super().__init__(message)
        self.answer = answer


class Client:
    """A handle's connections to the server that has its keys. Safe to share between threads."""

    def __init__(self, url: RedisUrl, keyspace: Keyspace, route: Route) -> None:
        """Use the server at the end of ``route``."""
        self._url = url
        self._keyspace = keyspace
        self._route = route
        self._closed = Event()
        self._warm: list[_Warm] = []
        self._short = False
        """Whether the last write reached fewer replicas than wanted."""

    @property
    def where(self) -> str:
        """The place, as errors name it."""
        return self._url.where

    def run_script(
        self,
        script: Script,
        arguments: tuple[bytes, ...],
        *,
        confirmed: bool,
        tell: Callable[[socket.socket], None] | None = None,
    ) -> bytes:
        """Run a script and return its answer; ``tell`` is called with the socket on which it came.

        Raises:
            Refusal: the script refused, and nothing was written.
            StoreError: see ``translate_error``. If the answer was lost, the script may have run.
            TooFewReplicas: the script ran, but too few servers have its write.
        """
        keys_and_arguments = (b"2", self._keyspace.meta, self._keyspace.never, *arguments)
        confirmed = confirmed and self._url.min_replicas > 0

        def send(connection: DriverConnection) -> tuple[bytes, int]:
            try:
                return self._send_script(connection, (b"EVALSHA", script.sha, *keys_and_arguments), confirmed=confirmed)
            except exceptions.NoScriptError:
                # The server was restarted or replaced. EVAL also loads the script.
                return self._send_script(connection, (b"EVAL", script.text, *keys_and_arguments), confirmed=confirmed)

        def send_and_report(connection: DriverConnection) -> tuple[bytes, int]:
            answer = send(connection)
            if tell is not None:
                tell(connection._sock)  # noqa: SLF001 - only the socket is new after each connect
            return answer

        answer, replicas = self._talk_to_server(send_and_report)
        if confirmed:
            self._require_replicas(replicas, answer)
        return answer

    def run_command(self, *words: bytes | str | int) -> Any:
        """Run a plain command and return its answer."""

        def talk(connection: DriverConnection) -> Any:
            connection.send_command(*words)
            return connection.read_response()

        return self._talk_to_server(talk)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._closed.set()
        self._cool_down()
        self._route.close()

    # --- replicas -----------------------------------------------------------------------------------------------------

    def require_replicas(self) -> None:
        """Raise if the last write reached too few replicas, and there still are too few.

        Raises:
            StoreUnavailable: there are too few.
        """
        if self._short:
            self._require_replicas(self.run_command("WAIT", self._url.min_replicas, self._patience_seconds), b"")

    @property
    def _patience_seconds(self) -> int:
        return max(1, round(self._url.replica_timeout * 1000))

    def _require_replicas(self, replicas: int, answer: bytes) -> None:
        self._short = replicas < self._url.min_replicas
        if self._short:
            raise TooFewReplicas(
                f"{self.where}: {replicas} replicas confirmed the last write within {self._url.replica_timeout:g} s, "
                f"and min_replicas asks for {self._url.min_replicas}: a failover could lose it, so nothing new starts "
                "until they do. Look at them: INFO replication",
                answer,
            )

    # --- talking ------------------------------------------------------------------------------------------------------

    def _send_script(
        self, connection: DriverConnection, command: tuple[bytes, ...], *, confirmed: bool
    ) -> tuple[bytes, int]:
        """Send a script and, with it, WAIT for the number of replicas that have its write; return both answers.

        WAIT counts for the last write of its own connection. A verb that is repeated because it was not confirmed
        writes nothing more, and may use another connection. So a write that always takes place is sent in between.
        """
        if not confirmed:
            connection.send_packed_command([_pack_command(command)])
            return connection.read_response(), 0
        pulse = (b"HSET", self._keyspace.pulse, b"", b"")
        wait = (b"WAIT", self._url.min_replicas, self._patience_seconds)
        connection.send_packed_command(connection.pack_commands([command, pulse, wait]))
        answers = [self._read_answer(connection) for _ in range(3)]
        for answer in answers:
            if isinstance(answer, exceptions.ResponseError):
                raise answer
        return answers[0], answers[2]

    def _read_answer(self, connection: DriverConnection) -> Any:
        try:
            return connection.read_response()
        except exceptions.ResponseError as error:
            return error

    def _talk_to_server(self, talk: Callable[[DriverConnection], Answer]) -> Answer:
        """Call the server that has the keys; follow the keys if they moved, and translate errors."""
        for _ in range(MOST_REDIRECTS):
            try:
                return self._lend_connection(talk)
            except exceptions.ResponseError as error:
                address = moved_to(error)
                self._cool_down()
                # This is a refusal: nothing was done here, so it may be sent again.
                if address is None or not self._route.follow_move(address):
                    self._raise_meaning(error)
            except (exceptions.RedisError, OSError) as error:
                self._cool_down()
                self._route.forget_place()
                raise translate_error(error, self.where) from error
        raise StoreUnavailable(f"{self.where}: each server of the Cluster names another one; redis-cli --cluster check")

    def _raise_meaning(self, error: exceptions.ResponseError) -> None:
        refusal = refusal_of(error)
        if refusal is None:
            if code_of(error) in _NOT_THIS_SERVER:
                self._route.forget_place()
            raise translate_error(error, self.where) from error
        if refusal.word == "SCHEMA":
            raise other_schema(refusal.rest, self.where, str(self._keyspace)) from error
        raise refusal from None

    def _lend_connection(self, talk: Callable[[DriverConnection], Answer]) -> Answer:
        if self._closed.is_set():
            raise self._was_closed()
        pool = self._route.pool()
        warm = self._take_warm(pool)
        connection = warm.connection if warm else pool.get_connection()
        in_order = False
        try:
            answer = talk(connection)
            in_order = True
            return answer
        except exceptions.ResponseError:
            in_order = True
            raise
        except (AttributeError, ValueError) as error:
            if not self._closed.is_set():
                raise
            raise self._was_closed() from error  # by another thread, under the driver's hands
        finally:
            if not in_order:
                connection.disconnect()
            if not (in_order and self._keep_warm(warm, pool, connection)):
                pool.release(connection)

    def _was_closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"this handle on {self.where} was closed; open the store again with open_store()")

    # --- connections that were in use a moment ago --------------------------------------------------------------------

    def _keep_warm(self, warm: _Warm | None, pool: Pool, connection: DriverConnection) -> bool:
        if len(self._warm) >= MOST_WARM_CONNECTIONS or self._closed.is_set():
            return False
        try:
            warm = warm or _Warm(pool, connection)
        except (TypeError, ValueError, AttributeError):  # another thread has found the server gone and closed them all
            return False
        warm.since = _CLOCK.monotonic()
        self._warm.append(warm)
        return True

    def _take_warm(self, pool: Pool) -> _Warm | None:
        """Return a connection that was good a moment ago, without any data since.

        The driver's pool costs as much as everything else of a short verb.
        """
        while self._warm:
            try:
                warm = self._warm.pop()
            except IndexError:  # another thread was faster
                return None
            if warm.pid != this_process.pid:
                continue  # the parent's; its pool keeps it from being used here
            if warm.pool is pool and _CLOCK.monotonic() - warm.since < WARM_FOR and warm.is_quiet:
                return warm
            warm.pool.release(warm.connection)
        return None

    def _cool_down(self) -> None:
        """Return all connections to their pools."""
        while self._warm:
            with contextlib.suppress(IndexError):
                warm = self._warm.pop()
                if warm.pid == this_process.pid:
                    warm.pool.release(warm.connection)


class _Warm:
    """A connection that no thread uses now."""

    def __init__(self, pool: Pool, connection: DriverConnection) -> None:
        self.pool, self.connection = pool, connection
        self.pid = this_process.pid
        self.since = 0.0
        self._poll = select.poll()
        self._poll.register(connection._sock, select.POLLIN)  # noqa: SLF001 - the driver's own way costs ten times as much

    @property
    def is_quiet(self) -> bool:
        """Whether the server has neither sent anything nor hung up."""
        return not self._poll.poll(0)


def _pack_command(words: tuple[bytes, ...]) -> bytes:
    """Return a command in the protocol's form."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)
