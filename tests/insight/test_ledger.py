"""The ledger of a job as lines: a verdict for each nominal time, and why."""

from datetime import datetime, timedelta

import pytest

from cronsensus.insight import ledger
from cronsensus.insight.ledger import LedgerPage, ledger_page
from cronsensus.model.states import State
from tests.hand_cluster import START, HandCluster


def page(cluster: HandCluster, *, until: datetime | None = None, limit: int = 100) -> LedgerPage:
    now = cluster.store.now()
    return ledger_page(cluster.store, cluster.job(), START, until or now, now=now, limit=limit)


def test_ledger_page_looks_up_the_newest_repeated_runs_alone(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_MOST_LOOKED_UP", 1)
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
