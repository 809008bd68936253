from datetime import timedelta

import pytest

from cronsensus.model.step import Want


@pytest.mark.parametrize(
    ("limit", "reserve", "nodes", "chosen", "taken"),
    [
        (4, 6, 2, 10, 10),
        (4, 6, 2, 9, 6),
        (4, 6, 3, 9, 5),
        (4, 6, 2, 4, 4),
        (4, 6, 2, 1, 1),
        (0, 6, 2, 6, 6),
        (0, 6, 2, 5, 2),
        (-2, 6, 2, 4, 2),
    ],
    ids=[
        "the queue goes on",
        "of its end, what begins at once and half of the rest",
        "a third of the rest",
        "all of it begins at once",
        "less than begins at once",
        "all slots are taken, and the queue goes on",
        "all slots are taken, at the end of the queue",
        "runs beyond the slots",
    ],
)
def test_node_takes_what_begins_at_once_and_of_the_end_of_a_queue_its_part(
    limit: int, reserve: int, nodes: int, chosen: int, taken: int
) -> None:
    want = Want(limit=limit, reserve=reserve, nodes=nodes, functions=["work"], lease=timedelta(seconds=9))
    assert want.part(chosen) == taken
