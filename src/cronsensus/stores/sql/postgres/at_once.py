"""The usual steps of a job, each in a single trip to the server.

A statement that is sent without a BEGIN commits with the trip. So the end of a run is a single statement, and so is a
claim of work. A plan with one occurrence that its node claims is two: the first locks the job, the second sees what was
committed before that, and does the rest. If a step is not as usual, its statement writes nothing, and the verb is
carried out in the general way.
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import DivisionByZero

from cronsensus.model.claim_order import level_of
from cronsensus.model.ends import End, Final
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Enqueued, Item, Settled, scheduled_key
from cronsensus.model.plan import Plan
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Done, GiveBack, Step, Want
from cronsensus.payload.codec import clean_optional, read_payload, write_error, write_payload
from cronsensus.stores.sql.claim_query import MOST_PAGE_ROWS, ORIGINS, Payload, read_claimed
from cronsensus.stores.sql.definitions import Definitions
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.occurrence_rows import instant, is_serial, micros, payload_of
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import READING_RAISES
from cronsensus.timing.instants import from_micros, to_micros

_MICROSECOND = timedelta(microseconds=1)
_NOW = timedelta(0)


class CachedItem(NamedTuple):
    """An item to enqueue, with its job's cached definition."""

    item: Item
    job: int
    definition: str
    spec: JobSpec


def only_item(definitions: Definitions, items: Sequence[Item]) -> CachedItem | None:
    """Return the only item that is enqueued, if it is due at once and its job is cached."""
    if len(items) != 1:
        return None
    [item] = items
    cached = definitions.enqueued.get(item.job)
    if cached is None or item.due_at is not None or item.delay > _NOW or item.expires_in is not None:
        return None
    if item.parent is not None:
        return None
    spec = definitions.specs.get(*cached)
    return None if spec is None else CachedItem(item, *cached, spec)


def enqueue_one(tx: Transaction, cached_item: CachedItem) -> Enqueued | None:
    """Create an occurrence, and end the transaction; ``None``: nothing was written."""
    item = cached_item.item
    priority = cached_item.spec.policies.priority if item.priority is None else item.priority
    key = new_id() if item.key is None else item.key
    inserted = tx.send(
        "enqueue_one", space=tx.namespace, job=cached_item.job, job_name=item.job, definition=cached_item.definition,
        now=tx.moment, key=key, origin=item.origin.value, serial=int(is_serial(cached_item.spec, item.origin)),
        priority=priority, level=level_of(priority, item.origin), payload=payload_of(item, cached_item.spec),
    )  # fmt: skip
    tx.commit()
    if inserted.row is None:
        return None
    created_at = from_micros(inserted.row.created_at)
    return Enqueued(inserted.row.id, item.job, key, created=True, state=State.PENDING, created_at=created_at)


def only_end(step: Step) -> tuple[End, Final] | None:
    """Return the end, if the step has nothing else and the end is final."""
    if len(step.ends) != 1 or step.notes or step.give_back or step.plans or step.want is not None:
        return None
    [end] = step.ends
    return (end, end.then) if isinstance(end.then, Final) and end.session is not None else None


def close_one(tx: Transaction, end: End, then: Final) -> Done | None:
    """Close an occurrence; ``None``: it is not running under the token."""
    closed = tx.send(
        "close_one", space=tx.namespace, now=tx.moment, occurrence=end.id, token=end.token, session=end.session,
        state=then.state.value, reason=clean_optional(then.reason), result=then.result, error=write_error(then.error),
        ran=end.elapsed // _MICROSECOND,
    )  # fmt: skip
    if closed.count != 1:
        return None
    return Done(settled=(Settled(end.id, end.token, accepted=True, state=then.state),))


def only_plan(tx: Transaction, step: Step, plan: Plan) -> tuple[Plan, JobSpec, Want] | None:
    """Return the plan, if the step has only that and a want, and the plan's only occurrence can run on this node."""
    want = step.want
    if want is None or want.limit < 1 or step.notes or step.ends or step.give_back:
        return None
    spec = tx.definitions.specs.get(plan.job_id, plan.definition) if plan.definition else None
    if spec is None or spec.function not in want.functions or spec.policies.concurrency is not None:
        return None
    is_only_run = plan.active_seen == 0 or spec.policies.overlap == "allow"
    is_usual = (
        len(plan.occurrences) == len(plan.awake) == 1 and not plan.verdicts and not plan.cancel_previous and is_only_run
    )
    return (plan, spec, want) if is_usual else None


