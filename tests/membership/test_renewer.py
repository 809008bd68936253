"""When a session is renewed, for how long it is trusted then, and when the heartbeat is told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronsensus.errors import StoreError, StoreUnavailable
from cronsensus.membership.lease import IDLE_LEASE, UNTRUSTED_SHARE, SessionLease
from cronsensus.membership.renewer import IDLE_CHECK, IDLE_RENEWAL, LEAST, MOST_MEASURED, QUICK_CHECK, SessionRenewer
from cronsensus.model.session import Renewal
from cronsensus.process.logger import flush
from cronsensus.timing.clock import ManualClock

IDLE = IDLE_RENEWAL.total_seconds()
LEASE = timedelta(seconds=9)


class Scene:
    """A renewer, and a store that answers as it is told to."""

    def __init__(self, lease: timedelta = LEASE, *, holds: bool = False, length: timedelta = IDLE_LEASE) -> None:
        self.clock = ManualClock()
        self.holds = holds
        self.alive, self.answer, self.error = True, length, None
        self.asked: list[tuple[str, timedelta, timedelta]] = []
        self.beats: list[float] = []
        self.troubles: list[StoreError] = []
        self.told: list[bool] = []
        self.meanwhile: Any = lambda: None
        self.renewer = SessionRenewer(
            self.clock,
            lease=lease,
            holds=lambda: self.holds,
            on_renewal=lambda lease, renewal, asked: self.told.append(renewal.alive),
            on_trouble=self.troubles.append,
            beat_within=self.beats.append,
        )
        self.lease = SessionLease("s", self.clock)
        self.lease.confirm_renewal(self.lease.note_request(), length)

    error: StoreError | None

    def keep(self) -> "Scene":
        self.renewer.keep_session(self.lease)
        self.beats.clear()
        return self

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta) -> Renewal:
        self.asked.append((session, lease, idle_lease))
        self.meanwhile()
        if self.error is not None:
            raise self.error
        now = datetime(2026, 1, 1, tzinfo=UTC)
        return Renewal(alive=self.alive, lease=self.answer, cancel={}, drain=False, now=now)

    def beat(self, seconds: float = 0.0) -> float:
        """Have time pass, and the heartbeat come by; return when it is to come again."""
        self.clock.advance(seconds)
        store: Any = self
        return self.renewer.renew(store)


def test_session_that_is_kept_from_now_on_is_looked_at_now() -> None:
    scene = Scene()
    scene.renewer.keep_session(scene.lease)
    assert scene.beats == [0.0]


def test_beat_is_asked_for_when_the_renewal_is_due_and_at_once_if_that_is_over() -> None:
    scene = Scene()
    scene.renewer.reschedule_renewal()
    assert scene.beats == [], "there is no session"
    scene.keep()
    scene.beat(100)
    assert scene.asked == []
    scene.renewer.reschedule_renewal()
    assert scene.beats == [pytest.approx(IDLE - 100)]
    scene.clock.advance(IDLE)
    scene.renewer.reschedule_renewal()
    assert scene.beats[1:] == [0.0]


@pytest.mark.parametrize(("holds", "look"), [(True, QUICK_CHECK), (False, IDLE_CHECK)])
def test_hints_bring_a_renewal_soon_and_not_each_of_them_one(holds: bool, look: float) -> None:
    scene = Scene(holds=holds, length=LEASE).keep()
    scene.renewer.renew_soon()
    assert scene.beats == [0.0]
    scene.beat()
    assert len(scene.asked) == 1
    scene.clock.advance(0.2)
    scene.renewer.renew_soon()
    assert scene.beats[1:] == [pytest.approx(look - 0.2)]
    assert scene.beat() == pytest.approx(look - 0.2)
    scene.beat(look)
    assert len(scene.asked) == 2


def test_hint_delays_no_renewal_that_is_due_before() -> None:
    scene = Scene(timedelta(seconds=3), length=timedelta(seconds=3)).keep()
    scene.renewer.request_renewal()
    scene.beat()
    scene.renewer.renew_soon()
    scene.beats.clear()
    scene.renewer.reschedule_renewal()
    assert scene.beats == [pytest.approx(1.0)], "a third of the lease, and not the two seconds of an idle look"


def test_doubt_brings_a_renewal_at_once_and_once() -> None:
    scene = Scene().keep()
    scene.renewer.request_renewal()
    assert scene.beats == [0.0]
    scene.beat()
    scene.beat()
    assert len(scene.asked) == 1


def test_renewal_that_is_asked_for_while_one_is_under_way_follows_it() -> None:
    scene = Scene().keep()
    scene.renewer.request_renewal()
    scene.meanwhile = scene.renewer.request_renewal
    assert scene.beat() == 0.0
    scene.meanwhile = lambda: None
    scene.beat()
    assert len(scene.asked) == 2


@pytest.mark.parametrize("over", ["none", "lost", "stopped"])
def test_session_that_is_not_there_or_over_is_not_renewed(over: str) -> None:
    scene = Scene()
    if over != "none":
        scene.keep()
    if over == "lost":
        scene.lease.mark_lost()
    if over == "stopped":
        scene.renewer.stop()
    scene.renewer._asked_for = True
    assert scene.beat(1000) == IDLE
    assert scene.asked == []


def test_answer_that_comes_after_the_stop_is_ignored() -> None:
    scene = Scene().keep()
    scene.renewer.request_renewal()
    scene.meanwhile = scene.renewer.stop
    scene.clock.advance(100)
    left = scene.lease.trusted_for
    assert scene.beat() == IDLE
    assert len(scene.asked) == 1
    assert scene.told == []
    assert scene.lease.trusted_for == left


@pytest.mark.parametrize(
    ("lease", "length", "every"), [(9, 9, 3), (9, 600, IDLE), (600, 600, 200), (1200, 1200, IDLE), (1200, 1201, IDLE)]
)
def test_session_is_renewed_each_third_of_a_short_lease_and_never_later_than_an_idle_one(
    lease: float, length: float, every: float
) -> None:
    scene = Scene(timedelta(seconds=lease), length=timedelta(seconds=length)).keep()
    assert scene.beat() == pytest.approx(every)
    assert scene.beat(every - 0.5) == pytest.approx(0.5)
    assert scene.asked == []
    assert scene.beat(0.6) == pytest.approx(every)
    assert len(scene.asked) == 1


@pytest.mark.parametrize(("lease", "idle"), [(9, IDLE_LEASE.total_seconds()), (1200, 1200)])
def test_idle_lease_is_never_shorter_than_that_of_work(lease: float, idle: float) -> None:
    scene = Scene(timedelta(seconds=lease)).keep()
    scene.renewer.request_renewal()
    scene.beat()
    assert scene.asked == [("s", timedelta(seconds=lease), timedelta(seconds=idle))]


@pytest.mark.parametrize(
    ("holds", "answer", "trusted"),
    [(True, 600, 9), (True, 9, 9), (True, 4, 4), (False, 600, 600), (False, 9, 9)],
)
def test_lease_is_trusted_for_what_the_store_said_and_of_one_that_holds_no_longer_than_for_work(
    holds: bool, answer: float, trusted: float
) -> None:
    scene = Scene(holds=holds).keep()
    scene.answer = timedelta(seconds=answer)
    scene.renewer.request_renewal()
    scene.meanwhile = lambda: scene.clock.advance(1)
    scene.beat()
    assert scene.lease.trusted_for == pytest.approx(trusted * (1 - UNTRUSTED_SHARE) - 1)
    assert scene.told == [True]


def test_session_that_the_store_calls_dead_is_trusted_no_more_and_its_owner_told() -> None:
    scene = Scene().keep()
    scene.alive = False
    scene.renewer.request_renewal()
    scene.beat()
    assert scene.lease.is_lost
    assert not scene.lease.is_trusted
    assert scene.told == [False]


@pytest.mark.parametrize(("lease", "again"), [(2, 0.2), (10, 1.0), (60, 1.0)])
def test_store_that_cannot_be_asked_is_asked_again_soon_and_ends_no_trust(lease: float, again: float) -> None:
    scene = Scene(timedelta(seconds=lease), holds=True, length=timedelta(seconds=lease)).keep()
    scene.error = StoreUnavailable("away")
    scene.renewer.request_renewal()
    left = scene.lease.trusted_for
    assert scene.beat() == pytest.approx(again)
    assert scene.troubles == [scene.error]
    assert scene.lease.trusted_for == left
    assert scene.told == []
    scene.error = None
    scene.beat(QUICK_CHECK)
    assert len(scene.asked) == 2


@pytest.mark.parametrize(("quickest", "said"), [(0.25, False), (0.251, True)])
def test_lease_with_time_for_just_enough_renewals_is_not_warned_of(
    quickest: float, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(timedelta(seconds=0.25 * LEAST))
    for _ in range(MOST_MEASURED):
        scene.renewer._measure_renewal(quickest)
    flush(60)
    assert ("is short for a store" in caplog.text) == said
