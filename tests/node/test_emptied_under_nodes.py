"""A store is emptied while a node opens a session in it, or cannot say which store it is: noticed all the same."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from cronsensus import StoreUnavailable
from cronsensus.errors import StoreEmptied
from cronsensus.model.ledger import STORE_EMPTIED, Identity
from cronsensus.node.round import HALTED_SECONDS
from cronsensus.process.logger import flush
from cronsensus.stores.memory import MemoryStore
from cronsensus.triggers import every
from tests.membership.test_emptied_under_locks_and_calls import empty
from tests.node.test_node_crank import Bench, job


class Troubled(MemoryStore):
    """A store that does something just before a session is opened in it, or before it says which store it is."""

    on_open: Callable[[], None] | None = None
    on_identity: Callable[[], None] | None = None
    asked = 0

    def open_session(self, *given: Any, **named: Any) -> Any:
        if (act := self.on_open) is not None:
            self.on_open = None
            act()
        return super().open_session(*given, **named)

    def identity(self) -> Identity | None:
        self.asked += 1
        if (act := self.on_identity) is not None:
            self.on_identity = None
            act()
        return super().identity()


def begun(caplog: pytest.LogCaptureFixture, *, stop: bool) -> tuple[Bench, Troubled]:
    """Return a node that knows its store, and has lost its session there."""
    caplog.set_level(logging.INFO, "cronsensus")
    bench = Bench(job(trigger=every("30s")), store=Troubled, stop=stop)
    bench.round.run_round()
    lose(bench)
    assert isinstance(bench.store, Troubled)
    return bench, bench.store


def lose(bench: Bench) -> None:
    lease = bench.round.lease
    assert lease is not None
    lease.mark_lost()
    bench.store.close_session(lease.session)


def emptied(bench: Bench) -> int:
    return sum(entry.action == STORE_EMPTIED for entry in bench.store.trail(target=""))


def said(caplog: pytest.LogCaptureFixture) -> int:
    flush(60)
    return caplog.text.count("the store was emptied, or is another one: the one that this node knew")


def unavailable() -> None:
    raise StoreUnavailable("cut off")


def test_a_store_that_is_emptied_between_the_look_and_the_opening_stops_a_node_that_is_to_stop(caplog):
    bench, store = begun(caplog, stop=True)
    store.on_open = lambda: empty(store)
    assert bench.round.run_round() == HALTED_SECONDS
    assert store.sessions() == []
    assert said(caplog) == 1
    assert emptied(bench) == 1
    assert "cannot be used" not in caplog.text  # it is not tried again, and nothing says so
    bench.clock.advance(HALTED_SECONDS)
    assert bench.round.run_round() == HALTED_SECONDS
    assert (store.sessions(), bench.round.stats.store_errors) == ([], 0)


def test_the_session_that_cannot_be_closed_in_a_store_that_was_emptied_stops_it_too(caplog, monkeypatch):
    bench, store = begun(caplog, stop=True)
    store.on_open = lambda: empty(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "close_session", lambda _: unavailable())
        assert bench.round.run_round() == HALTED_SECONDS
    assert bench.round.lease is not None
    assert bench.round.lease.is_lost
    assert bench.hands.calls == []


def test_a_node_that_goes_on_works_in_a_store_that_was_emptied_just_before_it_opened_its_session(caplog):
    bench, store = begun(caplog, stop=False)
    store.on_open = lambda: empty(store)
    bench.round.run_round()
    assert len(store.sessions()) == 1
    assert said(caplog) == 1
    bench.round.run_round()
    assert emptied(bench) == 1


def test_a_node_that_is_stopped_says_so_with_the_word_that_locks_and_calls_use(caplog):
    bench, store = begun(caplog, stop=True)
    store.on_open = lambda: empty(store)
    with pytest.raises(StoreEmptied, match="restart") as raised:
        bench.round.open_session()
    assert not raised.value.retryable


def test_a_store_that_cannot_say_which_one_it_is_is_asked_again(caplog):
    bench, store = begun(caplog, stop=True)
    store.on_identity = unavailable
    store.asked = 0
    bench.round.run_round()  # opens a session, and does not learn where
    lease = bench.round.lease
    assert lease is not None
    assert bench.round.store_watch.session != lease.session
    bench.round.run_round()
    assert (bench.round.store_watch.session, bench.round.lease, store.asked) == (lease.session, lease, 2)
    bench.round.run_round()
    assert store.asked == 2


def test_a_store_that_was_emptied_before_it_could_say_which_one_it_is_is_noticed_when_it_can(caplog):
    bench, store = begun(caplog, stop=True)
    store.on_open = lambda: empty(store)
    store.on_identity = unavailable
    assert bench.round.run_round() < HALTED_SECONDS
    assert bench.round.run_round() == HALTED_SECONDS
    assert (store.sessions(), emptied(bench)) == ([], 1)
