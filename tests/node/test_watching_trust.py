"""Whoever watches the lease is told when there is less of it to watch."""

from datetime import timedelta

from cronsensus import JobSpec
from cronsensus.clock import ManualClock
from cronsensus.model.ids import new_id
from cronsensus.model.occurrence import Item
from cronsensus.model.session import SessionSpec
from cronsensus.node.executors.base import Call, Executor, Registered
from cronsensus.node.round import Round
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.memory import MemoryStore

LEASE = timedelta(seconds=10)


class Deaf(Executor):
    """Runs what never ends, not even when it is asked to: a thread."""

    def start(self, call: Call) -> None: ...

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        call.run.stop(reason, lease_lost=lease_lost)

    def close(self) -> None: ...


def test_a_claim_is_told_also_where_a_run_of_the_session_before_is_still_held():
    told: list[float] = []

    def session() -> SessionSpec:
        return SessionSpec(
            id=new_id(), node="a", host="h", pid=1, pid_started=1, release="1", concurrency=2, version="0"
        )

    def left() -> float:
        assert round_.lease is not None
        return round_.lease.trusted_for

    round_ = Round(
        store := MemoryStore(clock=(clock := ManualClock())),
        clock,
        NodeSettings(name="a", lease=LEASE, concurrency=2),
        registry={"work": Registered("work", lambda: None, "thread")},
        executors={"thread": Deaf()},
        new_session=session,
        declare=lambda store: bool(store.put_jobs([JobSpec(name="work", function="work")], release="1").superseded),
        on_work=lambda: told.append(left()),
    )
    round_.begin()
    store.enqueue([Item(job="work", key="a")])
    round_.step()
    assert round_.active_runs.active == 1
    assert round_.lease is not None
    round_.lease.lose()
    round_.step()
    # A new session, which holds nothing and may be trusted for long; the node still holds the run of the one before.
    assert round_.active_runs.active == 1
    assert left() > LEASE.total_seconds()
    told.clear()
    store.enqueue([Item(job="work", key="b")])
    round_.step()
    assert round_.active_runs.active == 2
    # Without it the watch would come when the long lease ends: long after another node has taken this run over.
    assert told
    assert told[-1] < LEASE.total_seconds()
