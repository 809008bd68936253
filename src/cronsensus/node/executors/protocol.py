"""The messages between a node and its job processes: JSON, a message a line.

Typed on both sides, so that nothing but these values is ever built from what comes through a pipe.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, LogLine
from cronsensus.model.states import Origin
from cronsensus.node.executors.base import Call
from cronsensus.node.executors.importing import Target
from cronsensus.node.hooks import Portable

LONGEST_MESSAGE = 4 * 1024 * 1024
"""Most bytes of one line; a result of the largest size, escaped, fits several times over."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first message to a child, repeated after changes: its imports are to find what the parent's find.

    Attributes:
        pythonpath: the value of ``PYTHONPATH`` to restore; the child was started with another.
        log_level: of the parent's root logger.
    """

    sys_path: list[str]
    pythonpath: str | None
    log_level: int


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """Run a function.

    Attributes:
        number: counts the calls of a child; messages of an earlier one are old news.
        run: the class of its run, as ``"module:name"``.
        extras: what features have left for the run: by name, what reads it there, and what that is called with.
    """

    number: int
    target: Target
    run_parameter: str | None
    before_run: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    namespace: str
    id: int
    job: str
    key: str
    origin: Origin
    scheduled_for: datetime | None
    due_at: datetime
    attempt: int
    token: int
    session: str
    claimed_at: datetime
    zone: str
    run: str
    extras: dict[str, tuple[str, Any]]
    parent: int | None

    @classmethod
    def of(cls, number: int, call: Call, target: Target) -> Begin:
        """Build the message for a call."""
        claim, registered, kind = call.claim, call.registered, type(call.run)
        return cls(
            number=number,
            target=target,
            run_parameter=registered.run_parameter,
            before_run=registered.before_run,
            args=claim.args,
            kwargs=claim.kwargs,
            namespace=call.run.namespace,
            id=claim.id,
            job=claim.job,
            key=claim.key,
            origin=claim.origin,
            scheduled_for=claim.scheduled_for,
            due_at=claim.due_at,
            attempt=claim.attempt,
            token=claim.token,
            session=claim.session,
            claimed_at=claim.claimed_at,
            zone=call.run.zone,
            run=f"{kind.__module__}:{kind.__qualname__}",
            extras={name: one.pack_call() for name, one in call.run.extras.items() if isinstance(one, Portable)},
            parent=claim.parent,
        )

    def shown_claim(self) -> Claim:
        """Return the claim as far as a ``Run`` shows it; the job's definition stays with the node."""
        return Claim(
            id=self.id,
            spec=JobSpec(name=self.job, function=self.job, executor="process"),
            key=self.key,
            origin=self.origin,
            scheduled_for=self.scheduled_for,
            due_at=self.due_at,
            attempt=self.attempt,
            token=self.token,
            session=self.session,
            args=self.args,
            kwargs=self.kwargs,
            claimed_at=self.claimed_at,
            created_at=self.claimed_at,
            parent=self.parent,
        )


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Stop the running call. The child leaves afterwards."""

    number: int
    reason: str
    lease_lost: bool


class Leave(msgspec.Struct, tag="leave", frozen=True):
    """No more calls: exit in an orderly way."""


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """The job called ``run.progress``."""

    number: int
    done: float
    total: float


class Line(msgspec.Struct, tag="line", frozen=True):
    """The job logged a line."""

    number: int
    line: LogLine


class End(msgspec.Struct, tag="end", frozen=True):
    """The call has ended; the child is free."""

    number: int
    ending: Ending


Command = Hello | Begin | Stop | Leave
Report = Progress | Line | End

_encoder = msgspec.json.Encoder()
decode_command = msgspec.json.Decoder(Command).decode
decode_report = msgspec.json.Decoder(Report).decode


def encode_message(message: Command | Report) -> bytes:
    """Return a message as one line."""
    return _encoder.encode(message) + b"\n"