def was_closed(driver: psycopg.Connection[Any]) -> bool:
    """Whether the server has closed a connection while it lay idle, as far as this host knows.

    What is sent on a closed connection is lost, which looks like a step that was carried out and not answered.
    """
    if not hasattr(select, "poll"):
        with selectors.DefaultSelector() as selector:
            selector.register(driver.fileno(), selectors.EVENT_READ)
            return bool(selector.select(0))
    poll = select.poll()  # a selector opens a file, which costs a process that just woke 0.1 ms
    poll.register(driver.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def fire_one(tx: Transaction, session: str, plan: Plan, spec: JobSpec, want: Want) -> Done | None:
    """Carry out a plan and start its occurrence; ``None``: the usual way is not possible, and nothing was written."""
    [planned] = plan.occurrences
    policies, payload = spec.policies, write_payload(spec.args, spec.kwargs, what="arguments")
    tx.send("lock_jobs", ids=[plan.job_id], space=tx.namespace)
    moment = tx.moment
    fired = tx.send(
        "fire_one", space=tx.namespace, session=session, boot=tx.epoch, job=plan.job_id, revised=plan.revision,
        now=moment, moment=moment, until=moment + want.ahead // _MICROSECOND, lease=moment + want.lease // _MICROSECOND,
        seen=to_micros(plan.watermark_seen), active=plan.active_seen, definition=plan.definition,
        decided=to_micros(plan.watermark), following=micros(plan.next_due),
        valid=to_micros(plan.not_before or plan.watermark_seen), key=scheduled_key(planned.scheduled_for),
        nominal=to_micros(planned.scheduled_for), due=to_micros(planned.due_at), expires=micros(planned.expires_at),
        serial=int(policies.overlap != "allow"), priority=policies.priority,
        level=level_of(policies.priority, Origin.SCHEDULE), payload=payload,
        floor=tx.dialect.floor_of_tokens(moment if isinstance(moment, int) else 0),
    )  # fmt: skip
    try:
        row = fired.row
    except DivisionByZero:  # the session has ended
        return None
    if row is None:
        return None
    if row.id is None:  # the occurrence existed already
        return Done(carried_out=(True,))
    args, kwargs = read_payload(payload)
    claim = Claim(
        id=row.id,
        spec=spec,
        key=scheduled_key(planned.scheduled_for),
        origin=Origin.SCHEDULE,
        scheduled_for=planned.scheduled_for,
        due_at=planned.due_at,
        attempt=1,
        token=row.token,
        session=session,
        args=args,
        kwargs=kwargs,
        claimed_at=from_micros(row.now),
        created_at=from_micros(row.now),
    )
    return Done(carried_out=(True,), claims=(claim,))


class DueClaims(NamedTuple):
    """The result of a claim, and the claims that cannot be read and are released."""

    done: Done
    unreadable: tuple[GiveBack, ...]


def only_want(definitions: Definitions, step: Step) -> tuple[Want, dict[str, JobSpec]] | None:
    """Return the want, if the step has nothing else, and the definitions that may be claimed this way."""
    want = step.want
    if want is None or want.limit < 1 or want.reserve > 0:
        return None
    if step.plans or step.ends or step.notes or step.give_back:
        return None
    definitions_by_name: dict[str, JobSpec] = {}
    for job, definition in definitions.claimed.list_all():
        spec = definitions.specs.get(job, definition)
        if spec is not None and spec.policies.concurrency is None and spec.function in want.functions:
            definitions_by_name[f"{job} {definition}"] = spec
    return (want, definitions_by_name) if definitions_by_name else None


def start_due(tx: Transaction, session: str, want: Want, definitions_by_name: dict[str, JobSpec]) -> DueClaims | None:
    """Claim what is due; ``None``: the usual way is not possible, and nothing was written.

    The statement compares the definitions. The occurrence's own values can be read only after the claim: a claim that
    cannot be read is released.
    """
    moment = tx.moment
    claimed = tx.send(
        "claim_due", space=tx.namespace, session=session, boot=tx.epoch, now=moment, moment=moment, begun=moment,
        until=moment + want.ahead // _MICROSECOND, lease=moment + want.lease // _MICROSECOND,
        size=min(want.limit, MOST_PAGE_ROWS), known=list(definitions_by_name),
        floor=tx.dialect.floor_of_tokens(moment if isinstance(moment, int) else 0),
    )  # fmt: skip
    try:
        rows = claimed.rows
    except DivisionByZero:  # the session has ended
        return None
    if not rows or not rows[0].usual:
        return None
    specs = {int(name.partition(" ")[0]): spec for name, spec in definitions_by_name.items()}
    claims: list[Claim] = []
    unreadable: list[GiveBack] = []
    for row in rows:
        if row.id is None:  # nothing is due, or others have locked all of it
            continue
        try:
            payload = read_claimed(row)
        except READING_RAISES:
            unreadable.append(GiveBack(claim=_make_claim(row, specs[row.job_id], session)))
        else:
            claims.append(_make_claim(row, specs[row.job_id], session, payload))
    return DueClaims(Done(claims=tuple(claims)), tuple(unreadable))


def _make_claim(row: AnyRow, spec: JobSpec, session: str, payload: Payload | None = None) -> Claim:
    readable = payload is not None
    args, kwargs, headers = payload or ((), {}, None)
    return Claim(
        id=row.id,
        spec=spec,
        key=row.key,
        origin=ORIGINS[row.origin] if readable else Origin.ENQUEUE,
        scheduled_for=instant(row.scheduled_for) if readable else None,
        due_at=from_micros(row.due_at if readable else row.now),
        attempt=row.attempt,
        token=row.token,
        session=session,
        args=args,
        kwargs=kwargs,
        claimed_at=from_micros(row.now),
        crashes=row.crashes,
        failures=row.failures,
        parent=row.parent,
        listed=row.listed,
        created_at=from_micros(row.created_at if readable else row.now),
        note=row.note if readable else None,
        headers=headers,
    )
