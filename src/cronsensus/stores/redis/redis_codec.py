"""Encode the arguments of scripts, and decode their answers into values of the model.

Both are MessagePack, in one text each way, so the driver has little to parse. Instants and ids are sent as text,
because Lua's numbers are doubles. An absent value comes back as ``False``: Lua has no ``nil`` in a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from cronsensus.errors import StoreCorrupt
from cronsensus.model.batch import Children
from cronsensus.model.gate import After
from cronsensus.model.glance import Glance
from cronsensus.model.job import Era, JobSpec, JobState, JobView, Stretch, UnknownParts
from cronsensus.model.ledger import LedgerRange, TrailEntry
from cronsensus.model.occurrence import Claim, LogLine, Occurrence, RunView, Takeover
from cronsensus.model.plan import VerdictRange
from cronsensus.model.session import LockView, SessionSpec, SessionView
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import loads, read_call, read_error, read_payload
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.lenient_msgpack import decode_answer
from cronsensus.stores.unreadable import READING_RAISES, Unreadable, instant_of, no_definition, texts_by_name
from cronsensus.timing.instants import from_micros, to_micros
from cronsensus.triggers import trigger_from_json

MICROSECOND = timedelta(microseconds=1)
LARGEST_ID = 10**14 - 1
_NO_ID = "-"
MOST_KEPT_DEFINITIONS = 2048
"""Most definitions that a process keeps parsed, by their text."""

Value = TypeVar("Value")
Row = Sequence[Any]

pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def unpack_answer(answer: bytes) -> Any:
    """Decode the answer of a script; text that is not UTF-8 comes back with escapes in it."""
    try:
        return _unpack(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_answer(answer)


_session_spec = msgspec.json.Decoder(SessionSpec).decode
write_session_spec = msgspec.json.Encoder().encode


# --- single values ----------------------------------------------------------------------------------------------------


def or_none(value: Value | Literal[False]) -> Value | None:
    """Return ``value``; ``None`` if it is absent."""
    return None if value is False else value


def read_instant(value: str | Literal[False]) -> datetime | None:
    """Return an instant; ``None`` if it is absent."""
    return None if value is False else from_micros(int(value))


def to_micros_text(instant: datetime | None) -> str | None:
    """Return an instant as the scripts have it."""
    return None if instant is None else str(to_micros(instant))


def to_length(duration: timedelta) -> int:
    """Return a duration as the scripts have it."""
    return duration // MICROSECOND


def occurrence_id(number: int) -> str:
    """Return an occurrence's number as keys contain it; for a number that cannot be one, an id that does not exist."""
    return f"{number:014d}" if 0 < number <= LARGEST_ID else _NO_ID


def _read_number(text: str | Literal[False]) -> int | None:
    return None if text is False else int(text)


# --- definitions ------------------------------------------------------------------------------------------------------


@lru_cache(MOST_KEPT_DEFINITIONS)
def read_spec(text: str) -> JobSpec:
    """Return a definition from its text.

    Raises:
        StoreCorrupt: it cannot be read; a newer version of cronsensus may have written it.
    """
    try:
        return JobSpec.from_json(loads(text))
    except UnknownParts as error:
        raise StoreCorrupt(str(error)) from error
    except READING_RAISES as error:
        raise no_definition("a definition", error, text) from error


@lru_cache(MOST_KEPT_DEFINITIONS)
def read_eras(text: str) -> tuple[Era, ...]:
    """Return eras from their text.

    Raises:
        StoreCorrupt: one cannot be read; a newer version of cronsensus may have written it.
    """
    try:
        return tuple(read_era(era) for era in loads(text))
    except READING_RAISES as error:
        raise no_definition("an era", error, text) from error


def read_era(row: Row) -> Era:
    """Return an era as ``era_row`` wrote it."""
    since, revision, trigger, after = row
    return Era(
        from_micros(since),
        None if trigger is None else trigger_from_json(trigger),
        revision,
        None if after is None else After.from_json(after),
    )


def era_row(era: Era) -> list[Any]:
    """Return an era as JSON values."""
    trigger = None if era.trigger is None else era.trigger.to_json()
    return [to_micros(era.since), era.revision, trigger, None if era.after is None else era.after.to_json()]


