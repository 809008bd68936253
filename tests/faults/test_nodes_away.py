"""One node is stopped, another is cut off from the store: the third takes their runs, and theirs are refused."""

from tests.chaos.cluster import Cluster
from tests.faults.watching import (
    AWAY,
    Fault,
    again_and_again,
    settle_and_judge,
    stopped_by,
    stopped_for,
    until_all_work,
    until_busy,
)
from tests.servers.proxy import Proxy

LIMIT = {"postgres": "?timeout=2s", "mariadb": "?timeout=2s", "mysql": "?timeout=2s"}
"""How long the server lets a transaction stand still, with all that it has locked."""


def test_a_node_that_stands_still_and_one_that_is_cut_off(server, make_cluster):
    limit = LIMIT.get(server.kind, "")
    with Proxy(server.url) as proxy:
        near = dict.fromkeys("ab", server.url + limit)  # not for this test: it may stand still where nodes must not
        cluster = make_cluster(server.url, {**near, "c": proxy.url + limit})
        until_all_work(cluster)
        faults: list[Fault] = []
        for _number in again_and_again(lambda: bool(stopped_by(cluster, faults[-1], "c"))):
            until_busy(cluster, "ac")
            away = Fault()
            faults.append(away)
            # Both ways are silent, and no connection is reset: the worst that a network does.
            proxy.freeze()
            cluster.freeze("a")
            for _passed in cluster.for_seconds(AWAY):
                cluster.look()
            cluster.until(lambda away=away: taken_over(cluster, away) >= {"a", "c"}, "b runs what a and c were running")
            away.end()
            cluster.thaw("a")
            proxy.pass_on()
            until_all_work(cluster)
        sessions = cluster.store.sessions(ended=True, limit=1000)
        verdict = settle_and_judge(cluster)

    stopped_for(cluster, faults, "c")
    assert verdict.report.takeovers >= 2
    assert "refused the end" in verdict.logs, "the fault did not bite: nobody came too late"
    for node in ("a", "c"):
        pid = cluster.processes[node].pid
        assert len({one.id for one in sessions if one.pid == pid}) >= 2, "it did not go on as a new session"
    for fault in faults:
        begun = [line for line in cluster.lines if fault.begun < line.at < fault.ended and line.event == "start"]
        assert {line.node for line in begun if line.attempt > 1} == {"b"}


def taken_over(cluster: Cluster, away: Fault) -> set[str | None]:
    """Return the nodes whose runs were begun again since."""
    cluster.look()
    starts = [line for line in cluster.lines if line.event == "start"]
    # By what they began, and not by what they ran a moment before: that may have ended in time.
    first = {line.occurrence: line.node for line in starts if line.attempt == 1}
    return {first.get(line.occurrence) for line in starts if line.attempt > 1 and line.at > away.begun}
