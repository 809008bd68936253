"""Why a job did or did not run at a time, asked without the command line."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cronsensus.insight.why import FUTURE, Why, explain_time
from cronsensus.model.states import Reason, State
from tests.hand_cluster import START, HandCluster

MINUTE = timedelta(minutes=1)


def asked(cluster: HandCluster, at: datetime = START + MINUTE) -> Why:
    return explain_time(cluster.store, cluster.job(), at)


def text(found: Why) -> str:
    return " ".join(map(str, found.sentences))


def test_why_of_a_run_has_its_verdict_and_the_run(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    claim = cluster.run_once()
    found = asked(cluster)
    assert (found.verdict, found.reason, found.nominal) == ("succeeded", None, True)
    assert [one.id for one in found.occurrences] == [claim.id]
    assert (found.before, found.after) == (None, START + 2 * MINUTE)


def test_why_of_a_skipped_time_has_the_reason_of_its_range(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.advance(300)
    cluster.join()
    cluster.fire()
    found = asked(cluster)
    assert (found.verdict, found.reason, found.occurrences) == ("skipped", Reason.COALESCED, ())


def test_why_of_a_time_to_come_is_future_and_of_no_nominal_time_nothing(cluster: HandCluster) -> None:
    cluster.every("tick")
    assert asked(cluster).verdict == FUTURE
    assert asked(cluster, START + MINUTE / 2).verdict is None


@pytest.mark.parametrize(
    ("policies", "last"),
    [
        ({"max_crashes": 1}, "After 1 crash no other node tries it (max_crashes=1)."),
        ({"on_crash": "fail"}, "No other node tries it (on_crash=fail)."),
    ],
)
def test_why_of_a_run_that_crashed_for_good_says_which_policy_ends_it(
    cluster: HandCluster, policies: dict[str, str], last: str
) -> None:
    cluster.every("tick", **policies)
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    cluster.claim()
    cluster.store.reclaim(["session-of-node-1"])
    found = asked(cluster)
    assert found.verdict == "failed"
    assert last in text(found)


def test_why_of_a_reserved_run_does_not_claim_that_it_runs(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    cluster.claim()
    cluster.store._space.occurrences[1].reserved = True
    assert "It is claimed, as run 1 on node-1: it waits there for a free slot." in text(asked(cluster))


def test_why_of_a_run_that_cancelled_itself_says_so(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.finish(claim, State.CANCELLED, reason="job: no orders")
    assert "It was cancelled: the job said so: no orders." in text(asked(cluster))


def test_why_of_a_range_for_another_reason_says_it_in_words(cluster: HandCluster) -> None:
    cluster.every("tick")
    cluster.advance(300)
    cluster.join()
    cluster.fire()
    ranges = cluster.store._space.jobs["tick"].ranges
    ranges[:] = [replace(one, range=replace(one.range, reason="operator: wrong month")) for one in ranges]
    assert "No: skipped, an operator cancelled it: wrong month." in text(asked(cluster))
