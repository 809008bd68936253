"""Once for each slot: which slot a call means."""

from datetime import UTC, datetime, timedelta

import pytest

from cronsensus import Scheduler, at, cron, every
from cronsensus.errors import InvalidOption
from cronsensus.once.slots import slot_of

EARLY = timedelta(seconds=10)


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-02T{text}").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "slot"),
    [
        ("03:00:00", "03:00:00"),
        ("03:00:02", "03:00:00"),
        ("02:59:58", "03:00:00"),
        ("20:00:00", "03:00:00"),
    ],
)
def test_a_daily_slot(now, slot):
    assert slot_of(cron("0 3 * * *"), clock(now), EARLY) == clock(slot)


def test_early_is_at_most_half_of_the_slot():
    trigger = every("4s")
    assert [slot_of(trigger, clock(f"00:00:0{second}"), EARLY).second for second in range(4)] == [0, 0, 0, 4]


def test_a_trigger_without_a_slot_yet():
    with pytest.raises(InvalidOption, match="no nominal time yet"):
        slot_of(at("2030-01-01T00:00:00Z"), clock("00:00:00"), EARLY)


def test_each_replica_s_timer_calls_and_one_runs(shared_url):
    """The slot is a year long, so that the test does not meet its end."""
    ran = []
    for replica in range(3):
        call = Scheduler(shared_url).once_per(cron("0 0 1 1 *"), name="yearly")(
            lambda replica=replica: ran.append(replica)
        )
        call()
    assert ran == [0]
