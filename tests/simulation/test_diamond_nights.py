"""Nights of diamonds: whatever dies or is lost, the foot of each night runs once, behind both its sides."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from cronsensus.after import upstreams
from cronsensus.model.gate import Gate
from cronsensus.node.waking import Waking
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.state import OccurrenceRow
from tests.simulation.cluster import Parts, Simulation, simulate
from tests.simulation.cluster.diamond_night import DiamondWorld
from tests.simulation.test_simulation import told

NIGHTS = int(os.environ.get("CRONSENSUS_TEST_DIAMOND_NIGHTS") or 30)
AT_ONCE = 10
FORGETS = {"remembers": Parts(), "forgets": Parts(forgets=True), "prunes": Parts(prunes=True)}


def night(seed: int, parts: Parts | None = None) -> Simulation:
    return simulate(seed, parts, DiamondWorld)


@pytest.mark.parametrize("parts", FORGETS.values(), ids=FORGETS)
@pytest.mark.parametrize("first", range(0, NIGHTS, AT_ONCE))
def test_each_foot_runs_once_and_behind_both_its_sides(first: int, parts: Parts) -> None:
    for seed in range(first, first + AT_ONCE):
        result = night(seed, parts)
        assert result.ok, told(result)


def test_the_nights_are_rough_enough_to_prove_something() -> None:
    happened, feet = Counter[str](), 0
    for seed in range(10):
        for line in night(seed).trace.lines():
            _, _, what, *rest = line.split(maxsplit=3)
            happened[f"{what} {rest[0].split()[0]}" if what in {"dies", "begins", "FAULT"} else what] += 1
            feet += int(rest[0]) if what == "FEET" else 0
    for what in ("dies item", "LOST", "wake", "FAULT crash", "cancel", "pause"):
        assert happened[what] > 0, f"{what}: never, in ten nights: {happened}"
    assert feet > 40, feet


# --- each safeguard, removed: the simulation notices ------------------------------------------------------------------


def found_out(parts: Parts | None = None) -> bool:
    return any(not night(seed, parts).ok for seed in range(30))


class PrunesWhatIsWaitedFor(MemoryStore):
    """Forgets what others wait behind."""

    def _parked_dependents(self) -> Iterator[OccurrenceRow]:
        return iter(())


def test_a_store_that_prunes_what_is_waited_for_is_found_out() -> None:
    assert found_out(Parts(prunes=True, store=lambda clock: PrunesWhatIsWaitedFor(clock=clock)))


def test_a_node_that_does_not_look_at_all_that_sleep_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waking, "_sweep_parked", lambda _: True)
    assert found_out()


def test_a_gate_that_is_open_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstreams, "decide_gate", lambda *_, **__: Gate("run"))
    assert found_out()


def test_a_gate_that_takes_what_is_under_way_for_missing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstreams.Gates, "_read_time", lambda *_: upstreams._TimeState("missing", None))
    assert found_out()
