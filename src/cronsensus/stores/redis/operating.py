"""Verbs of people and programs: enqueue, trigger, pause, resume, cancel, retry, backfill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cronsensus.errors import InvalidPayload, InvalidTransition
from cronsensus.model.ids import new_id
from cronsensus.model.occurrence import (
    Enqueued,
    Item,
    scheduled_key,
    still_running,
    succeeded_already,
    too_old,
    when_due,
)
from cronsensus.model.states import Reason, State
from cronsensus.payload.codec import LARGEST, clean, dumps, write_headers
from cronsensus.stores.redis.redis_codec import occurrence_id, to_length, to_micros_text
from cronsensus.stores.redis.redis_errors import Refusal
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.timing.instants import LATEST_MICROS, from_micros, within_stores


class OperatingVerbs(Handle):
    """The verbs that create and cancel occurrences outside of the schedule."""

    def _enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        keys = [new_id() if item.key is None else item.key for item in items]
        rows = [_item_row(item, key) for item, key in zip(items, keys, strict=True)]
        try:
            answers = self._decide_script("enqueue", rows, LARGEST, self._sender)
        except Refusal as refused:
            size, _, job = refused.rest.partition(" ")
            raise InvalidPayload(
                f"arguments of {job!r} are {int(size):,} bytes as JSON, more than the {LARGEST:,} that a store keeps; "
                "store the data elsewhere and pass its key"
            ) from None
        return [
            Enqueued(int(number), item.job, key, created, State(state), _read_payload(payload))
            for item, key, (number, created, state, *payload) in zip(items, keys, answers, strict=True)
        ]

    def _wake(self, numbers: Sequence[int], listed: int | None) -> int:
        """Wake parked occurrences, or the batch whose list is complete; the script notifies nodes."""
        ids, length = [occurrence_id(number) for number in numbers], None if listed is None else str(listed)
        woken: int = self._decide_script("wake", ids, length, self._sender)
        return woken

    def _trigger(
        self, job: str, payload: str | None, key: str | None, downstream: Sequence[str], *, by: str, why: str
    ) -> Enqueued:
        """Run a job now, beside its schedule, and its ``downstream`` jobs after it."""
        own_key = new_id() if key is None else key
        downstream_keys = [[name, new_id()] for name in downstream]
        number, created, state = self._decide_script(
            "trigger", job, own_key, clean(by), clean(why), payload, downstream_keys
        )
        return Enqueued(int(number), job, own_key, created, State(state))

    def _pause(self, job: str, *, by: str, why: str) -> bool:
        paused: bool = self._decide_script("pause", job, clean(by), clean(why))
        return paused

    def _resume(self, job: str, *, by: str, why: str) -> bool:
        resumed: bool = self._decide_script("resume", job, clean(by), clean(why))
        return resumed

    def _cancel(self, occurrence: int, *, by: str, why: str) -> State:
        """Cancel a pending occurrence, or ask a running one to stop."""
        reason = f"{Reason.OPERATOR}: {clean(why)}" if why else Reason.OPERATOR
        try:
            return State(self._decide_script("cancel", occurrence_id(occurrence), clean(by), clean(why), reason))
        except Refusal as refused:
            if refused.word == "FINAL":
                raise InvalidTransition(f"occurrence {occurrence} is {refused.rest} and cannot be cancelled") from None
            raise _not_there(occurrence) from None

    def _retry(self, occurrence: int, *, by: str, why: str, again: bool) -> Enqueued:
        """Create a new occurrence of a final one. Enqueued work stays enqueued; anything else becomes manual."""
        arguments = (occurrence_id(occurrence), new_id(), clean(by), clean(why), again)
        try:
            number, job, key, created, state = self._decide_script("retry", *arguments)
        except Refusal as refused:
            if refused.word == "FINAL":
                raise succeeded_already(occurrence) from None
            if refused.word == "ACTIVE":
                raise InvalidTransition(
                    f"occurrence {occurrence} is {refused.rest}; only a final one can be retried"
                ) from None
            raise _not_there(occurrence) from None
        return Enqueued(int(number), job, key, created, State(state))

    def _forget(self, job: str, key: str, *, by: str, why: str, running: bool, only: int | None) -> State | None:
        try:
            state_before = self._decide_script(
                "forget", job, key, clean(by), clean(why), running, dumps(key, what="the key"),
                None if only is None else occurrence_id(only),
            )  # fmt: skip
        except Refusal:
            raise still_running(job, key) from None
        return State(state_before) if state_before else None

    def _backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str) -> list[Enqueued]:
        rows = [[to_micros_text(time), scheduled_key(time), new_id()] for time in times]
        try:
            answers = self._decide_script("backfill", job, rows, clean(by), clean(why))
        except Refusal as refused:
            horizon, _, time = refused.rest.partition(" ")
            raise too_old(job, from_micros(int(time)), from_micros(int(horizon))) from None
        return [Enqueued(int(number), job, key, created, State(state)) for number, key, created, state in answers]


def _item_row(item: Item, key: str) -> list[Any]:
    return [
        item.job,
        key,
        item.key is not None,
        _payload_json(item.args, item.job),
        _payload_json(item.kwargs, item.job),
        None if item.due_at is None else to_micros_text(when_due(item, item.due_at)),
        within_stores(to_length(item.delay)),
        None if item.priority is None else str(item.priority),
        item.origin.value,
        None if item.expires_in is None else min(to_length(item.expires_in), 2 * LATEST_MICROS),
        None if item.parent is None else f"{item.parent:014d}",
        None if not item.headers else write_headers(item.headers),
    ]


def _payload_json(values: tuple[Any, ...] | Mapping[str, Any] | None, job: str) -> str | None:
    if values is None:
        return None
    plain = dict(values) if isinstance(values, Mapping) else list(values)
    return dumps(plain, what=f"arguments of {job!r}")


def _read_payload(values: list[Any]) -> str | None:
    return values[0] if values and isinstance(values[0], str) else None


def _not_there(occurrence: int) -> LookupError:
    return LookupError(f"there is no occurrence {occurrence}")
