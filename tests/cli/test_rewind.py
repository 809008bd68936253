"""``jobs rewind``: after the store's clock was set back, a schedule goes on now, and no time runs twice."""

from datetime import timedelta
from typing import Any

from tests.hand_cluster import START


def test_a_schedule_is_taken_back_by_a_command_and_all_is_well_again(cluster: Any) -> None:
    cluster.join()
    cluster.every("tick")
    cluster.every("tock", "1h")
    cluster.clock.step(8 * 3600)
    cluster.advance(60)
    cluster.fire()
    for claim in cluster.claim():
        cluster.finish(claim)
    cluster.clock.step(-8 * 3600)
    cluster.advance(60)
    told = cluster("doctor")
    assert "jobs rewind 'tick'" in told.out
    asked = cluster("jobs", "rewind", "tick", "--reason", "chrony")
    assert asked.code == 0, asked
    assert asked.out.startswith(
        "took tick back from 2026-11-20 20:01:00Z to 2026-11-20 12:02:00Z; next 2026-11-20 12:03:00Z"
    )
    again = cluster("jobs", "rewind", "tick", "--reason", "chrony")
    assert (again.code, "tick stands where its trigger says" in again.text) == (1, True)
    assert cluster("jobs", "rewind", "--all", "--reason", "chrony").out.startswith("took tock back")
    assert "no job stands still" in cluster("jobs", "rewind", "--all", "--reason", "chrony").out
    assert "standstill" not in cluster("doctor").out
    cluster.advance(60)
    assert cluster.run_once().scheduled_for == START + timedelta(minutes=3)
    assert cluster("audit").code == 0
    assert "rewind" in cluster("trail").out


def test_the_audit_does_not_accuse_a_run_of_the_time_ahead_beside_a_range_that_was_written_since(
    cluster: Any,
) -> None:
    cluster.join()
    cluster.every("tick")
    cluster.clock.step(8 * 3600)
    cluster.run_once()
    cluster.clock.step(-8 * 3600)
    assert cluster("jobs", "rewind", "tick", "--reason", "chrony").code == 0
    cluster.advance(9 * 3600)  # no node is there when the time comes that ran already
    cluster.fire()
    assert cluster("audit").code == 0, cluster("audit")
