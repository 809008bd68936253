"""Whoever watches the lease is told when there is less of it to watch."""

from datetime import timedelta

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import RecordingExecutor, node_by_hand

LEASE = timedelta(seconds=10)


def test_a_claim_is_told_also_where_a_run_of_the_session_before_is_still_held():
    told: list[float] = []

    def left() -> float:
        assert round_.lease is not None
        return round_.lease.trusted_for

    round_ = node_by_hand(
        store := MemoryStore(clock=(clock := ManualClock())),
        clock,
        RecordingExecutor(),  # what it runs never ends, not even when it is asked to: a thread
        lease=LEASE,
        concurrency=2,
        declare=lambda store: bool(store.define_jobs([JobSpec(name="work", function="work")], release="1").superseded),
        on_work=lambda: told.append(left()),
    )
    round_.open_session()
    store.enqueue([Item(job="work", key="a")])
    round_.run_round()
    assert round_.active_runs.active_count == 1
    assert round_.lease is not None
    round_.lease.mark_lost()
    round_.run_round()
    # A new session, which holds nothing and may be trusted for long; the node still holds the run of the one before.
    assert round_.active_runs.active_count == 1
    assert left() > LEASE.total_seconds()
    told.clear()
    store.enqueue([Item(job="work", key="b")])
    round_.run_round()
    assert round_.active_runs.active_count == 2
    # Without it the watch would come when the long lease ends: long after another node has taken this run over.
    assert told
    assert told[-1] < LEASE.total_seconds()
