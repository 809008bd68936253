"""A lease that is too short for the distance to its store: said once, with what to type, and only then."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.membership.lease import SessionLease
from cronsensus.membership.renewer import MOST_MEASURED, SessionRenewer
from cronsensus.model.ids import new_id
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.process.logger import flush
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock


class FarAway(MemoryStore):
    """A store of which each renewal takes as long as the next of ``takes``."""

    takes: list[float]

    def renew(self, *given: Any, **named: Any) -> Renewal:
        self._clock_here.advance(self.takes.pop(0))
        return super().renew(*given, **named)

    _clock_here: ManualClock


def told(caplog: pytest.LogCaptureFixture, takes: list[float]) -> list[str]:
    """Return what a keeper of a lease of 2 seconds warns of, whose renewals take so many seconds each."""
    caplog.set_level(logging.WARNING, "cronsensus")
    clock = ManualClock()
    store = FarAway(clock=clock)
    store.migrate()
    store._clock_here, store.takes = clock, list(takes)
    keeper = SessionRenewer(
        clock,
        lease=timedelta(seconds=2),
        holds=lambda: True,
        on_renewal=lambda *_: None,
    )
    spec = SessionSpec(id=new_id(), node="a", host="h", pid=1, pid_started=1, release="1", concurrency=20, version="0")
    lease = SessionLease(spec.id, clock)
    lease.confirm_renewal(lease.note_request(), timedelta(seconds=2))
    store.open_session(spec, lease=timedelta(seconds=2))
    keeper.keep_session(lease)
    while store.takes:
        keeper.request_renewal()
        keeper.renew(store)
        keeper._asked_for = False
    flush(60)
    return [one.getMessage() for one in caplog.records if "is short for a store" in one.getMessage()]


def test_a_lease_shorter_than_its_renewals_need_is_said_once_with_what_to_type(caplog):
    (said,) = told(caplog, [0.15] * 3 * MOST_MEASURED)
    assert "the lease of 2s" in said
    assert "took 150 ms" in said
    assert "Scheduler(…, lease='3s'), or CRONSENSUS_LEASE=3s" in said


def test_a_lease_that_just_fits_is_not_warned_of(caplog):
    assert told(caplog, [0.13] * 3 * MOST_MEASURED) == []


def test_slow_renewals_between_quick_ones_are_not_taken_for_a_distance(caplog):
    assert told(caplog, ([0.4] * (MOST_MEASURED - 1) + [0.05]) * 4) == []


def test_a_store_that_moved_away_is_noticed_when_all_that_counts_was_measured_there(caplog):
    quick, slow = [0.05] * 20, [0.15] * (MOST_MEASURED - 1)
    assert told(caplog, quick + slow) == []
    assert len(told(caplog, [*quick, *slow, 0.15])) == 1
