"""Thousands of nights, each from its seed; and the proof that something happened in them."""

import os
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from tests.simulation.ablations import ClaimsEarly, on
from tests.simulation.cluster import Parts, Simulation, simulate
from tests.simulation.cluster.__main__ import main
from tests.simulation.cluster.world import World
from tests.simulation.past_seeds import PAST_SEEDS

NIGHTS = int(os.environ.get("CRONSENSUS_TEST_NIGHTS") or 500)
"""16 of them a second and core. That each removed safeguard is found out is told in ``test_ablations``."""
AT_ONCE = 25
LAST_LINES = 40


def told(result: Simulation) -> str:
    """What a person needs who sees the failure."""
    lines = list(result.trace.lines())[-LAST_LINES:]
    return "\n".join([*lines, "", *result.violations, "", f"again: make simulate SEED={result.seed}"])


@pytest.mark.parametrize("first", range(0, NIGHTS, AT_ONCE))
def test_no_promise_is_broken_in_any_night(first):
    for seed in range(first, first + AT_ONCE):
        result = simulate(seed)
        assert result.ok, told(result)


@pytest.mark.parametrize("seed", sorted(PAST_SEEDS))
def test_a_seed_that_once_failed_is_replayed_for_ever(seed):
    result = simulate(seed)
    assert result.ok, f"{told(result)}\nonce: {PAST_SEEDS[seed]}"


def test_the_nights_are_rough_enough_to_prove_something():
    happened = Counter[str]()
    for seed in range(100):
        result = simulate(seed)
        happened["faults"] += result.faults
        last = before = ""
        for line in result.trace.lines():
            _, who, what, *rest = line.split(maxsplit=3)
            happened[what] += 1
            told_of = rest[0] if rest else ""
            if what == "FAULT":
                happened[told_of.split()[0]] += 1
            happened["a result was refused"] += what == "step" and "refused" in told_of
            happened["a run was taken over"] += what == "reclaim" and "became" in told_of
            happened["a claim was found again"] += (before, last, what) == ("job", "now", "begins")
            happened["a lock was refused"] += what == "lock" and told_of.endswith("None")
            happened["an occurrence was won by name"] += what == "acquire" and "attempt" in told_of
            happened["nobody listened"] += what == "step" and "unheard" in told_of
            happened["a race was lost"] += what == "step" and "lost races" in told_of
            happened["an operator was refused"] += (who, what) == ("people", "refused")
            before, last = last, what
    assert happened["faults"] > 1000
    for kind in ("fail", "lost", "hang", "hang_lost", "late", "slow", "freeze", "crash"):
        assert happened[kind] > 0, f"no {kind} in a hundred nights"
    for what in (
        "a lock was refused",
        "an occurrence was won by name",
        "nobody listened",
        "a result was refused",
        "a run was taken over",
        "a claim was found again",
        "a race was lost",
        "an operator was refused",
        "crashes",
        "freezes",
        "leaves",
        "deploy",
        "CLOCK",
        "backfill",
        "prune",
        "retire",
        "drain",
        "acquire",
        "step",
        "lock",
        "extend",
        "unlock",
    ):
        assert happened[what] > 0, f"{what}: never, in a hundred nights"


# --- the same seed is the same night --------------------------------------------------------------------------------


def with_batons() -> int:
    """A seed whose suspended turns have threads of their own."""
    from tests.simulation.cluster.chance import Chance
    from tests.simulation.cluster.scenario import Scenario

    return next(seed for seed in range(1000) if Scenario(Chance(seed)["scenario"]).batons)


def test_the_same_seed_gives_the_same_trace():
    for seed in (*range(2), with_batons()):
        assert simulate(seed).trace.digest() == simulate(seed).trace.digest()


def test_other_seeds_give_other_traces():
    assert len({simulate(seed).trace.digest() for seed in range(5)}) == 5


class DrawsMore(World):
    """A night in which each node draws once more whenever it could be woken."""

    def hint_all(self, who):
        for node in self.nodes:
            for source in ("order", "hints"):
                self.chance[f"{source} {node.name}"].random()
        super().hint_all(who)


def test_what_a_node_draws_does_not_move_when_clocks_are_set_and_releases_come():
    happened = others = 0
    for seed in range(8):
        traces = [simulate(seed, world=world).trace for world in (World, DrawsMore)]
        moments, moved = [
            [line for line in trace.lines() if "CLOCK SET" in line or line.endswith("deploy")] for trace in traces
        ]
        assert moments == moved
        happened += len(moments)
        others += traces[0].digest() != traces[1].digest()
    assert min(happened, others) > 4


DIGESTS = """
import sys
from tests.simulation.cluster import simulate
for seed in map(int, sys.argv[1:]):
    print(simulate(seed).trace.digest())
"""


def test_the_trace_does_not_depend_on_the_hash_seed(pytestconfig):
    seeds = [str(seed) for seed in (3, 7, with_batons())]
    answers = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS, *seeds],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=pytestconfig.rootpath,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].split()) == len(seeds)


def test_a_failure_leaves_nothing_behind_that_changes_the_next_night():
    before = simulate(3).trace.digest()
    assert not all(simulate(seed, on(ClaimsEarly)).ok for seed in range(5))
    assert simulate(3).trace.digest() == before


# --- what a person sees ---------------------------------------------------------------------------------------------


def test_the_command_replays_a_seed_and_says_its_trace():
    answer = CliRunner().invoke(main, ["--seed", "3", "--trace"])
    assert answer.exit_code == 0, answer.output
    assert "open_session" in answer.output
    assert "1 seeds from 3: 0 broken" in answer.output
    assert simulate(3).trace.digest() in answer.output


def test_the_command_prints_what_happened_and_how_to_see_it_again(monkeypatch):
    def broken(seed: int) -> Simulation:
        return simulate(seed, on(ClaimsEarly))

    monkeypatch.setattr("tests.simulation.cluster.__main__.simulate", broken)
    answer = CliRunner().invoke(main, ["--seed", "0", "--seeds", "10"])
    assert answer.exit_code == 1
    assert "VIOLATION" in answer.output
    assert "again: make simulate SEED=" in answer.output


def test_a_trace_can_be_read_for_one_thing():
    result = simulate(3)
    lines = list(result.trace.lines("n0"))
    assert 0 < len(lines) < len(result.trace)
    assert all("n0" in line for line in lines)


def test_parts_default_to_the_real_ones():
    assert simulate(2, Parts()).trace.digest() == simulate(2).trace.digest()
