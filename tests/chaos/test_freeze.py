"""SIGSTOP past the lease: the frozen node's runs go to others, and what it does when it wakes up is refused."""

import sqlite3
from contextlib import closing

FREEZES = 2
FROZEN = 2.5
"""Seconds; the lease is one."""


def test_a_node_that_slept_past_its_lease_cannot_record_a_result(make_cluster, dice):
    cluster = make_cluster("1s")
    names = ["a", "b", "c"]
    cluster.start(*names)
    cluster.await_all()
    frozen = []
    for _ in range(FREEZES):
        node, at_work = _frozen_in_the_middle_of_tick_and_pulse(cluster)
        for _passed in cluster.for_seconds(FROZEN + dice.random()):
            cluster.look()
        _until_others_have_begun(cluster, at_work)
        cluster.thaw(node)
        frozen.append(cluster.processes[node].pid)
        # It goes on as a new session.
        _until_it_works(cluster, node)
    until = cluster.settle()
    sessions = cluster.store.sessions(ended=True, limit=1000)
    exits = cluster.drain()
    verdict = cluster.judge(until)

    assert exits == [0, 0, 0]
    assert verdict.report.takeovers >= 1, "the fault did not bite: nothing was taken over"
    refused = [line for line in verdict.comparison.unrecorded if line.job == "tick"]
    assert refused, "the fault did not bite: no sleeper tried to record a result"
    assert "refused the " in verdict.logs
    cancelled = [line for line in cluster.lines if line.event == "broken" and line.job == "pulse"]
    assert cancelled, "no coroutine was cancelled when its node woke up"
    for pid in frozen:
        assert len({one.id for one in sessions if one.pid == pid}) >= 2, "it did not go on as a new session"
    verdict.is_as_promised()


def _until_it_works(cluster, node):
    """Wait until a node starts something again."""
    mark = len(cluster.lines)

    def works():
        cluster.look()
        return any(line.node == node and line.event == "start" for line in cluster.lines[mark:])

    cluster.until(works, f"{node} works again")


def _frozen_in_the_middle_of_tick_and_pulse(cluster):
    """Freeze a node in the middle of a thread that will not stop, and of a coroutine, but not in a transaction.

    Of a SQLite file one frozen process can keep all others out, and then nothing is taken over.
    """
    while True:
        node, at_work = cluster.freeze_in("tick", "pulse")
        with closing(sqlite3.connect(cluster.folder / "chaos.db", timeout=1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                cluster.thaw(node)
                continue
            connection.execute("ROLLBACK")
        return node, at_work


def _until_others_have_begun(cluster, runs):
    """Wait until every run was begun again under a later token."""

    def begun():
        cluster.look()
        latest = {line.occurrence: line.token for line in cluster.lines if line.event == "start"}
        return all(latest[run.occurrence] > run.token for run in runs if run.job != "at_most_once")

    cluster.until(begun, "others have taken over what the frozen one ran")
