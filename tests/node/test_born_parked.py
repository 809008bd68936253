"""What comes after others is planned parked: whoever plans it and whoever ends the last it waits for look afterwards.

Two nodes, turned by hand: P plans the dependent and looks, E ends its upstream and looks. Nothing sweeps.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cronsensus.after.room import make_after_hooks
from cronsensus.after.waking import Ended
from cronsensus.model.ends import End, Final
from cronsensus.model.gate import After, Rule, Which
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.node.waking import Waking
from cronsensus.planning import plan
from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance.fixtures import LEASE, MINUTE, START, a_session
from cronsensus.testing.conformance.steps import carry_out, settle, take
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every

STEPS = ("P commits", "P looks", "E commits", "E looks")
ORDERS = [
    order
    for order in itertools.permutations(STEPS)
    if order.index("P commits") < order.index("P looks") and order.index("E commits") < order.index("E looks")
]
TIME = START + MINUTE
Ends = State | None


class Night:
    """One nominal time of ``up`` and of ``down``, which comes after it; ``ends``: how ``up`` does, ``None``: undone."""

    def __init__(self, url: str, which: Which, ends: Ends) -> None:
        self.clock = ManualClock(START)
        self.store: Store = open_store(url, clock=self.clock)
        self.store.migrate()
        self.specs = [
            JobSpec(name="up", function="f", trigger=every("1m", start=START), policies=Policies(overlap="allow")),
            JobSpec(
                name="down",
                function="f",
                trigger=every("1m", start=START),
                policies=Policies(overlap="allow"),
                after=After((Rule("up", "ended", which),)),
            ),
        ]
        self.store.define_jobs(self.specs, release="r1")
        self.clock.advance(60)
        self.store.open_session(a_session("s1"), lease=LEASE)
        self.ends = ends
        states = {job.spec.name: job for job in self.store.look().jobs}
        self.down, self.up = plan(states["down"], self.store.now()), plan(states["up"], self.store.now())
        if ends is None:
            skipped = VerdictRange(TIME, TIME, State.SKIPPED, Reason.PAUSED, 1)
            self.up = replace(self.up, occurrences=(), verdicts=(skipped,))
        else:
            assert carry_out(self.store, [self.up]) == [True]
            [self.claim] = take(self.store, "s1", 9, ("f",), lease=LEASE)
        self.woken: list[str] = []
        self.nodes = {name: self._node(name) for name in "PE"}

    def _node(self, name: str) -> Waking:
        node = Waking(self.store, self.clock, {}, lambda: self.woken.append(name), [make_after_hooks])
        node.on_queued = lambda: None
        node.learn_view(self.store.look())
        return node

    def do(self, step: str) -> None:
        match step:
            case "P commits":
                assert carry_out(self.store, [self.down]) == [True]
            case "P looks":
                self.nodes["P"].queue_plans((self.down,))
                self.nodes["P"].wake_due()
            case "E commits" if self.ends is None:
                assert carry_out(self.store, [self.up]) == [True]
            case "E commits":
                then = Final(self.ends or State.SUCCEEDED)
                assert settle(self.store, [End.of(self.claim, then)])[0].accepted
            case "E looks" if self.ends is None:
                self.nodes["E"].queue_plans((self.up,))
                self.nodes["E"].wake_due()
            case _:
                [waker] = self.nodes["E"].wakers
                self.nodes["E"].queue_triggers([(waker, Ended("up", TIME))])
                self.nodes["E"].wake_due()


@pytest.fixture(params=["memory", "sqlite"])
def night(request: pytest.FixtureRequest, tmp_path: Any) -> Callable[..., Night]:
    names = itertools.count()

    def make(which: Which = "same", ends: Ends = State.SUCCEEDED) -> Night:
        sqlite = f"sqlite:///{tmp_path}/{next(names)}.db"
        return Night(f"memory://{tmp_path}/{next(names)}" if request.param == "memory" else sqlite, which, ends)

    return make


@pytest.mark.parametrize("which", ["same", "latest_before"])
@pytest.mark.parametrize("ends", [State.SUCCEEDED, State.FAILED, State.CANCELLED, None], ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_it_is_woken_once_in_whatever_order_both_commit_and_look(
    night: Callable[..., Night], order: tuple[str, ...], ends: Ends, which: Which
) -> None:
    made = night(which, ends)
    for step in order:
        made.do(step)
    assert made.store.parked() == []
    assert len(made.woken) == 1
    [claim] = take(made.store, "s1", 9, ("f",), lease=LEASE)
    assert (claim.job, claim.scheduled_for, claim.due_at) == ("down", TIME, TIME)


@pytest.mark.parametrize(
    ("order", "left_out"),
    [
        (("E commits", "E looks", "P commits", "P looks"), "P looks"),
        (("P commits", "P looks", "E commits", "E looks"), "E looks"),
        (("E commits", "E looks", "P looks", "P commits"), "nothing, but P looks before its commit"),
    ],
)
def test_each_look_is_needed_and_after_the_commit(
    night: Callable[..., Night], order: tuple[str, ...], left_out: str
) -> None:
    made = night()
    for step in order:
        if step != left_out:
            made.do(step)
    assert [one.job for one in made.store.parked()] == ["down"]


def test_while_its_upstream_runs_it_costs_no_claim_and_no_wake(night: Callable[..., Night]) -> None:
    made = night()
    made.do("P commits")
    made.do("P looks")
    assert made.woken == []
    assert [one.on for one in made.store.parked()] == ["upstreams"]
    assert take(made.store, "s1", 9, ("f",), lease=LEASE) == []
    [row] = [one for one in made.store.parked() if one.job == "down"]
    assert made.store.occurrence(row.id).attempt == 0  # type: ignore[union-attr]
