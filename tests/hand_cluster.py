"""Nodes that a test turns by hand, on a memory store, at a time that the test decides."""

import os
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from cronsensus.membership.liveness import own_start
from cronsensus.model.gate import After
from cronsensus.model.job import JobSpec, JobView, Policies
from cronsensus.model.occurrence import Claim, LogLine, Note, RunError
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import State
from cronsensus.planning import plan
from cronsensus.stores.boot import host_identity
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.steps import an_end, carry_out, say, settle, take
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import Trigger, every

START = datetime(2026, 11, 20, 12, tzinfo=UTC)


class HandCluster:
    """Nodes turned by hand on a memory store, at a time that only moves when told to."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.url = f"memory://{uuid.uuid4().hex}"
        self.store = MemoryStore(self.url, clock=self.clock)

    def declare(
        self, name: str = "tick", trigger: Trigger | None = None, after: After | None = None, **policies: Any
    ) -> None:
        specs = [view.spec for view in self.store.jobs()]
        spec = JobSpec(name=name, function=name, trigger=trigger, policies=Policies.read(policies), after=after)
        self.store.define_jobs([*(one for one in specs if one.name != name), spec], release="r1")

    def every(self, name: str = "tick", interval: str = "1m", **policies: Any) -> None:
        self.declare(name, every(interval), **policies)

    def join(
        self, node: str = "node-1", *, release: str = "r1", concurrency: int = 20, functions: int = 3, **more: Any
    ) -> str:
        session = f"session-of-{node}"
        spec = SessionSpec(
            id=session,
            node=node,
            host=host_identity(),
            pid=os.getpid(),
            pid_started=own_start(),
            release=release,
            concurrency=concurrency,
            functions=functions,
            version="1.0",
            **more,
        )
        self.store.open_session(spec, lease=timedelta(hours=10))
        return session

    def advance(self, seconds: float) -> datetime:
        self.clock.advance(seconds)
        return self.store.now()

    def fire(self) -> None:
        """Let a node that lives, or a process that is none, carry out all that is due; wake what that made parked."""
        before, view = {one.id for one in self.store.parked()}, self.store.look()
        session = next((one.id for one in self.store.sessions() if one.state == "alive"), "")
        carry_out(self.store, [plan(job, view.now) for job in view.jobs], session)
        self.store.wake([one.id for one in self.store.parked() if one.id not in before])

    def claim(self, session: str = "session-of-node-1") -> list[Claim]:
        functions = {view.spec.function for view in self.store.jobs(limit=1000)}
        return take(self.store, session, 100, functions, lease=timedelta(hours=10))

    def finish(self, claim: Claim, state: State = State.SUCCEEDED, **how: Any) -> None:
        settle(self.store, [an_end(id=claim.id, token=claim.token, state=state, **how)])

    def fail(self, claim: Claim, message: str = "no route to mail server") -> None:
        error = RunError(
            type="OSError", message=message, traceback=f"Traceback (most recent call last):\nOSError: {message}"
        )
        self.finish(claim, State.FAILED, error=error)

    def run_once(self, seconds: float = 2.0) -> Claim:
        """Fire, claim one, let it run for a while, finish it."""
        self.fire()
        (claim,) = self.claim()
        self.advance(seconds)
        self.finish(claim)
        return claim

    def log(self, claim: Claim, *texts: str, level: str = "INFO") -> None:
        lines = tuple(LogLine(at=self.clock.now(), level=level, text=text) for text in texts)
        say(self.store, [Note(claim.id, claim.token, None, lines)])

    def job(self, name: str = "tick") -> JobView:
        view = self.store.job(name)
        assert view is not None
        return view
