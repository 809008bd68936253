"""Nodes notice that their store lost a moment, or everything, and say so: log, trail, doctor, audit."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from cronsensus import Scheduler, every
from cronsensus.audit import audit
from cronsensus.config import OnStoreLoss
from cronsensus.errors import StoreEmptied, StoreError
from cronsensus.insight.doctor import examine_store
from cronsensus.model.ledger import LOST_MOMENT, STORE_EMPTIED, TrailEntry
from cronsensus.stores import Store, open_store
from cronsensus.timing.instants import parse_instant
from tests.servers.forgetting import Forgetful, forgetful
from tests.servers.programs import ServiceMissing

KINDS = ("sqlite", "postgres", "mysql", "redis", "redis-appendonly")
PATIENCE = 60.0
Found = TypeVar("Found")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path) -> Iterator[Forgetful]:
    try:
        with forgetful(request.param, tmp_path) as found:
            yield found
    except ServiceMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def store(place: Forgetful) -> Iterator[Store]:
    found = open_store(place.url)
    found.migrate()
    yield found
    found.close()


def until(happened: Callable[[], Found], what: str) -> Found:
    """Wait for it, and return what it is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        # While it fails over; and a server ends what stands still in mid-question, as on a busy machine.
        with contextlib.suppress(StoreError):
            if found := happened():
                return found
        assert time.monotonic() < deadline, f"after {PATIENCE:.0f} s not so: {what}"
        threading.Event().wait(0.02)


@contextlib.contextmanager
def busy_node(place: Forgetful, on_store_loss: OnStoreLoss = "warn") -> Iterator[tuple[Scheduler, list[str]]]:
    """Start a node that holds a run all the time, so that it renews its lease every second, and fires each second."""
    go_on, began, ran = threading.Event(), threading.Event(), []
    scheduler = Scheduler(place.url, node="watcher", lease="3s", fast_evidence=False, on_store_loss=on_store_loss)

    @scheduler.job()
    def hold() -> None:
        began.set()
        go_on.wait(PATIENCE)

    @scheduler.job(every("1s"))
    def tick() -> None:
        ran.append("tick")

    scheduler.start()
    try:
        hold.enqueue()
        assert began.wait(PATIENCE)
        yield scheduler, ran
    finally:
        go_on.set()
        scheduler.stop()


def losses(store: Store) -> list[TrailEntry]:
    return [entry for entry in store.trail(target="") if entry.action in {LOST_MOMENT, STORE_EMPTIED}]


def test_a_node_notices_a_moment_that_the_store_lost(place: Forgetful, store: Store, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "cronsensus")
    with busy_node(place) as (_, ran):
        until(lambda: ran, "it works")
        before = store.now()
        place.remember()
        del ran[:]
        # Two: the first may have been fired before, and have begun since.
        until(lambda: len(ran) > 1, "it goes on, and that is going to be forgotten")
        last = store.now()
        place.forget()
        entry = until(lambda: losses(store), "the loss stands in the trail")[-1]
        assert (entry.action, entry.by) == (LOST_MOMENT, "watcher")
        # Somewhere between these two lies what was lost.
        assert parse_instant(entry.details["from"]) <= last
        assert parse_instant(entry.details["until"]) >= before
        assert "the store lost a moment" in caplog.text
        checks = until(lambda: examine_store(store), "doctor looks")
        loss = next(check for check in checks if check.name == "loss")
        assert (loss.level, "lost a moment" in loss.text) == ("warn", True)
        report = until(lambda: audit(store), "the audit reads")
        assert any("lost a moment" in note for note in report.notes)
        assert report.ok, report.findings


@pytest.mark.parametrize("on_store_loss", ["warn", "stop"])
def test_a_node_notices_that_its_store_was_emptied(
    place: Forgetful, store: Store, on_store_loss: OnStoreLoss, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "cronsensus")
    with busy_node(place, on_store_loss=on_store_loss) as (scheduler, ran):
        until(lambda: ran, "it works")
        first = store.identity()
        lock = scheduler.lock("held", ttl="3s")
        assert lock.acquire()
        until(lambda: scheduler._opened.lock_backend()._host._loss.session, "what locks knows the store too")
        place.empty()
        until(lambda: "the one that this node knew" in caplog.text, "it says so at once")
        until(lambda: "the one that this process knew" in caplog.text, "and so does what locks")
        until(lambda: store.migrate() is not None, "somebody makes the tables anew")
        assert lock.lost.is_set()
        if on_store_loss == "stop":
            with pytest.raises(StoreEmptied):
                scheduler.lock("another").acquire()
        else:
            until(scheduler.lock("another").acquire, "it locks in the empty store")
        until(lambda: scheduler.settings.on_store_loss == "warn" or not store.sessions(), "its session is gone")
        del ran[:]
        if on_store_loss == "stop":
            with open_scheduler(place) as other:
                until(other.ran.is_set, "another node begins")
                assert ran == []
                assert [one.node for one in store.sessions() if one.is_node] == ["newcomer"]
        else:
            until(lambda: ran, "it goes on in the empty store")
            until(lambda: losses(store), "the loss stands in the trail")
            assert losses(store)[-1].action == STORE_EMPTIED
            second = store.identity()
            assert first is not None
            assert second is not None
            assert first.id != second.id
            report = audit(store)
            assert any("the ledger begins" in note for note in report.notes)
            assert next(check for check in examine_store(store) if check.name == "loss").level == "warn"


class Newcomer:
    """Another node, that never knew the store before it was emptied."""

    def __init__(self, url: str) -> None:
        self.ran = threading.Event()
        self.scheduler = Scheduler(url, node="newcomer", lease="3s", fast_evidence=False)
        self.scheduler.job(every("1s"), name="tick")(self._tick)

    def _tick(self) -> None:
        self.ran.set()


@contextlib.contextmanager
def open_scheduler(place: Forgetful) -> Iterator[Newcomer]:
    newcomer = Newcomer(place.url)
    newcomer.scheduler.start()
    try:
        yield newcomer
    finally:
        newcomer.scheduler.stop()
