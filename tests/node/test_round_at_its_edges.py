"""What a round does before there is a session, after one is lost, and with a job that cannot be planned."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cronsensus.errors import StoreUnavailable
from cronsensus.node import careful
from cronsensus.node.round import FIRST_AND_LONGEST_WAIT
from cronsensus.triggers import every
from tests.node.test_node_crank import Bench, job


def refused(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("no answer")


def asked_to_close(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the sessions that the store is asked to close, from now on."""
    closed: list[str] = []
    monkeypatch.setattr(bench.store, "close_session", closed.append)
    return closed


def test_node_that_never_had_a_session_ends_without_a_word_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    closed = asked_to_close(bench, monkeypatch)
    bench.round.close_session()
    assert closed == []


def test_node_that_could_not_declare_its_jobs_leaves_no_session_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(job())
    monkeypatch.setattr(bench.store, "define_jobs", refused)
    with pytest.raises(StoreUnavailable):
        bench.round.open_session()
    assert len(bench.store.sessions()) == 1
    bench.round.close_session()
    assert bench.store.sessions() == []


def test_node_that_lost_its_session_does_not_close_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(job())
    bench.round.open_session()
    assert bench.round.lease is not None
    bench.round.lease.mark_lost()
    closed = asked_to_close(bench, monkeypatch)
    bench.round.close_session()
    assert closed == []


def test_node_that_gets_no_session_tries_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(job())
    with monkeypatch.context() as away:
        away.setattr(bench.store, "open_session", refused)
        waits = [bench.round.run_round() for _ in range(3)]
    assert all(FIRST_AND_LONGEST_WAIT[0] / 2 <= wait <= FIRST_AND_LONGEST_WAIT[1] for wait in waits)
    assert bench.round.lease is None
    bench.round.run_round()
    assert bench.round.lease is not None


def test_job_that_cannot_be_planned_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(job(trigger=every("30s")))
    monkeypatch.setattr(careful, "plan", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            bench.clock.advance(100)
            bench.round.run_round()
    told = [one for one in caplog.records if "cannot plan job" in one.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is not None
