"""Nights of batches: each list is done to its end, each item once, whatever dies, is lost or is forgotten."""

import os
from collections import Counter

import pytest

from cronsensus.batching import pages, phases
from cronsensus.node.waking import Waking
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.state import OccurrenceRow
from tests.simulation.cluster import Parts, Simulation, simulate
from tests.simulation.cluster.batch_night import BatchWorld
from tests.simulation.test_simulation import told

NIGHTS = int(os.environ.get("CRONSENSUS_TEST_BATCH_NIGHTS") or 60)
AT_ONCE = 10
FORGETS = {"remembers": Parts(), "forgets": Parts(forgets=True), "prunes": Parts(prunes=True)}


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lists have several pages, between which a lister may die."""
    monkeypatch.setattr(pages, "PAGE", 4)
    monkeypatch.setattr(phases, "PAGE", 4)


def night(seed: int, parts: Parts | None = None) -> Simulation:
    return simulate(seed, parts, BatchWorld)


@pytest.mark.parametrize("parts", FORGETS.values(), ids=FORGETS)
@pytest.mark.parametrize("first", range(0, NIGHTS, AT_ONCE))
def test_each_batch_comes_to_its_end_and_each_item_is_done_once(first: int, parts: Parts) -> None:
    for seed in range(first, first + AT_ONCE):
        result = night(seed, parts)
        assert result.ok, told(result)


def test_the_nights_are_rough_enough_to_prove_something() -> None:
    happened = Counter[str]()
    for seed in range(10):
        for line in (*night(seed, Parts(forgets=True)).trace.lines(), *night(seed, Parts(prunes=True)).trace.lines()):
            _, _, what, *rest = line.split(maxsplit=3)
            happened[f"{what} {rest[0].split()[0]}" if what in {"dies", "begins", "FAULT"} else what] += 1
    met = ("dies phase", "dies item", "LOST", "wake", "FORGETS", "FAULT crash", "cancel", "prune", "retry", "DIES")
    for what in met:
        assert happened[what] > 0, f"{what}: never, in ten nights: {happened}"
    assert happened["begins phase"] > 50


# --- each safeguard, removed: the simulation notices ------------------------------------------------------------------


def found_out(parts: Parts | None = None, first: int = 0) -> bool:
    return any(not night(seed, parts).ok for seed in range(first, first + 60))


class PrunesWhatIsRetried(MemoryStore):
    """Forgets batches while they are tried again."""

    def _is_being_retried(self, row: OccurrenceRow) -> bool:
        return False


def test_a_store_that_prunes_what_a_retry_collects_is_found_out() -> None:
    # One night of twenty tells: looked at from the one in which it was seen last.
    assert found_out(Parts(prunes=True, store=lambda clock: PrunesWhatIsRetried(clock=clock)), first=68)


def test_a_node_that_does_not_look_at_all_that_sleep_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waking, "_sweep_parked", lambda _: True)
    assert found_out()


def test_a_batch_that_does_not_wait_for_its_items_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "phase", lambda listed, *_: "list" if listed is None else "collect")
    assert found_out()
