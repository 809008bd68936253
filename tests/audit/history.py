"""A history that nodes could have left behind, written through the verbs of a store at a time that the test decides."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import NullPool

from cronsensus.audit import Report, audit
from cronsensus.model.batch import item_key
from cronsensus.model.ends import Again, End, Parked
from cronsensus.model.gate import After, Rule
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Cut, Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Step, Want
from cronsensus.planning import plan
from cronsensus.stores import open_store
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, settle
from cronsensus.timing.clock import ManualClock
from cronsensus.timing.instants import to_micros
from cronsensus.triggers import every

START = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(hours=12)
RULES = {
    "foot": (Rule("left"), Rule("right")),
    "rescue": (Rule("left", when="failed"),),
    "tidy": (Rule("left", when="ended"),),
}
JOBS = ("left", "right", *RULES, "bulk", "watch")
SCHEDULED = ("left", "right", *RULES)


class History:
    """A store, its clock, and nodes that are turned by hand; and hands that damage what no verb would write."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock(START)
        self.store: Any = open_store(url, clock=self.clock)
        self.store.migrate()
        self.define()
        self.node = ""
        self.nodes = self.batches = 0
        self.join()

    def define(
        self, release: str = "r1", jobs: Sequence[str] = JOBS, rules: Mapping[str, tuple[Rule, ...]] = RULES
    ) -> None:
        policies = Policies.read({"overlap": "allow", "catch_up": "none", "on_crash": "retry"})
        specs = [
            JobSpec(
                name=job,
                function=job,
                trigger=every("1h") if job in SCHEDULED else None,
                policies=policies,
                after=After(rules[job]) if job in rules else None,
            )
            for job in jobs
        ]
        self.store.define_jobs(specs, release=release)

    def join(self) -> None:
        """Go on as another node."""
        self.nodes += 1
        self.node = f"node-{self.nodes}"
        self.store.open_session(a_session(self.node), lease=LEASE)

    def die(self) -> None:
        """Let the node die, and another one take over what it had claimed."""
        dead = self.node
        self.join()
        self.store.reclaim([dead])

    def wait(self, seconds: float) -> None:
        """Let time pass, with a node that lives."""
        self.clock.advance(seconds)
        self.store.renew(self.node, lease=LEASE)

    def fire(self) -> None:
        """Carry out what is due, and wake at once what it made parked: its gates park it again where they wait."""
        before = {one.id for one in self.store.parked()}
        while jobs := self.store.look().jobs:
            carry_out(self.store, [plan(job, self.store.now()) for job in jobs], self.node)
        self.store.wake([one.id for one in self.store.parked() if one.id not in before])

    def claim(self, *jobs: str, reserve: int = 0) -> dict[str, Claim]:
        """Claim what is due, of these jobs or of all; by job, of items and batches by key."""
        want = Want(limit=0 if reserve else 100, reserve=reserve, functions=jobs or JOBS, lease=LEASE)
        claims = self.store.step(self.node, Step(want=want)).claims
        return {one.job if one.scheduled_for else one.key: one for one in claims}

    def end(self, claim: Claim, state: State = State.SUCCEEDED, reason: str | None = None) -> None:
        settle(self.store, [an_end(id=claim.id, token=claim.token, state=state, reason=reason)])

    def snooze(self, claim: Claim, seconds: float, *, quiet: bool = False) -> None:
        self._put_back(claim, Again(timedelta(seconds=seconds), failed=False, note="{}" if quiet else None))

    def park(self, claim: Claim, listed: int | None = None) -> None:
        self._put_back(claim, Parked("upstreams") if listed is None else Parked("items", listed))

    def _put_back(self, claim: Claim, then: Again | Parked) -> None:
        settle(self.store, [End(id=claim.id, token=claim.token, then=then)])

    def cut(self, claim: Claim, cut: Cut = "stopped") -> None:
        give_back(self.store, [claim], cut=cut)

    def wake(self, claim: Claim) -> Claim:
        self.store.wake([claim.id])
        return next(one for one in self.claim().values() if one.id == claim.id)

    # --- what nodes do of a night, and of a batch ---------------------------------------------------------------------

    def nightfall(self, *jobs: str) -> dict[str, Claim]:
        """Pass to the next full hour, and claim what it brings, of these jobs or of all."""
        self.wait(3600 - (self.clock.now() - START).total_seconds() % 3600)
        self.fire()
        return self.claim(*jobs)

    def night(self, left: State = State.SUCCEEDED) -> dict[str, Claim]:
        """Do a night as nodes do it; return the claims under which each ended."""
        claims = self.nightfall()
        for job in RULES:
            self.park(claims[job])
        self.wait(2)
        self.end(claims["left"], left)
        self.wait(2)
        self.end(claims["right"])
        well = {"foot": left is State.SUCCEEDED, "rescue": left is State.FAILED, "tidy": True}
        for job, runs in well.items():
            claims[job] = self.wake(claims[job])
            self.wait(1)
            reason = None if runs else f"upstream {left}: left"
            self.end(claims[job], State.SUCCEEDED if runs else State.SKIPPED, reason)
        return claims

    def list_batch(self, items: int, *, listed: int | None = None) -> tuple[Claim, list[Claim]]:
        """Let a batch list its items and park; return it, and the claims of its items."""
        self.batches += 1
        key = f"batch-{self.batches}"
        self.store.enqueue([Item(job="bulk", key=key, origin=Origin.BATCH)])
        batch = self.claim("bulk")[key]
        self.wait(1)
        made = [
            Item(job="bulk", key=item_key(batch.id, str(n)), origin=Origin.BATCH, parent=batch.id) for n in range(items)
        ]
        self.store.enqueue(made)
        self.park(batch, items if listed is None else listed)
        return batch, list(self.claim("bulk").values())

    def batch(self, items: int = 3, *, listed: int | None = None) -> tuple[Claim, list[Claim]]:
        """Do a batch as nodes do it."""
        batch, claims = self.list_batch(items, listed=listed)
        for claim in claims:
            self.wait(2)
            self.end(claim)
        batch = self.wake(batch)
        self.wait(1)
        self.end(batch)
        return batch, claims

    # --- asking -------------------------------------------------------------------------------------------------------

    def audit(self) -> Report:
        return audit(self.store)

    def of(self, job: str) -> list[Occurrence]:
        found: list[Occurrence] = self.store.occurrences(OccurrenceFilter(job=job), newest_first=False)
        return found

    # --- damage -------------------------------------------------------------------------------------------------------

    def delete(self, claim: Claim) -> None:
        """Delete an occurrence, by hand."""
        if self.url.startswith("memory"):
            self.store._space.delete_run(self.store._space.occurrences[claim.id])
        elif self.url.startswith("redis"):
            self._redis(_drop, claim)
        else:
            self._sql(
                f"DELETE FROM cronsensus_runs WHERE occurrence_id = {claim.id}",
                f"DELETE FROM cronsensus_occurrences WHERE id = {claim.id}",
            )

    def start_at(self, claim: Claim, at: datetime) -> None:
        """Have an ended run say that it started at another time."""
        self._change(claim, "started_at", "started", at)
        if self.url.startswith("memory"):
            row = self.store._space.occurrences[claim.id]
            row.runs[-1] = replace(row.runs[-1], started_at=at)
        elif not self.url.startswith("redis"):
            self._sql(f"UPDATE cronsensus_runs SET started_at = {to_micros(at)} WHERE token = {claim.token}")

    def end_at(self, claim: Claim, at: datetime) -> None:
        """Have an occurrence say that it ended at another time."""
        self._change(claim, "finished_at", "finished", at)

    def _change(self, claim: Claim, name: str, field: str, value: datetime) -> None:
        if self.url.startswith("memory"):
            setattr(self.store._space.occurrences[claim.id], name, value)
        elif self.url.startswith("redis"):

            def write(client: Any, key: bytes, member: bytes) -> None:
                if key.endswith(b"occurrence:" + member):
                    client.hset(key, field, to_micros(value))

            self._redis(write, claim)
        else:
            self._sql(f"UPDATE cronsensus_occurrences SET {name} = {to_micros(value)} WHERE id = {claim.id}")

    def _sql(self, *statements: str) -> None:
        drivers = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
        url = make_url(self.url)
        schema = url.query.get("schema")
        engine = create_engine(
            url.set(drivername=drivers[url.get_backend_name()]).difference_update_query(["schema"]), poolclass=NullPool
        )
        with engine.begin() as connection:
            if schema:
                connection.exec_driver_sql(f"SET search_path = {schema}")
            for statement in statements:
                assert connection.exec_driver_sql(statement).rowcount, statement
        engine.dispose()

    def _redis(self, act: Callable[[Any, bytes, bytes], None], claim: Claim) -> None:
        client: Any = redis.Redis.from_url(self.url.partition("?")[0])
        prefix = re.search(r"prefix=([^&]+)", self.url)
        for key in client.scan_iter(f"{{{'cronsensus' if prefix is None else prefix[1]}:*", count=1000):
            act(client, key, b"%014d" % claim.id)
        client.close()


def _drop(client: Any, key: bytes, member: bytes) -> None:
    """Delete what is of an occurrence under a key of Redis."""
    kind = client.type(key)
    if key.endswith(b":" + member):
        client.delete(key)
    elif kind == b"zset":
        client.zrem(key, member)
    elif kind == b"hash" and key.endswith(b":keys"):
        for name, number in client.hgetall(key).items():
            if number == member:
                client.hdel(key, name)