def write_json(value: Any) -> str:
    """Return a value, which was checked before, as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def holding_eras(eras: tuple[Era, ...], watermark: datetime) -> tuple[Era, ...]:
    """Return the last era that began at or before the watermark, and those after it."""
    first = max((index for index, era in enumerate(eras) if era.since <= watermark), default=0)
    return eras[first:] if first else eras


def job_state(keyspace: Keyspace, row: Row) -> JobState:
    """Return the state of a job for planning."""
    number, spec, revision, watermark, eras, active, pauses, definition, due = row
    decided_until = from_micros(instant_of(int(watermark)))
    return JobState(
        id=keyspace.job_id(number),
        spec=read_spec(spec),
        revision=int(revision),
        watermark=decided_until,
        eras=holding_eras(read_eras(eras), decided_until),
        pauses=tuple(pause for pause in map(read_stretch, pauses) if pause.end is None or pause.end > decided_until),
        active=active,
        due_at=read_instant(due),
        definition=definition,
    )


def read_stretch(text: str) -> Stretch:
    """Return a paused stretch that is over."""
    start, _, end = text.partition(" ")
    return Stretch(from_micros(int(start)), from_micros(int(end)))


def job_view(keyspace: Keyspace, row: Row) -> JobView:
    """Return a job as reads show it."""
    (
        spec, revision, watermark, horizon, next_due, paused_at, paused_by, paused_why, retired_at, created, active,
        waiting_until, number,
    ) = row  # fmt: skip
    return JobView(
        id=keyspace.job_id(number),
        spec=read_spec(spec),
        revision=int(revision),
        watermark=from_micros(int(watermark)),
        horizon=read_instant(horizon),
        next_due=read_instant(next_due),
        paused_at=read_instant(paused_at),
        paused_by=or_none(paused_by),
        paused_why=or_none(paused_why),
        retired_at=read_instant(retired_at),
        waiting_until=read_instant(waiting_until),
        created_at=from_micros(int(created)),
        active=active,
    )


# --- occurrences and runs ---------------------------------------------------------------------------------------------


def read_claim(
    row: Row, specs: Mapping[str, JobSpec], session: str, claimed_at: datetime, *, reserved: bool = False
) -> Claim:
    """Return a claim as ``starting.lua`` made it."""
    (
        number,
        job,
        key,
        origin,
        nominal,
        due,
        attempt,
        token,
        payload,
        crashes,
        failures,
        parent,
        listed,
        *newer_fields,
    ) = row
    created, note, *fingerprint = newer_fields
    args, kwargs, headers = read_call(payload)
    return Claim(
        id=int(number),
        spec=specs[job],
        key=key,
        origin=_ORIGINS[origin],
        scheduled_for=read_instant(nominal),
        due_at=from_micros(int(due)),
        attempt=attempt,
        token=int(token),
        session=session,
        args=args,
        kwargs=kwargs,
        claimed_at=claimed_at,
        crashes=crashes,
        failures=failures,
        fingerprint=fingerprint[0] if fingerprint else None,
        reserved=reserved,
        parent=_read_number(parent),
        listed=_read_number(listed),
        created_at=from_micros(int(created)),
        note=or_none(note),
        headers=headers,
    )


_ORIGINS = {origin.value: origin for origin in Origin}


def read_occurrence(row: Row, job: str) -> Occurrence:
    """Return an occurrence as reads show it."""
    (
        _, key, origin, state, nominal, due, priority, attempt, crashes, failures, token, session, node, reason, result,
        error, progress, cancel, retry_of, payload, created, started, finished, fingerprint,
        parent, listed, retried_as, parked, note, reserved, number,
    ) = row  # fmt: skip
    args, kwargs = read_payload(payload)
    return Occurrence(
        id=int(number),
        job=job,
        key=key,
        origin=Origin(origin),
        state=State(state),
        scheduled_for=read_instant(nominal),
        due_at=from_micros(int(due)),
        priority=int(priority),
        attempt=int(attempt),
        crashes=int(crashes),
        failures=int(failures),
        token=int(token),
        session=or_none(session),
        node=or_none(node),
        reason=or_none(reason),
        result=or_none(result),
        error=read_error(or_none(error)),
        progress=None if progress is False else _read_progress(progress),
        cancel_requested=cancel is not False,
        retry_of=_read_number(retry_of),
        retried_as=_read_number(retried_as),
        args=args,
        kwargs=kwargs,
        created_at=from_micros(int(created)),
        started_at=read_instant(started),
        finished_at=read_instant(finished),
        fingerprint=or_none(fingerprint),
        parent=_read_number(parent),
        listed=_read_number(listed),
        parked_on=or_none(parked),
        note=or_none(note),
        reserved=reserved is not False,
    )


def read_glance(row: Row, job: str) -> Glance:
    """Return an occurrence as lists show it."""
    _, state, nominal, due, crashes, failures, node, reason, created, started, finished, number, parent, listed = row
    return Glance(
        id=int(number),
        job=job,
        state=State(state),
        scheduled_for=read_instant(nominal),
        due_at=from_micros(int(due)),
        crashes=int(crashes),
        failures=int(failures),
        node=or_none(node),
        reason=or_none(reason),
        created_at=from_micros(int(created)),
        started_at=read_instant(started),
        finished_at=read_instant(finished),
        parent=_read_number(parent),
        listed=_read_number(listed),
    )


def _read_progress(text: str) -> tuple[float, float]:
    done_text, _, total = text.partition(" ")
    return float(done_text), float(total)


def read_children(row: Row | Literal[False], limit: int) -> Children:
    """Return the state of a batch and its items by state, as ``children.lua`` counted them, up to a limit."""
    if row is False:
        return Children(None)
    state, listed, *counts = row
    return Children(
        None if state is False else State(state), _read_number(listed), *(min(count, limit) for count in counts)
    )


def read_attempts(number: int, job: str, row: Row, ended: Sequence[str]) -> list[RunView]:
    """Return the attempts of an occurrence: the earlier ones, and the one in its row."""
    _, key, nominal, state, attempt, token, session, node, started, finished, end, reason, error = row

    def view(run: Row) -> RunView:
        attempt, token, session, node, started, finished, end, reason, error = run
        return RunView(
            occurrence=number,
            job=job,
            key=key,
            scheduled_for=read_instant(nominal),
            attempt=int(attempt),
            token=int(token),
            session=session,
            node=node,
            started_at=from_micros(int(started)),
            finished_at=None if finished is None else from_micros(int(finished)),
            end=end,
            reason=reason,
            error=read_error(error),
        )

    views = [view(loads(text)) for text in ended]
    if state == "running":
        views.append(view((attempt, token, session, node, started, None, None, None, None)))
    elif end is not False:
        views.append(view((attempt, token, session, node, started, finished, end, or_none(reason), or_none(error))))
    return views


def read_takeover(row: Row) -> Takeover:
    """Return what became of a run that a session left behind."""
    number, job, key, token, session, became, reason = row
    return Takeover(int(number), job, key, int(token), session, State(became), reason)


def write_line(line: LogLine) -> str:
    """Return a log line as text; ``clean`` was done before."""
    return write_json([to_micros(line.at), line.level, line.text])


def log_line(sequence: int, text: str) -> tuple[int, int, LogLine]:
    """Return a log line with its place and its attempt."""
    attempt, _, line = text.partition(" ")
    at, level, words = loads(line)
    return sequence, int(attempt), LogLine(from_micros(at), level, words)


# --- the ledger, sessions, locks --------------------------------------------------------------------------------------


def write_range(verdict: VerdictRange) -> str:
    """Return a verdict range as text. The reason comes last, because it may hold anything."""
    count = "-" if verdict.count is None else verdict.count
    return f"{to_micros(verdict.first)} {to_micros(verdict.last)} {verdict.state.value} {count} {verdict.reason}"


def ledger_range(job: str, text: str) -> LedgerRange:
    """Return a verdict range as reads show it."""
    number, decided, first, last, state, count, reason = text.split(" ", 6)
    return LedgerRange(
        id=int(number),
        job=job,
        range=VerdictRange(
            first=from_micros(int(first)),
            last=from_micros(int(last)),
            state=State(state),
            reason=reason,
            count=None if count == "-" else int(count),
        ),
        decided_at=from_micros(int(decided)),
    )


def trail_entry(text: str) -> TrailEntry:
    """Return an entry of the audit trail."""
    number, at, by, action, target, why, details = loads(text)
    return TrailEntry(int(number), from_micros(int(at)), by, action, target, why, loads(details))


def session_view(row: Row) -> SessionView:
    """Return a session as reads show it."""
    text, started, renewed, draining, ended, ended_as, ended_why, left, holds, *more = row
    spec = _session_spec(text)
    expires_in = timedelta(0) if left is False else timedelta(microseconds=int(left))
    if ended is not False:
        state, expires_in = ended_as, timedelta(0)
    else:
        state = "dead" if expires_in <= timedelta(0) else "alive" if draining is False else "draining"
    return SessionView(
        id=spec.id,
        node=spec.node,
        host=spec.host,
        pid=spec.pid,
        pid_started=spec.pid_started,
        release=spec.release,
        version=spec.version,
        concurrency=spec.concurrency,
        functions=spec.functions,
        state=state,
        started_at=from_micros(int(started)),
        renewed_at=from_micros(int(renewed)),
        ended_at=read_instant(ended),
        ended_why=or_none(ended_why),
        expires_in=expires_in,
        holds=holds,
        declares=texts_by_name(json.loads(more[0]) if more and more[0] else None),
        tzdata=spec.tzdata,
        zones=spec.zones,
    )


def session_views(unreadable: Unreadable, rows: Iterable[Row]) -> list[SessionView]:
    """Return those sessions that can be read."""
    return unreadable.keep_readable(rows, session_view, lambda row: f"a session ({str(row[0])[:80]})")


def lock_view(row: Row) -> LockView:
    """Return a lock as reads show it."""
    name, place, holder, session, token, acquired, left, owner = row
    process = None if owner is False else _session_spec(owner)
    return LockView(
        name=name,
        holder=holder,
        session=or_none(session),
        token=int(token),
        acquired_at=from_micros(int(acquired)),
        expires_in=timedelta(microseconds=int(left)),
        place=place,
        host=None if process is None else process.host,
        pid=None if process is None else process.pid,
        pid_started=None if process is None else process.pid_started,
    )
