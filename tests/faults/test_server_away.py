"""The server is killed and comes back, and stands still for longer than the lease."""

from tests.faults.watching import (
    AWAY,
    NAMES,
    Fault,
    again_and_again,
    said_once,
    settle_and_judge,
    stopped_by,
    stopped_for,
    until_all_work,
    until_busy,
)


def test_a_server_that_is_killed_and_one_that_stands_still(server, make_cluster):
    cluster = make_cluster(server.url)
    until_all_work(cluster)
    killed: list[Fault] = []
    paused: list[Fault] = []
    for number in again_and_again(lambda: all(stopped_by(cluster, each[-1]) for each in (killed, paused))):
        cluster.enqueue(30)
        until_busy(cluster)
        killed.append(Fault())
        server.kill9()
        for _passed in cluster.for_seconds(AWAY):
            cluster.look()
        killed[-1].end()
        server.start()
        until_all_work(cluster)
        if number == 1:
            for node in NAMES:
                said_once(cluster, node)

        cluster.enqueue(30)
        until_busy(cluster)
        paused.append(Fault())
        server.pause()
        for _passed in cluster.for_seconds(AWAY):
            cluster.look()
        paused[-1].end()
        server.resume()
        until_all_work(cluster)

    verdict = settle_and_judge(cluster)
    assert cluster.orders == 60 * number
    stopped_for(cluster, killed)
    stopped_for(cluster, paused)
    assert "the lease could not be renewed in time: stopping what runs" in verdict.logs
