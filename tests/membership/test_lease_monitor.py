"""The end of trust in a lease is noticed without a question to any store."""

from cronsensus.clock import ManualClock
from cronsensus.membership.lease_monitor import LeaseMonitor


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
        monitor.begin(lease)
    for _ in range(round(seconds)):
        clock.advance(1.0)
        monitor._look()
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
    monitor.begin(lease)
    clock.advance(6.0)
    monitor._look()
    lease.until = clock.monotonic() + 5.0
    for _ in range(4):
        clock.advance(1.0)
        monitor._look()
    assert len(lease.expired_at) == 1
    clock.advance(2.0)
    monitor._look()
    assert len(lease.expired_at) == 2
    monitor.end(lease)
    clock.advance(9.0)
    monitor._look()
    assert len(lease.expired_at) == 2
    monitor.close()
