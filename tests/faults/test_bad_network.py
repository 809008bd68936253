"""Connections are cut at any byte, and after a commit was sent: whoever does not know asks again."""

import random

from tests.faults.conftest import Kind
from tests.faults.watching import NAMES, again_and_again, settle_and_judge, until_all_work, until_one_works
from tests.servers.proxy import Proxy

CUTS = 15
MOST_BYTES = 6000
LOST = 10
MOST_LOST = 200
"""About one lost answer in ten is that of a claim: the others are those of renewals, results and plans. Of 24 runs one
met none of a claim in 50."""
IN_DOUBT = "was claimed, but the answer was lost: it runs here"


def test_connections_cut_at_any_byte_and_answers_lost(server, kind: Kind, make_cluster, dice: random.Random):
    with Proxy(server.url) as proxy:
        cluster = make_cluster(server.url, dict.fromkeys(NAMES, proxy.url))
        until_all_work(cluster)
        struck = 0
        for _number in again_and_again():
            for _ in range(CUTS):
                struck += 1
                cluster.enqueue(3)
                proxy.cut_after(dice.randrange(1, MOST_BYTES), dice.choice(["up", "down"]))
                proxy.await_strike(struck)
                until_one_works(cluster)

            for number in range(1, MOST_LOST + 1):
                struck += 1
                cluster.enqueue(3)
                proxy.lose_answer_to(kind.commit)
                proxy.await_strike(struck)
                until_one_works(cluster)
                if number >= LOST and IN_DOUBT in cluster.logs:
                    break
            assert IN_DOUBT in cluster.logs, "it did not bite: it never was a claim whose answer was lost"
        until_all_work(cluster)
        settle_and_judge(cluster)
    assert cluster.orders == 3 * struck
