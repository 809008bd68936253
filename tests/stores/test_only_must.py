"""A store that implements only what is abstract passes the suite; how much that is, is counted."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from inspect import isfunction
from pathlib import Path

import pytest

from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.stores import Store, StoreCapabilities, default_reads
from cronsensus.stores.backend import Backend
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance import StoreConformance, StoreTest
from cronsensus.testing.conformance.fixtures import SECOND, START, minute
from cronsensus.testing.conformance.steps import give_back
from cronsensus.timing.clock import Clock

ROOT = Path(__file__).parents[2]
names = (f"memory://only-must-{number}" for number in itertools.count())

MUST = """
    capabilities migrate check close sibling now
    define_jobs retire look step acquire
    open_session renew close_session reclaim drain
    lock extend unlock break_lock
    enqueue wake trigger pause resume rewind cancel retry forget backfill
    prune wait
    jobs occurrences ranges sessions history runs logs locks trail identity note_in_trail
"""
MOST = 43
OPTIONAL = {
    name: member
    for kind in (Backend, default_reads.DefaultReads)
    for name, member in vars(kind).items()
    if isfunction(member) and name not in Backend.__abstractmethods__
}


def test_what_a_store_must_implement_is_a_decision() -> None:
    found, named = {name.removeprefix("_") for name in Backend.__abstractmethods__}, {*MUST.split()}
    decision = (
        f"a store must implement {len(found)} members, at most {MOST}; changed: {sorted(found ^ named)}. Each store "
        "has to write what is new, also those that others wrote. So give it a default in Backend; that of a read "
        "belongs into default_reads, in terms of the reads that are abstract. If no default can be right, name it here "
        "and in docs/stores.md"
    )
    assert found == named, decision
    assert len(found) <= MOST, decision


def test_the_page_for_authors_of_stores_has_each_member_once() -> None:
    page = (ROOT / "docs" / "stores.md").read_text().partition("## A store of your own")[2]
    must, may = page.split("### Members with a default")
    second = [line.split("|")[2] for line in must.splitlines() if line.startswith("| ")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(second))) == sorted(MUST.split())
    assert f"with {len(Backend.__abstractmethods__)} members" in must
    first = [line.split("|")[1] for line in may.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first))) == sorted(name.removeprefix("_") for name in OPTIONAL)


class OnlyMust(MemoryStore):
    """The memory store with the defaults of everything that has one."""

    between: Callable[[], object] | None = None

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return those of a store without notifications, which a memory store has within its process."""
        return replace(super().capabilities, name="only must", clock="host")

    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]:
        """Let others write behind a page."""
        page = super()._occurrences(where, after, limit, newest_first=newest_first)
        self._let_others_write()
        return page

    def _let_others_write(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            between()


for name, member in OPTIONAL.items():
    setattr(OnlyMust, name, member)


class OnOnlyMust(StoreTest):
    url = ""

    @pytest.fixture(autouse=True)
    def _small_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(default_reads, "PAGE", 2)

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        self.url = self.url or next(names)
        return OnlyMust(self.url, namespace=namespace, clock=clock)


class TestOnlyMust(OnOnlyMust, StoreConformance):
    """Every page has two rows, so a default that reads only the first one fails."""


class TestWritersBetweenPages(OnOnlyMust):
    def let_write(self, write: Callable[[], object]) -> None:
        assert isinstance(self.store, OnlyMust)
        self.store.between = write

    def test_an_item_that_goes_back_meanwhile_is_counted_once(self) -> None:
        self.queue()
        self.session()
        batch = self.enqueue("batch").id
        self.store.enqueue([Item(job="queue", key=f"@item/{batch}/{n}", parent=batch, priority=1) for n in range(5)])
        claims = self.claim(limit=5)

        def write() -> None:
            self.let_write(lambda: give_back(self.store, claims))

        self.let_write(write)  # behind the read of the batch, and behind the first page of its items
        found = self.store.children([batch], limit=9)[batch]
        assert (found.pending, found.running) == (3, 2)

    def test_what_ended_before_something_on_the_page_is_on_it(self) -> None:
        self.queue()
        self.session()
        numbers = self.fill(5)
        claims = {claim.id: claim for claim in self.claim(limit=5)}

        def fail(*places: int) -> None:
            for place in places:
                self.clock.advance(SECOND)
                self.finish(claims[numbers[place]], State.FAILED)

        fail(1, 2)
        self.let_write(lambda: fail(0, 4))
        assert [numbers[place] for place in (1, 2, 0, 4)] == [one.id for one in self.store.ended_badly(START)]

    def test_a_verdict_before_another_on_the_page_is_on_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.define(self.job("a"), self.job("b"))
        self.clock.advance(900)
        read = self.store._ranges

        def decide(job: str) -> None:
            self.fire(minute(3), job=job, verdicts=[VerdictRange(minute(1), minute(2), State.MISSED, Reason.LATE, 2)])

        def ranges(name: str, **page: object) -> object:
            found = read(name, **page)  # type: ignore[arg-type]
            if name == "a":
                monkeypatch.setattr(self.store, "_ranges", read)
                decide("a")
                decide("b")
            return found

        monkeypatch.setattr(self.store, "_ranges", ranges)
        assert [one.job for one in self.store.decided()] == ["a", "b"]
