"""What a page tells of the store: jobs, queues, slots; and how seldom it asks."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cronsensus import Scheduler
from cronsensus.errors import StoreUnavailable
from cronsensus.metrics import Metrics
from cronsensus.metrics import reading as module
from cronsensus.timing.clock import ManualClock
from tests.hand_cluster import HandCluster
from tests.metrics.promtool import needs_promtool, promtool


def series(metrics: Metrics) -> dict[str, float]:
    """Return a page's values by name and labels, as prometheus-client reads them."""
    found = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for one in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in one.labels.items())
            found[one.name.removeprefix("cronsensus_") + (f"[{labels}]" if labels else "")] = one.value
    return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> HandCluster:
    monkeypatch.setattr("cronsensus.metrics.collector.READ_EVERY", 0.0)
    return HandCluster()


def test_a_page_tells_when_a_job_is_next_and_when_it_last_succeeded(cluster: HandCluster) -> None:
    session = cluster.join(concurrency=7)
    cluster.every("tick", "1m")
    metrics = Metrics(cluster.store)
    assert "job_last_success_timestamp_seconds[job_name=tick]" not in series(metrics)
    cluster.advance(61)
    cluster.fire()
    assert series(metrics)["pending[queue=default]"] == 1
    (claim,) = cluster.claim(session)
    cluster.finish(claim)
    now = cluster.store.now()
    found = series(metrics)
    job = cluster.store.job("tick")
    assert job is not None
    assert job.next_due is not None
    assert found["job_next_run_timestamp_seconds[job_name=tick]"] == job.next_due.timestamp()
    assert found["job_last_success_timestamp_seconds[job_name=tick]"] == now.timestamp()
    assert (found["pending[queue=default]"], found["slots"], found["slots_busy"]) == (0, 7, 0)
    assert (found["job_paused[job_name=tick]"], found["job_overdue[job_name=tick]"]) == (0, 0)


def test_a_job_that_nobody_decides_is_overdue_and_a_paused_one_is_not(cluster: HandCluster) -> None:
    cluster.every("tick", "1m")
    cluster.every("rest", "1m")
    cluster.store.pause("rest", by="ada", why="moved")
    cluster.advance(150)
    found = series(Metrics(cluster.store))
    assert found["job_overdue[job_name=tick]"] == 1
    assert (found["job_overdue[job_name=rest]"], found["job_paused[job_name=rest]"]) == (0, 1)
    assert "job_next_run_timestamp_seconds[job_name=rest]" not in found


def test_a_job_that_has_not_succeeded_within_what_its_code_says_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cronsensus.metrics.collector.READ_EVERY", 0.0)
    clock = ManualClock()
    scheduler = Scheduler("memory://", clock=clock)
    scheduler.job(overdue="1h", name="backup")(lambda: None)
    store = scheduler.store
    store.define_jobs(scheduler.declared.specs(), release="r1")
    metrics = Metrics(store)  # of a process without the code
    clock.advance(3599)
    assert series(metrics)["job_overdue[job_name=backup]"] == 0
    clock.advance(2)
    assert series(metrics)["job_overdue[job_name=backup]"] == 1


def test_a_success_is_found_behind_any_number_of_failures(cluster: HandCluster) -> None:
    cluster.join()
    cluster.every("tick", "1m")
    cluster.advance(60)
    cluster.run_once()
    succeeded = cluster.store.now().timestamp()
    for _ in range(40):
        cluster.advance(60)
        cluster.fire()
        (claim,) = cluster.claim()
        cluster.fail(claim)
    assert series(Metrics(cluster.store))["job_last_success_timestamp_seconds[job_name=tick]"] == succeeded


def test_of_many_jobs_the_chosen_ones_have_series_and_no_more_than_the_bound(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 3)
    for number in range(5):
        cluster.every(f"mail-{number}")
    cluster.every("billing-1")
    found = [name for name in series(Metrics(cluster.store, jobs="mail-*")) if name.startswith("job_paused")]
    assert found == [f"job_paused[job_name=mail-{number}]" for number in range(3)]


def test_the_store_is_asked_once_in_two_seconds_and_what_it_says_is_not_kept_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, asked = HandCluster(), Counter[str]()
    cluster.every("tick")
    broken = False

    @contextmanager
    def span(verb: str) -> Iterator[None]:
        asked[verb] += 1
        if broken:
            raise StoreUnavailable("gone")
        yield

    cluster.store.span = span
    metrics = Metrics(cluster.store)
    assert metrics.page() == metrics.page()
    assert asked["counts"] == 1
    before = sum(asked.values())
    assert before <= 12
    broken = True
    assert b"cronsensus_slots" in metrics.page()
    monkeypatch.setattr("cronsensus.metrics.collector.READ_EVERY", 0.0)
    assert metrics.page() == b""


def test_for_a_scraper_that_comes_regularly_the_store_is_read_before_it_comes(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronsensus.metrics.collector.READ_EVERY", 2.0)
    planned: list[float] = []
    metrics = Metrics(cluster.store)
    metrics._clock = clock = ManualClock()

    def timer(seconds: float, function: Callable[[], object]) -> Thread:
        planned.append(seconds)
        return Thread(target=function)

    monkeypatch.setattr("cronsensus.metrics.collector.threading.Timer", timer)
    for seconds in (15, 15, 15, 4, 15, 300, 300):
        clock.advance(seconds)
        metrics.page()
    # The first interval is none yet.
    assert planned == [14.0]


@needs_promtool
def test_prometheus_takes_a_page_whatever_jobs_are_called(cluster: HandCluster) -> None:
    name = 'a"b\\c{é}'
    cluster.every(name)
    metrics = Metrics(cluster.store)
    assert f"job_paused[job_name={name}]" in series(metrics)
    assert promtool("check", "metrics", page=metrics.page()) == ""


def test_how_long_the_oldest_has_waited(cluster: HandCluster) -> None:
    cluster.every("tick", "1h")
    cluster.store.trigger("tick", by="ada")
    cluster.advance(90)
    assert series(Metrics(cluster.store))["oldest_pending_age_seconds"] == 90


def test_a_page_tells_when_a_job_last_failed_or_missed_a_time_also_if_another_process_did_and_died(
    cluster: HandCluster,
) -> None:
    session = cluster.join()
    cluster.every("tick", "1m", retries=0)
    cluster.advance(61)
    cluster.fire()
    (claim,) = cluster.claim(session)
    cluster.fail(claim)
    failed = cluster.store.now().timestamp()
    cluster.advance(30)
    found = series(Metrics(cluster.store))
    assert found["job_last_failure_timestamp_seconds[job_name=tick]"] == failed
    assert "job_last_missed_timestamp_seconds[job_name=tick]" not in found
    assert "node_lost_timestamp_seconds" not in found
