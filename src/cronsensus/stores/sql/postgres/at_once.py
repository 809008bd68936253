"""The two steps that a scheduled occurrence mostly takes, each in one trip and without a transaction of its own.

A statement that is sent without a BEGIN commits with the trip. So the end of one run is one statement, and a plan with
one occurrence that its node takes is two: one that locks the job, and one that sees what was committed before that, and
does the rest. Where something is not as it mostly is, neither writes anything, and the step is taken as ever.
"""

from __future__ import annotations

import selectors
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.errors import DivisionByZero

from cronsensus.codec import cleaned, read_payload, write_error, write_payload
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Outcome, Settled, scheduled_key
from cronsensus.model.plan import Plan
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Done, Step, Want
from cronsensus.stores.sql.occurrence_rows import micros
from cronsensus.stores.sql.transaction import Transaction

_MICROSECOND = timedelta(microseconds=1)


def only_outcome(step: Step) -> Outcome | None:
    """Return the outcome that is all of a step, if it ends an occurrence."""
    if len(step.outcomes) != 1 or step.notes or step.give_back or step.plans or step.want is not None:
        return None
    [outcome] = step.outcomes
    return outcome if outcome.state is not State.PENDING and outcome.session is not None else None


def close(tx: Transaction, outcome: Outcome) -> Done | None:
    """Close an occurrence; ``None``: it is not running under the token."""
    closed = tx.send(
        "close_one", space=tx.namespace, now=tx.moment, run=outcome.id, held=outcome.token, whose=outcome.session,
        became=outcome.state.value, because=cleaned(outcome.reason), gave=outcome.result,
        wrong=write_error(outcome.error), ran=outcome.elapsed // _MICROSECOND,
    )  # fmt: skip
    if closed.count != 1:
        return None
    return Done(settled=(Settled(outcome.id, outcome.token, accepted=True, state=outcome.state),))


def only_plan(tx: Transaction, step: Step) -> tuple[Plan, JobSpec, Want] | None:
    """Return the plan that is all of a step but a wish for work, if its one occurrence may be taken by nobody else."""
    want = step.want
    if len(step.plans) != 1 or want is None or want.limit < 1 or step.notes or step.outcomes or step.give_back:
        return None
    [plan] = step.plans
    spec = tx.definitions.specs.get(plan.job_id, plan.definition) if plan.definition else None
    if spec is None or spec.function not in want.functions or spec.policies.concurrency is not None:
        return None
    alone = plan.active_seen == 0 or spec.policies.overlap == "allow"
    usual = len(plan.occurrences) == 1 and not plan.verdicts and not plan.cancel_previous and alone
    return (plan, spec, want) if usual else None


def was_closed(driver: psycopg.Connection[Any]) -> bool:
    """Whether the server has closed a connection while it lay idle, as far as this host has heard.

    What is sent on such a one is lost, and nothing tells that from a step that was taken and not answered.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(driver.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))


def fire(tx: Transaction, session: str, plan: Plan, spec: JobSpec, want: Want) -> Done | None:
    """Carry out a plan and start its occurrence; ``None``: that is not possible just so, and nothing was written."""
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
        payload=payload, floor=tx.dialect.floor_of_tokens(moment if isinstance(moment, int) else 0),
    )  # fmt: skip
    try:
        row = fired.row
    except DivisionByZero:  # its session is over
        return None
    if row is None:
        return None
    if row.id is None:  # it stood there already
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
    )
    return Done(carried_out=(True,), claims=(claim,))
