"""What a seed stands for: jobs and their policies, releases, nodes, and how rough the night is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from cronsensus.batching.batch import Batch
from cronsensus.model.gate import After
from cronsensus.model.job import Executor, JobSpec, Policies
from cronsensus.triggers import Trigger, any_of, at, cron, every
from tests.simulation.cluster.clocks import SECOND, START

EXECUTORS: tuple[Executor, ...] = ("async", "thread", "process")


@dataclass(frozen=True, slots=True)
class Shape:
    """How long the attempts of a function take, in seconds, and which share of them returns."""

    shortest: float
    longest: float
    succeeds: float


class Scenario:
    """Everything that is drawn before the simulation starts."""

    def __init__(self, rng: Random) -> None:
        self.lease = timedelta(seconds=rng.choice([3, 5, 10, 10, 10]))
        self.names = [f"job{index}" for index in range(rng.randint(1, 4))]
        self.executors = {name: rng.choice(EXECUTORS) for name in self.names}
        self.shapes = {name: _shape(rng) for name in self.names}
        first = [_job(rng, name) for name in self.names]
        self.releases = [first]
        if rng.random() < 0.5:
            self.releases.append(_next_release(rng, first))
        self.batches: dict[str, Batch] = {}
        """How items come to be, of jobs that have any: see ``batch_night``."""
        self.afters: dict[str, After] = {}
        """What jobs come after, if after anything: see ``diamond_night``."""
        self.batons = rng.random() < 1 / 16
        """Whether suspended turns have threads of their own: slower, and any order is possible."""
        self.nodes = rng.choice([1, 1, 2, 2, 3, 3, 4])
        self.hands = rng.choice([(1,), (1, 2, 4), (1, 2, 4)])
        """How many runs a node may hold; one of these."""
        self.rough = rng.random() < 0.8
        self.punctual = True
        """Whether nothing may be late where nothing goes wrong: no job is paused, and some node is always there."""
        self.drift = 0.04 if self.rough else 0.0005
        """By how much a node's monotonic clock may run fast or slow: more than any clock does, and within the margin of
        a lease; on a quiet night as much as real ones do, because there nothing may be late."""
        self.watch = rng.choice([0.5, 2.0, 4.0, 4.0, 4.0])
        """Seconds between looks at others' runs. Most looks find nothing, so most nights have few of them."""
        self.fast_evidence = rng.random() < 0.5
        self.busy = rng.random() < 0.7
        """Whether people ask for work where nothing goes wrong."""
        self.seconds_between_faults = rng.choice([1.0, 2.0, 4.0])
        self.mortality = rng.choice([0.0, 0.02, 0.06, 0.15])
        """Partition of the faults that end or freeze a process, and do not only disturb a verb."""
        self.outsiders = rng.choice([0, 0, 1, 2])
        """Programs that take part with timers of their own."""
        self.clock_steps = rng.random() < 0.3
        self.micros = rng.randint(60, 150) * SECOND
        self.seconds_between_acts = rng.choice([5.0, 15.0, 60.0])


def _shape(rng: Random) -> Shape:
    return rng.choice(
        [
            Shape(0.01, 0.5, 1.0),
            Shape(0.1, 3.0, 0.8),
            Shape(1.0, 12.0, 0.9),
            Shape(5.0, 40.0, 0.9),
        ]
    )


def _next_release(rng: Random, before: list[JobSpec]) -> list[JobSpec]:
    """Return the jobs of a later release: some with another trigger or other policies, some left out."""
    specs = []
    for spec in before:
        draw = rng.random()
        if draw < 0.6:
            specs.append(_job(rng, spec.name))
        elif draw < 0.9 or len(before) == 1:
            specs.append(spec)
    return specs


def _job(rng: Random, name: str) -> JobSpec:
    options: dict[str, Any] = {
        "overlap": rng.choice(["skip", "queue_one", "queue", "cancel_previous", "allow"]),
        "catch_up": rng.choice(["none", "latest", "all"]),
        "catch_up_window": rng.choice([30, 120, 86_400]),
        "on_crash": rng.choice(["retry", "fail"]),
        "max_crashes": rng.choice([1, 2, 3, 10]),
        "retries": rng.choice([0, 0, 1, 3]),
        "retry_delay": rng.choice([0, 0.5, 3]),
        "retry_max_delay": 10,
        "priority": rng.choice([0, 0, 5]),
        "keep": rng.choice([20, 60, 86_400]),
    }
    if rng.random() < 0.3:
        options["grace"] = rng.choice([0, 1, 5, 30])
    if rng.random() < 0.3:
        options["concurrency"] = rng.choice([1, 2])
    if rng.random() < 0.2:
        options["timeout"] = rng.choice([1, 8])
    return JobSpec(name=name, function=name, trigger=_trigger(rng), policies=Policies.read(options))


def _trigger(rng: Random) -> Trigger | None:
    draw = rng.random()
    jitter = rng.choice([0, 0, 0, 0.5, 5])
    if draw < 0.1:
        return None
    if draw < 0.2:
        return at(START + timedelta(seconds=rng.randint(-50, 100)), jitter=jitter)
    if draw < 0.3:
        return cron(rng.choice(["*/20 * * * * *", "* * * * *"]), jitter=jitter)
    steady = every(rng.choice([3, 7, 10, 20, 45]), jitter=jitter)
    return any_of(steady, every(rng.choice([11, 30]))) if draw < 0.4 else steady
