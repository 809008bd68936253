"""The ledger of a job as lines: a verdict for each nominal time, and why."""

from datetime import datetime, timedelta

import pytest

from cronsensus.insight import ledger
from cronsensus.insight.ledger import NO_VERDICT, UNDECIDED, LedgerPage, ledger_page
from cronsensus.model.states import State
from tests.hand_cluster import START, HandCluster


def page(cluster: HandCluster, *, until: datetime | None = None, limit: int = 100) -> LedgerPage:
    now = cluster.store.now()
    return ledger_page(cluster.store, cluster.job(), START, until or now, now=now, limit=limit)


def test_ledger_line_tells_when_the_first_attempt_started(cluster: HandCluster) -> None:
    cluster.every("tick", "1m", retries=1)
    cluster.join()
    cluster.advance(61)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.finish(claim, State.PENDING, retry_in=timedelta(seconds=5))
    cluster.advance(5)
    (claim,) = cluster.claim()
    cluster.finish(claim)
    (line,) = page(cluster).lines
    assert line.first_start == START + timedelta(seconds=61)
    assert (line.state, line.text) == ("succeeded", "")


def test_ledger_line_of_a_failure_has_its_error_and_of_a_skip_its_reason(cluster: HandCluster) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.advance(60)
    cluster.fire()
    cluster.fail(claim)
    assert [(line.state, str(line.text)) for line in page(cluster).lines] == [
        ("failed", "OSError: no route to mail server"),
        ("skipped", "overlap"),
    ]


def test_ledger_line_of_an_operators_run_names_what_it_repeats(cluster: HandCluster) -> None:
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    claim = cluster.run_once()
    cluster.store.retry(claim.id, by="ada", why="", again=True)
    assert [str(line.text) for line in page(cluster).lines] == ["", f"manual of run {claim.id}"]


def test_ledger_line_above_the_watermark_is_undecided_and_below_it_a_fault(cluster: HandCluster) -> None:
    cluster.every("tick", "1m")
    cluster.advance(60)
    assert [(line.state, str(line.text)) for line in page(cluster).lines] == [(UNDECIDED, "no node has fired it yet")]
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    cluster.store._space.jobs["tick"].ranges.clear()
    assert page(cluster).lines[0].state == NO_VERDICT


def test_ledger_page_goes_on_where_the_one_before_began(cluster: HandCluster) -> None:
    cluster.every("tick", "1m", overlap="allow", catch_up="all")
    cluster.join()
    cluster.advance(300)
    cluster.fire()
    newest = page(cluster, limit=3)
    older = page(cluster, until=newest.more_before, limit=3)
    minutes = [[line.first.minute for line in one.lines] for one in (newest, older)]
    assert minutes == [[3, 4, 5], [1, 2]]
    assert older.more_before is None


def test_ledger_page_looks_up_the_newest_repeated_runs_alone(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_MAX_LOOKED_UP", 1)
    cluster.every("tick", "1m", retries=1, retry_delay="1s")
    cluster.join()
    for _ in range(2):
        cluster.advance(60)
        cluster.fire()
        (claim,) = cluster.claim()
        cluster.finish(claim, State.PENDING, retry_in=timedelta(seconds=1))
        cluster.advance(1)
        (claim,) = cluster.claim()
        cluster.finish(claim)
    assert [line.first_start is None for line in page(cluster).lines] == [True, False]
