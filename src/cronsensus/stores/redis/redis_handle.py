"""The base of the Redis store's verbs: run a script, decode its answer, raise the error of a refusal."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from cronsensus.errors import InvalidOption, LeaseLost, UnknownJob
from cronsensus.model.job import no_run_by_hand
from cronsensus.model.ledger import CLOCK_SET_BACK
from cronsensus.stores.clock_watch import STORE_ACTOR, TOLERANCE, ClockReading, ClockWatch
from cronsensus.stores.redis.client import Client
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.redis_codec import pack, unpack_answer
from cronsensus.stores.redis.redis_errors import Refusal
from cronsensus.stores.redis.redis_url import RedisUrl
from cronsensus.stores.redis.scripts import script_of
from cronsensus.stores.unreadable import Unreadable
from cronsensus.timing.clock import Clock, SystemClock
from cronsensus.timing.instants import to_micros


class Handle:
    """One handle on a namespace."""

    namespace: str
    _url: RedisUrl
    _keyspace: Keyspace
    _client: Client
    _clock: Clock | None
    _sender: str
    """What the notifications of this handle say, so that it does not wake itself."""

    def _prepare_clock_watch(self) -> None:
        """Prepare to compare the server's clock with one that never steps, from the first write on."""
        self._steady = self._clock or SystemClock()
        self._watch = ClockWatch()
        self._last_reading: ClockReading | None = None
        self._unreadable = Unreadable()

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return what was left out because it cannot be read."""
        return self._unreadable.list_texts()

    def _read_script(self, verb: str, *arguments: Any, tell: Callable[[socket.socket], None] | None = None) -> Any:
        """Run a script that writes nothing; return its answer, and ``tell`` through which connection it came."""
        return self._run_script(verb, self._pack_arguments(arguments), confirmed=False, tell=tell)[1]

    def _write_script(self, verb: str, *arguments: Any) -> Any:
        """Run a script that writes; return its answer. A clock that was set back is written down in the same step."""
        return self._run_watched(verb, self._pack_arguments(arguments), confirmed=False)

    def _decide_script(self, verb: str, *arguments: Any) -> Any:
        """Run a script that decides something; return its answer once as many replicas have it as the URL asks for.

        Raises:
            TooFewReplicas: they have not. It is done all the same.
        """
        return self._run_watched(verb, self._pack_arguments(arguments), confirmed=True)

    def _pack_arguments(self, arguments: tuple[Any, ...]) -> bytes:
        try:
            return pack(arguments)
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidOption(f"{self._url.where} cannot keep this value: {error}") from error

    def _run_watched(self, verb: str, arguments: bytes, *, confirmed: bool) -> Any:
        asked_at = self._steady.monotonic()
        last, earliest, entry = self._last_reading, b"", b""
        if last is not None:
            earliest = b"%d" % (last.now + round((asked_at - last.answered_at) * 1_000_000) - TOLERANCE)
        try:
            now, answer = self._run_script(verb, arguments, earliest, confirmed=confirmed)
        except Refusal as refused:
            if refused.word != "SETBACK":
                raise
            set_back = self._watch.compare_reading(ClockReading(int(refused.rest), asked_at, self._steady.monotonic()))
            if set_back is not None:
                entry = pack([STORE_ACTOR, CLOCK_SET_BACK, "", set_back.why, json.dumps(set_back.details)])
            asked_at = self._steady.monotonic()
            now, answer = self._run_script(verb, arguments, b"", entry, confirmed=confirmed)
        self._last_reading = ClockReading(int(now), asked_at, self._steady.monotonic())
        self._watch.keep_reading(self._last_reading)
        return answer

    def _run_script(
        self,
        verb: str,
        arguments: bytes,
        earliest: bytes = b"",
        entry: bytes = b"",
        *,
        confirmed: bool,
        tell: Callable[[socket.socket], None] | None = None,
    ) -> Any:
        now = b"" if self._clock is None else b"%d" % to_micros(self._clock.now())
        try:
            script_arguments = (arguments, now, earliest, entry)
            return unpack_answer(
                self._client.run_script(script_of(verb), script_arguments, confirmed=confirmed, tell=tell)
            )
        except Refusal as refused:
            if refused.word == "LEASELOST":
                raise LeaseLost("the session is not alive; what it held may be with another node by now") from None
            if refused.word == "UNKNOWNJOB":
                raise UnknownJob(
                    f"no job is called {refused.rest!r} in the store; define it first, or see: cronsensus jobs list"
                ) from None
            if refused.word == "RETIRED":
                raise UnknownJob(f"the job {refused.rest!r} is retired; define it again to bring it back") from None
            if refused.word == "ELSEWHERE":
                raise no_run_by_hand(refused.rest) from None
            raise
