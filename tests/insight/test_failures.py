"""What failed and was not run again, grouped by what makes failures alike."""

import pytest

from cronsensus.insight.failures import fingerprint_of, group_failures, open_failures, place_of
from cronsensus.model.occurrence import RunError
from tests.hand_cluster import HandCluster

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/shop/billing.py", line {}, in charge\n    raise X\nX: y'


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    return cluster


def fail(cluster: HandCluster, message: str) -> int:
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.fail(claim, message)
    return claim.id


def test_failures_that_differ_in_numbers_are_one_group_the_largest_first(cluster: HandCluster) -> None:
    numbers = [fail(cluster, text) for text in ("no stock", "order 17 of 0x7f3a is gone", "order 4 of 0xa is gone")]
    groups = group_failures(open_failures(cluster.store))
    assert [[one.id for one in group.runs] for group in groups] == [[numbers[2], numbers[1]], [numbers[0]]]
    assert groups[0].message == "order 4 of 0xa is gone"
    assert groups[0].jobs == ["tick"]


def test_what_was_run_again_is_no_longer_open(cluster: HandCluster) -> None:
    first, second = fail(cluster, "no stock"), fail(cluster, "no stock")
    cluster.store.retry(first, by="ann")
    assert [one.id for one in open_failures(cluster.store)] == [second]


def test_only_the_job_the_span_and_the_group_that_are_asked_for(cluster: HandCluster) -> None:
    old = fail(cluster, "no stock")
    since = cluster.advance(10)
    new = fail(cluster, "no route")
    assert [one.id for one in open_failures(cluster.store, since=since)] == [new]
    assert open_failures(cluster.store, job="other") == []
    (group,) = (group for group in group_failures(open_failures(cluster.store)) if group.runs[0].id == old)
    assert [one.id for one in open_failures(cluster.store, group=group.fingerprint)] == [old]


def test_the_place_is_the_innermost_function_whatever_its_line() -> None:
    one, other = (RunError(type="X", message="y", traceback=TRACEBACK.format(line)) for line in (41, 43))
    assert place_of(one) == "charge in billing.py"
    assert fingerprint_of(one) == fingerprint_of(other)
    assert fingerprint_of(one) != fingerprint_of(RunError(type="X", message="y"))
    assert fingerprint_of(None) != fingerprint_of(RunError(type="X", message="y"))
