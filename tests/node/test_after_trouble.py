"""How long a node waits before it knocks again at a store that is away."""

from cronsensus.node.waking import after_trouble

BOUNDS = (0.1, 5.0)


def test_the_wait_grows_and_has_an_end():
    for who in ("node-1", "node-2", ""):
        waits = [after_trouble(troubles, BOUNDS, who) for troubles in range(12)]
        assert 0.05 <= waits[0] <= 0.1
        assert all(2.5 <= wait <= 5.0 for wait in waits[6:])
        assert waits[6] > 4 * waits[2]


def test_nodes_that_lost_the_store_together_do_not_come_back_together():
    waits = sorted(after_trouble(7, BOUNDS, f"session-{number}") for number in range(30))
    assert waits[-1] - waits[0] > 1.5
    assert len({round(wait, 2) for wait in waits}) > 20


def test_a_node_does_not_wait_equally_long_each_time():
    assert len({after_trouble(troubles, BOUNDS, "node-1") for troubles in range(6, 16)}) == 10


def test_the_same_node_waits_the_same_when_its_night_is_played_again():
    assert after_trouble(3, BOUNDS, "node-1") == after_trouble(3, BOUNDS, "node-1")
