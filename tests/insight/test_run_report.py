"""What is known of one run."""

from datetime import timedelta

from cronsensus.insight.run_report import RunReport, every_log_entry, run_report
from cronsensus.model.occurrence import RunError
from cronsensus.model.states import State
from tests.hand_cluster import START, HandCluster


def report(cluster: HandCluster, number: int = 1, log_lines: int = 20) -> RunReport:
    one = cluster.store.occurrence(number)
    assert one is not None
    return run_report(cluster.store, one, log_lines=log_lines)


def test_timeline_tells_each_event_and_the_time_since_the_one_before(cluster: HandCluster) -> None:
    cluster.every("tick", retries=1)
    cluster.join()
    cluster.advance(61)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.advance(2)
    cluster.finish(claim, State.PENDING, retry_in=timedelta(seconds=5))
    cluster.advance(5)
    (claim,) = cluster.claim()
    cluster.advance(1)
    cluster.finish(claim)
    told = [((event.at - START).seconds, event.after, event.text) for event in report(cluster).timeline]
    assert [(at, text) for at, _, text in told] == [
        (60, "nominal time"),
        (61, "created (schedule)"),
        (61, "attempt 1 started on node-1"),
        (63, "attempt 1 failed, to be tried again"),
        (68, "due"),
        (68, "attempt 2 started on node-1"),
        (69, "attempt 2 ended well"),
    ]
    assert [after for _, after, _ in told] == [
        None, *(timedelta(seconds=seconds) for seconds in (1, 0, 2, 5, 0, 1))
    ]  # fmt: skip


def test_report_has_acts_and_retries_of_this_run_alone(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    for _ in range(2):
        cluster.advance(60)
        cluster.run_once()
    again = cluster.store.retry(1, by="ada", why="once more", again=True)
    cluster.store.cancel(again.id, by="ada", why="no")
    assert [act.details["retry"] for act in report(cluster).acts] == [again.id]
    assert report(cluster, 2).acts == ()
    assert [act.why for act in report(cluster, again.id).acts] == ["no"]
    assert report(cluster, again.id).timeline[-1].text == "cancel by ada: no"


def test_report_keeps_the_last_lines_of_a_log_and_counts_all(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.log(claim, "one", "two", "three")
    found = report(cluster, log_lines=2)
    assert ([line.text for _, _, line in found.log], found.log_length) == (["two", "three"], 3)
    first, *_ = every_log_entry(cluster.store, 1)
    assert [line.text for _, _, line in every_log_entry(cluster.store, 1, after=first[0])] == ["two", "three"]


def test_error_of_a_report_has_the_message_once(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    assert report(cluster).error == ""
    cluster.fail(claim, "no route")
    assert report(cluster).error == "Traceback (most recent call last):\nOSError: no route"


def test_error_of_a_report_adds_the_message_to_a_traceback_that_lacks_it(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    error = RunError(type="JobTimeout", message="over its time", traceback='  File "jobs.py", line 3\n')
    cluster.finish(claim, State.FAILED, error=error)
    assert report(cluster).error == 'JobTimeout: over its time\n  File "jobs.py", line 3'
