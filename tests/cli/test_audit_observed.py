"""``cronsensus audit --observed``: what a guard would have prevented, in one sentence."""

from datetime import UTC, datetime, timedelta

from cronsensus import Scheduler
from cronsensus.external.observing import Observation

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def observe(url, processes, minutes):
    for _ in range(processes):
        observation = Observation(Scheduler(url), first=60.0)
        for minute in range(minutes):
            observation.note("apscheduler:report", MIDNIGHT + timedelta(minutes=minute))
        observation.close()


def test_a_day_of_eight_replicas_is_told_in_a_row_and_a_sentence(command, tmp_path):
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    observe(url, 8, 1440)
    answer = command("audit", "--observed", "--url", url)
    assert answer.code == 0, answer
    assert "1,440 times, 8 replicas: would have prevented 10,080 runs" in answer.out
    assert "apscheduler:report 1,440 11,520 8 10,080" in answer.text
    data = command("audit", "apscheduler:report", "--observed", "--url", url, "-o", "json").data
    assert data["prevented"] == 10_080
    assert data["jobs"][0]["times"] == 1440


def test_nothing_observed_says_when_something_is(command, tmp_path):
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    assert command("db", "upgrade", "--url", url).code == 0
    answer = command("audit", "--observed", "--url", url)
    assert answer.code == 0
    assert "nothing was observed yet" in answer.text
    assert "would have prevented" not in answer.text
