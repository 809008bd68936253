"""The end of trust in a lease is noticed without a question to any store."""

import heapq
from collections.abc import Callable
from typing import Any

import pytest

from cronsensus.membership.lease_monitor import SOONEST, LeaseMonitor
from cronsensus.membership.timer import Timer
from cronsensus.timing.clock import ManualClock


class Lease:
    def __init__(self, clock: ManualClock, seconds: float, again: float | None = None) -> None:
        self.clock, self.until, self.again = clock, clock.monotonic() + seconds, again
        self.expired_at: list[float] = []

    @property
    def expires_in(self) -> float:
        return self.until - self.clock.monotonic()

    def expire(self) -> float | None:
        self.expired_at.append(self.clock.monotonic())
        return self.again


def looked(clock: ManualClock, seconds: float, *leases: Lease) -> list[list[float]]:
    """Have time pass in small steps, with a look at each; return when each lease was told, from the start."""
    monitor, start = LeaseMonitor(clock), clock.monotonic()
    for lease in leases:
        monitor.monitor_lease(lease)
    for _ in range(round(seconds)):
        clock.advance(1.0)
        monitor._check_lease()
    monitor.close()
    return [[at - start for at in lease.expired_at] for lease in leases]


def test_a_lease_that_ends_is_told_once_and_forgotten():
    clock = ManualClock()
    assert looked(clock, 20, Lease(clock, 5.0), Lease(clock, 9.0), Lease(clock, 99.0)) == [[5.0], [9.0], []]


def test_a_lease_that_wants_it_is_looked_at_again_and_told_while_it_is_over():
    clock = ManualClock()
    assert looked(clock, 20, Lease(clock, 5.0, again=6.0)) == [[5.0, 11.0, 17.0]]


def test_a_lease_that_is_renewed_meanwhile_is_watched_by_its_new_end():
    clock = ManualClock()
    lease = Lease(clock, 5.0, again=2.0)
    monitor = LeaseMonitor(clock)
    monitor.monitor_lease(lease)
    clock.advance(6.0)
    monitor._check_lease()
    lease.until = clock.monotonic() + 5.0
    for _ in range(4):
        clock.advance(1.0)
        monitor._check_lease()
    assert len(lease.expired_at) == 1
    clock.advance(2.0)
    monitor._check_lease()
    assert len(lease.expired_at) == 2
    monitor.drop_lease(lease)
    clock.advance(9.0)
    monitor._check_lease()
    assert len(lease.expired_at) == 2
    monitor.close()


class Asked:
    """A timer that notes for when it is asked."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.closed = False

    def call_after(self, seconds: float, action: Any) -> None:
        self.seconds.append(round(seconds, 6))

    def close(self) -> None:
        self.closed = True


def monitored(clock: ManualClock) -> tuple[LeaseMonitor, Asked]:
    timer: Any = Asked()
    return LeaseMonitor(clock, timer), timer


def test_timer_that_is_shared_is_used_and_else_one_of_its_own():
    clock = ManualClock()
    shared = Timer(clock)
    assert LeaseMonitor(clock, shared).timer is shared
    assert LeaseMonitor(clock).timer is not shared


def test_look_is_asked_for_when_the_first_lease_ends_and_only_then():
    monitor, timer = monitored(clock := ManualClock())
    for seconds in (9.0, 5.0, 5.0, 7.0):
        monitor.monitor_lease(Lease(clock, seconds))
    assert timer.seconds == [9.0, 5.0]


def test_lease_that_is_over_already_is_looked_at_a_moment_later():
    monitor, timer = monitored(clock := ManualClock())
    monitor.monitor_lease(Lease(clock, -3.0))
    assert timer.seconds == [SOONEST]


@pytest.mark.parametrize("ends", [(5.0, 9.0), (9.0, 5.0)])
def test_next_look_is_when_the_first_of_those_that_are_left_ends(ends: tuple[float, float]):
    monitor, timer = monitored(clock := ManualClock())
    for seconds in (1.0, *ends):
        monitor.monitor_lease(Lease(clock, seconds))
    timer.seconds.clear()
    clock.advance(1.0)
    monitor._check_lease()
    assert timer.seconds == [4.0]


def test_without_leases_no_other_look_is_asked_for():
    monitor, timer = monitored(clock := ManualClock())
    monitor.monitor_lease(Lease(clock, 1.0))
    clock.advance(1.0)
    monitor._check_lease()
    monitor._check_lease()
    assert timer.seconds == [1.0]


def test_after_the_close_nothing_is_told():
    monitor, timer = monitored(clock := ManualClock())
    monitor.monitor_lease(lease := Lease(clock, 1.0))
    monitor.close()
    clock.advance(5.0)
    monitor._check_lease()
    assert lease.expired_at == []
    assert timer.closed


class TimerByHand:
    """A timer whose actions are done as time passes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.ahead: list[tuple[float, int, Callable[[], None]]] = []
        self.done = 0

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.ahead, (self.clock.monotonic() + seconds, len(self.ahead) + self.done, action))

    def advance(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.ahead and self.ahead[0][0] <= end:
            at, _, action = heapq.heappop(self.ahead)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            self.done += 1
            action()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))


def test_a_node_that_is_idle_between_its_runs_gathers_no_checks():
    timer: Any = TimerByHand(clock := ManualClock())
    monitor = LeaseMonitor(clock, timer)
    lease = Lease(clock, 600.0)
    waiting = []
    for _ in range(24 * 60):
        lease.until = clock.monotonic() + 10.0  # a claim
        monitor.monitor_lease(lease)
        timer.advance(0.5)
        lease.until = clock.monotonic() + 600.0  # idle again
        monitor.monitor_lease(lease)
        timer.advance(59.5)
        waiting.append(len(timer.ahead))
    assert max(waiting) <= 12
    assert timer.done <= 3 * len(waiting)
    assert not lease.expired_at


def test_of_two_leases_that_begin_in_one_instant_the_shorter_is_checked_in_time():
    timer: Any = TimerByHand(clock := ManualClock())
    monitor = LeaseMonitor(clock, timer)
    short, long = Lease(clock, 5.0), Lease(clock, 9.0)
    monitor.monitor_lease(short)
    monitor._looks_at = float("inf")  # as the other thread has read it before
    monitor.monitor_lease(long)
    timer.advance(20.0)
    assert short.expired_at == pytest.approx([short.until])
    assert long.expired_at == pytest.approx([long.until])
