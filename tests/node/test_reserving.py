"""When runs are reserved, results gathered, and what is reserved given back. No clock, no store, no thread."""

from __future__ import annotations

from typing import Any

import pytest

from cronsensus.node import decide
from cronsensus.node.careful import Careful
from cronsensus.node.herd import Herd
from cronsensus.node.pace import GATHER_SECONDS, STALLED_AFTER, Pace, Queue
from cronsensus.node.situation import Facts, Memory, Next, Release, Sleep, Work
from cronsensus.stores.values import Partition

HERE = 1000.0
LONG_QUEUE: dict[str, Any] = {
    "backlog": True, "looked_at": HERE - 0.1, "look_at": HERE + 5, "pace": Pace(1000.0, HERE, 0, HERE - 0.01),
}  # fmt: skip
RESULTS: dict[str, Any] = {"free_slots": 0, "unsettled": True}
ENOUGH: dict[str, Any] = RESULTS | {"queue": Queue(80, few=False, waits_for=0.05)}


def next_step(facts: dict[str, Any], memory: dict[str, Any]) -> Next:
    known: dict[str, Any] = {"session": "a", "free_slots": 4}
    return decide.next_step(Memory(**LONG_QUEUE | memory), Facts(**known | facts), HERE)[0]


@pytest.mark.parametrize(
    ("facts", "memory", "reserves"),
    [
        ({}, {}, 100),
        ({"queue": Queue(40, waits_for=0.05)}, {}, 60),
        ({"queue": Queue(300, waits_for=0.05)}, {}, 0),
        ({"in_doubt": True}, {}, 0),
        ({"draining": True}, {}, 0),
        ({"trusted": False}, {}, 0),
        ({"given_up": True}, {}, 0),
        ({}, {"backlog": False}, 0),
        ({}, {"careful": Careful(results_alone=True)}, 0),
        ({}, {"pace": Pace(9.0, HERE)}, 0),
        ({}, {"pace": None}, 0),
        ({}, {"herd": Herd(Partition(0, 2))}, 0),
    ],
    ids=["a long queue of short runs", "few are left", "more is reserved than it would now", "claims in doubt",
         "draining", "a lease that is not trusted", "attempts that are over keep slots", "no long queue",
         "results alone", "long runs", "switched off", "a herd is shared out"],
)  # fmt: skip
def test_runs_are_reserved_in_a_long_queue_of_short_ones(
    facts: dict[str, Any], memory: dict[str, Any], reserves: int
) -> None:
    assert next_step(RESULTS | facts, memory) == Work(0, reserves)


@pytest.mark.parametrize(
    ("facts", "memory", "follows"),
    [
        ({}, {}, Sleep(GATHER_SECONDS - 0.01)),
        ({}, {"pace": Pace(1000.0, HERE, 0, HERE - GATHER_SECONDS)}, Work()),
        ({}, {"look_at": HERE}, Work()),
        ({"queue": Queue(80, few=True, waits_for=0.05)}, {}, Work(0, 20)),
        ({"in_doubt": True}, {}, Work()),
        ({}, {"careful": Careful(results_alone=True)}, Work()),
        ({}, {"backlog": False}, Work()),
        ({"queue": Queue(80, few=False, waits_for=STALLED_AFTER + 0.001)}, {}, Release()),
        ({"queue": Queue(80, few=False, waits_for=STALLED_AFTER)}, {}, Sleep(GATHER_SECONDS - 0.01)),
        ({"draining": True}, {}, Release()),
        ({"trusted": False}, {}, Release()),
    ],
    ids=["enough is reserved", "results have waited", "the alarm comes", "slots are soon free", "claims in doubt",
         "results alone", "no long queue", "what is reserved waits too long", "it waits as long as it may",
         "the node drains", "the lease is not trusted"],
)  # fmt: skip
def test_results_gather_while_enough_is_reserved_and_it_goes_back_when_it_stalls(
    facts: dict[str, Any], memory: dict[str, Any], follows: Next
) -> None:
    step = next_step(ENOUGH | facts, memory)
    assert type(step) is type(follows)
    assert step == (pytest.approx(follows) if isinstance(follows, Sleep) else follows)


def test_after_what_was_reserved_went_back_the_pace_is_counted_anew() -> None:
    facts = Facts(session="a", queue=Queue(80, few=False, waits_for=1.0, ends=70))
    memory = decide.next_step(Memory(**LONG_QUEUE), facts, HERE)[1]
    assert memory.pace == Pace(0.0, HERE, 70)


def test_a_claim_of_reserved_runs_alone_tells_that_more_may_wait() -> None:
    memory = Memory(**LONG_QUEUE | {"backlog": False})
    for claimed, backlog in ((0, False), (3, True)):
        after = decide.note_work(memory, Facts(session="a"), HERE, want=0, claimed=claimed, pending_again=False)
        assert (after.backlog, after.pace) == (backlog, Pace(1000.0, HERE, 0, HERE))
