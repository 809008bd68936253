"""One night reads alike in every command: in the zone of its job, else in the setting ``tz``."""

import re
from typing import Any

import pytest

from cronsensus.stores.memory import MemoryStore
from cronsensus.triggers import cron

NIGHT = "Sat 2026-11-21 03:00:00 +08:00"
TIME = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?(Z| [+-]\d\d:\d\d)")


@pytest.fixture
def night(cluster: Any) -> Any:
    """A night that failed, of a job whose schedule is in Shanghai."""
    cluster.declare("nightly", cron("0 3 * * *", tz="Asia/Shanghai"))
    cluster.advance(8 * 3600)
    cluster.join()
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.log(claim, "begins")
    cluster.fail(claim)
    return cluster


@pytest.mark.parametrize(
    "arguments",
    [
        ("ledger", "nightly"),
        ("why", "nightly"),
        ("runs", "list"),
        ("runs", "show", "1"),
        ("runs", "retry", "--failed", "--dry-run"),
        ("jobs", "show", "nightly"),
        ("jobs", "backfill", "nightly", "--from", "1d", "--dry-run"),
    ],
    ids=" ".join,
)
def test_each_command_shows_a_night_in_the_zone_of_its_job_and_no_other_zone(
    night: Any, arguments: tuple[str, ...]
) -> None:
    answer = night(*arguments)
    assert answer.code == 0, answer
    assert NIGHT in answer.out
    shown = answer.out.partition("Next times")[0]  # that table has a column of its own for UTC
    assert set(TIME.findall(shown)) == {" +08:00"}, answer


def test_a_job_whose_schedule_has_no_zone_is_shown_and_asked_for_in_the_setting_tz(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.every("tick", "1h")
    cluster.advance(3600)
    cluster.join()
    cluster.run_once()
    assert "2026-11-20 13:00:00Z" in cluster("runs", "list").out
    monkeypatch.setenv("CRONSENSUS_TZ", "Asia/Shanghai")
    for arguments in (("runs", "list"), ("ledger", "tick"), ("why", "tick", "9pm"), ("jobs", "show", "tick")):
        assert "Fri 2026-11-20 21:00:00 +08:00" in cluster(*arguments).out
    assert cluster("ledger", "tick", "-o", "json").data["lines"][0]["scheduled_for"] == "2026-11-20T13:00:00Z"


def test_a_list_of_many_jobs_asks_the_store_for_their_zones_together(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        cluster.declare(f"job-{number}", cron("0 3 * * *", tz="Asia/Shanghai"))
    cluster.advance(8 * 3600)
    cluster.join()
    cluster.fire()
    asked: list[str] = []
    read_job = MemoryStore.job

    def job(store: MemoryStore, name: str) -> Any:
        asked.append(name)
        return read_job(store, name)

    monkeypatch.setattr(MemoryStore, "job", job)
    assert cluster("runs", "list").out.count(NIGHT) == 20
    assert len(asked) < 3


def test_a_time_in_a_command_to_type_is_one_that_commands_read(night: Any) -> None:
    (told,) = re.findall(r"--from '([^']+)'", night("why", "nightly", "yesterday 03:00").out)
    assert told == "2026-11-20 03:00:00+08:00"
    assert night("ledger", "nightly", "--from", told).code == 0
