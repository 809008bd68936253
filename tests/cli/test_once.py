"""``once forget``: a key is free for the next call, and the trail names the operator."""

from typing import Any

import pytest

from cronsensus import Scheduler


@pytest.fixture
def guarded(cluster: Any) -> Any:
    scheduler = Scheduler(cluster.store)

    @scheduler.once("charge:{order}")
    def charge(order: int) -> int:
        return order

    charge(1)
    yield charge
    scheduler._opened.close()


def test_a_key_is_forgotten_by_the_functions_name_or_the_jobs(cluster: Any, guarded: Any) -> None:
    answer = cluster("once", "forget", "charge", "charge:1", "--reason", "wrong amount", "--by", "ann")
    assert "once:charge under the key charge:1 was succeeded, and is forgotten" in answer.out
    entry = cluster.store.trail(limit=1)[0]
    assert (entry.action, entry.by, entry.why) == ("forget", "ann", "wrong amount")
    guarded(1)
    answer = cluster("once", "forget", "once:charge", "charge:1", "-o", "json")
    assert answer.data == {"job": "once:charge", "key": "charge:1", "was": "succeeded"}


def test_once_forget_of_an_unknown_key_says_where_to_look(cluster: Any, guarded: Any) -> None:
    answer = cluster("once", "forget", "charge", "charge:2")
    assert "nothing is recorded of once:charge under the key 'charge:2'" in answer.err
    assert "runs list --job once:charge" in answer.err
    assert "did you mean 'once:charge'?" in cluster("once", "forget", "once:chrage", "k").err
    cluster.every("tick")
    assert "is a job, not a guarded function" in cluster("once", "forget", "tick", "k").err


def test_forget_deletes_a_running_occurrence_only_on_request(cluster: Any) -> None:
    cluster.every("tick")
    scheduler = Scheduler(cluster.store)
    seen: list[Any] = []

    @scheduler.once("k")
    def work() -> None:
        seen.append(cluster("once", "forget", "work", "k").err)
        seen.append(cluster("once", "forget", "work", "k", "--running").out)

    with pytest.raises(Exception, match="taken over"):
        work()
    assert "is running under the key 'k'" in seen[0]
    assert "--running" in seen[0]
    assert "was running, and is forgotten" in seen[1]
    scheduler._opened.close()
