"""Eight nodes, started in the same instant on a file that does not exist."""

NODES = 8


def test_eight_nodes_that_start_in_the_same_instant_share_the_work(make_cluster):
    cluster = make_cluster()
    assert not (cluster.folder / "chaos.db").exists()
    names = [f"n{number}" for number in range(NODES)]
    for name in names:
        cluster.start(name)
        cluster.freeze(name)
    assert not (cluster.folder / "chaos.db").exists(), "the fault did not bite: one has begun before the others"
    for name in names:
        cluster.thaw(name)
    cluster.await_all()
    seen: set[str] = set()

    def shared_out():
        seen.update(line.node for line in cluster.look() if line.event == "start")
        return len(seen) >= NODES // 2 and len(cluster.lines) >= 40

    cluster.enqueue(20)
    cluster.until(shared_out, "half of the nodes have run something")
    until = cluster.settle()
    exits = cluster.drain()
    verdict = cluster.judge(until)

    assert exits == [0] * NODES
    assert verdict.logs.lower().count("traceback") == 0
    verdict.is_as_promised()
    assert verdict.count.started == verdict.count.ended == verdict.report.runs
    assert verdict.report.takeovers == 0
    assert verdict.report.succeeded == verdict.report.expected
