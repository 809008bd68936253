"""SIGSTOP past the lease: the frozen node's runs go to others, and what it does when it wakes up is refused."""

FREEZES = 3
FROZEN = 2.5
"""Seconds; the lease is one."""


def test_a_node_that_slept_past_its_lease_cannot_record_a_result(make_cluster, dice):
    cluster = make_cluster("1s")
    names = ["a", "b", "c"]
    cluster.start(*names)
    cluster.await_all()
    frozen = []
    for _ in range(FREEZES):
        node = _frozen_in_the_middle_of_tick_and_pulse(cluster)
        for _passed in cluster.for_seconds(FROZEN + dice.random()):
            cluster.look()
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
    """Freeze a node that has begun both and ended neither: a thread that will not stop, and a coroutine."""
    found: list[str] = []

    def froze():
        for node in _in_the_middle(cluster):
            cluster.freeze(node)
            # On a busy machine a run may have ended before the signal came.
            if node in _in_the_middle(cluster):
                found.append(node)
                return True
            cluster.thaw(node)
        return False

    cluster.until(froze, "some node runs a tick and a pulse")
    return found[0]


def _in_the_middle(cluster):
    """Return the nodes that run both a tick and a pulse, as their lines say."""
    cluster.look()
    running = {}
    for line in cluster.lines:
        if line.event == "start":
            running[line.token] = line
        else:
            running.pop(line.token, None)
    jobs: dict[str, set[str]] = {}
    for line in running.values():
        jobs.setdefault(line.node, set()).add(line.job)
    return [node for node, at_work in jobs.items() if {"tick", "pulse"} <= at_work]
