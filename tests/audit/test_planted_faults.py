"""The audit accuses no correct history, and finds each planted fault: one table of both, for each kind of store."""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cronsensus.jobs.rewinding import rewind_job
from cronsensus.model.batch import item_key
from cronsensus.model.gate import Rule
from cronsensus.model.occurrence import Item
from cronsensus.model.states import Origin, State
from tests.audit.history import RULES, History

SECOND = timedelta(seconds=1)
HOUR = 3600


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis"])
def history(request, tmp_path) -> Iterator[History]:
    match request.param:
        case "memory":
            url = f"memory://{uuid.uuid4().hex}"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case server:
            url = request.getfixturevalue(f"{server}_url")
    found = History(url)
    yield found
    found.store.close()


# --- what must be found -----------------------------------------------------------------------------------------------


def _item_missing(history: History) -> None:
    _, items = history.batch()
    history.delete(items[1])


def _item_never_made(history: History) -> None:
    history.batch(3, listed=4)


def _item_open(history: History) -> None:
    batch, _ = history.batch()
    history.store.enqueue([Item(job="bulk", key=item_key(batch.id, "late"), origin=Origin.BATCH, parent=batch.id)])
    history.wait(60)


def _batch_gone(history: History) -> None:
    batch, _ = history.batch()
    history.delete(batch)


def _batch_ended_before_its_last_item(history: History) -> None:
    batch, items = history.list_batch(3)
    history.wait(1)
    for claim in items[:2]:
        history.end(claim)
    batch = history.wake(batch)
    history.end(batch)
    history.wait(5)
    history.end(items[2], State.SKIPPED, "job: nothing to do")


def _end_of_an_item_moved(history: History) -> None:
    _, items = history.batch()
    history.wait(60)
    history.end_at(items[2], history.store.now())


def _batch_parked(history: History) -> None:
    _, items = history.list_batch(3)
    for claim in items:
        history.end(claim)
    history.wait(60)


def _time_gone(history: History) -> None:
    history.delete(history.night()["right"])


def _began_before_its_upstream_ended(history: History) -> None:
    claims = history.nightfall("left", "right", "foot")
    history.end(claims["left"])
    history.wait(5)
    history.end(claims["foot"])
    history.wait(5)
    history.end(claims["right"])


def _start_moved_before_the_end_of_its_upstream(history: History) -> None:
    claims = history.night()
    history.start_at(claims["foot"], claims["foot"].due_at)


def _runs_although_its_upstream_is_open(history: History) -> None:
    history.nightfall("left", "right", "foot")
    history.wait(60)


def _ran_although(state: State) -> Callable[[History], None]:
    def plant(history: History) -> None:
        claims = history.nightfall("left", "right", "foot")
        history.end(claims["left"], state)
        history.end(claims["right"])
        history.wait(5)
        history.end(claims["foot"])

    return plant


def _ran_against_its_when(history: History) -> None:
    claims = history.nightfall("left", "rescue")
    history.end(claims["left"])
    history.wait(5)
    history.end(claims["rescue"])


def _skipped_although_all_succeeded(history: History) -> None:
    claims = history.nightfall("left", "right", "foot")
    history.park(claims["foot"])
    history.wait(2)
    for job in ("left", "right"):
        history.end(claims[job])
    history.end(history.wake(claims["foot"]), State.SKIPPED, "upstream failed: left")


def _dependent_parked(history: History) -> None:
    claims = history.nightfall("left", "right", "foot")
    history.park(claims["foot"])
    for job in ("left", "right"):
        history.wait(2)
        history.end(claims[job])
    history.wait(40)


def _started_before_it_was_due(history: History) -> None:
    history.store.enqueue([Item(job="watch", key="later", delay=timedelta(seconds=30))])
    history.wait(40)
    claim = history.claim()["later"]
    history.end(claim)
    history.start_at(claim, claim.due_at - SECOND)


FAULTS: dict[str, tuple[Callable[[History], None], str, str]] = {
    "an item of a batch is gone": (_item_missing, "missing", "a batch of 3 items that succeeded, and has 2 of them"),
    "an item of a batch was never made": (_item_never_made, "missing", "a batch of 4 items that succeeded, and has 3"),
    "an item of a batch is open": (_item_open, "stuck", "a batch that succeeded, and 1 of its items is open"),
    "a batch is gone": (_batch_gone, "stray", "which the store does not have"),
    "a batch ended before its last item": (_batch_ended_before_its_last_item, "early", "after its batch"),
    "the end of an item was moved": (_end_of_an_item_moved, "early", "after its batch"),
    "a batch is parked for ever": (_batch_parked, "stuck", "is asleep, but its items ended"),
    "a nominal time is gone": (_time_gone, "missing", "no verdict"),
    "it began before its upstream ended": (_began_before_its_upstream_ended, "early", "but comes after 'right'"),
    "its start was moved before that end": (_start_moved_before_the_end_of_its_upstream, "early", "comes after 'left'"),
    "it runs although its upstream is open": (_runs_although_its_upstream_is_open, "early", "is running"),
    "it ran although its upstream failed": (_ran_although(State.FAILED), "stray", "is failed"),
    "it ran although its upstream was skipped": (_ran_although(State.SKIPPED), "stray", "is skipped"),
    "it ran although its upstream was cancelled": (_ran_although(State.CANCELLED), "stray", "is cancelled"),
    "it ran although when= asks for a failure": (_ran_against_its_when, "stray", "'left', whose run"),
    "it was skipped although all succeeded": (
        _skipped_although_all_succeeded,
        "missing",
        "is skipped (upstream failed",
    ),
    "a dependent is parked for ever": (_dependent_parked, "stuck", "is asleep, but what it comes after ended"),
    "it started before it was due": (_started_before_it_was_due, "early", "before it was due"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(history, fault):
    plant, kind, words = FAULTS[fault]
    history.night()
    history.batch()
    plant(history)
    report = history.audit()
    assert {one.kind for one in report.findings} == {kind}, report.findings
    assert any(words in one.sentence for one in report.findings), report.findings


# --- what must not be accused -----------------------------------------------------------------------------------------


def _takeover_in_an_alerts_watch(history: History) -> None:
    history.store.enqueue([Item(job="watch", key="watch")])
    for cut in (False, True):
        history.snooze(history.claim()["watch"], 20, quiet=True)
        history.wait(20)
        claim = history.claim()["watch"]
        history.wait(3)
        if cut:
            history.cut(claim)
        else:
            history.die()
        history.wait(1)
        history.snooze(history.claim()["watch"], 17, quiet=True)
        assert history.audit().findings == []
        history.wait(17)
    claim = history.claim()["watch"]
    assert history.audit().findings == []
    history.snooze(claim, 30, quiet=True)
    history.store.cancel(claim.id, by="me", why="enough")


def _killed_before_the_gate_was_asked(history: History) -> None:
    history.nightfall()
    history.die()
    history.wait(1)
    claims = history.claim()
    for job in RULES:
        history.park(claims[job])
    history.wait(2)
    for job in ("left", "right"):
        history.end(claims[job])
    history.end(history.wake(claims["foot"]))
    history.end(history.wake(claims["rescue"]), State.SKIPPED, "upstream succeeded: left")
    history.end(history.wake(claims["tidy"]))


def _cancelled_before_the_gate_was_asked(history: History) -> None:
    claims = history.nightfall("left", "right", "foot")
    history.store.cancel(claims["foot"].id, by="me", why="not tonight")
    history.park(claims["foot"])
    history.wait(5)
    for job in ("left", "right"):
        history.end(claims[job])


def _gate_asked_late(history: History) -> None:
    """The upstream ended between the claim and the gate: another node had it."""
    claims = history.nightfall("left", "right", "foot")
    history.wait(0.5)
    for job in ("left", "right"):
        history.end(claims[job])
    history.wait(0.1)
    history.end(claims["foot"])


def _pruned_between_items_and_end(history: History) -> None:
    batch, items = history.list_batch(3)
    for claim in items:
        history.end(claim)
        history.wait(10)
    history.end(history.wake(batch))
    assert history.store.prune(history.store.now() - SECOND) == 0  # items go with their batch


def _pruned_between_a_cancelled_batch_and_its_items(history: History) -> None:
    batch, items = history.list_batch(3)
    history.store.cancel(batch.id, by="me", why="enough")
    history.wait(10)
    for claim in items:
        history.end(claim)
    assert history.store.prune(history.store.now() - SECOND) == 1


def _retried_by_hand(history: History) -> None:
    claims = history.night(State.FAILED)
    history.wait(60)
    for job in ("left", "foot", "rescue"):
        history.store.retry(claims[job].id, by="me", again=True)
    again = history.claim("left", "foot", "rescue")
    history.park(again["foot"])
    history.wait(5)
    history.end(again["left"])
    history.end(history.wake(again["foot"]))
    history.end(again["rescue"], State.SKIPPED, "upstream succeeded: left")


def _upstream_retried_later(history: History) -> None:
    """What ran after a success, and what was skipped after a failure, stays right whatever is retried since."""
    for first, second in ((State.SUCCEEDED, State.FAILED), (State.FAILED, State.SUCCEEDED)):
        claims = history.night(first)
        history.wait(60)
        history.store.retry(claims["left"].id, by="me", again=True)
        assert history.audit().findings == []
        history.end(history.claim("left")["left"], second)
        assert history.audit().findings == []


def _upstream_retried_and_the_first_pruned(history: History) -> None:
    claims = history.nightfall()
    for job in ("left", "right"):
        history.end(claims[job])
    history.wait(40)
    bound = history.store.now()
    history.wait(1)
    for job, state in (("foot", State.SUCCEEDED), ("tidy", State.SUCCEEDED)):
        history.end(claims[job], state)
    history.end(claims["rescue"], State.SKIPPED, "upstream succeeded: left")
    history.store.retry(claims["left"].id, by="me", again=True)
    history.end(history.claim("left")["left"], State.FAILED)
    history.store.prune(bound)


def _chain_by_hand(history: History) -> None:
    history.wait(10)
    history.store.trigger("left", by="me", downstream=["right", "foot"])
    claims = history.claim()
    history.park(claims["foot"])
    for job in ("left", "right"):
        history.wait(2)
        history.end(claims[job])
    history.end(history.wake(claims["foot"]))


def _rewound(history: History) -> None:
    history.night()
    history.clock.step(3 * HOUR)
    history.join()
    history.night()
    history.clock.step(-3 * HOUR)
    history.join()
    for job in ("left", "right", *RULES):
        rewind_job(history.store, job, by="me", why="chrony")
    history.night()


def _snoozed(history: History) -> None:
    claims = history.nightfall("left")
    history.store.enqueue([Item(job="watch", key="watch")])
    claims |= history.claim("watch")
    for _ in range(3):
        for claim in claims.values():
            history.snooze(claim, 5)
        history.wait(6)
        claims = history.claim("left", "watch")
    for claim in claims.values():
        history.end(claim)


def _reserved_and_reclaimed(history: History) -> None:
    history.wait(HOUR)
    history.fire()
    claims = history.claim("left", "right", "foot", reserve=10)
    assert claims["foot"].reserved
    history.wait(40)
    assert history.audit().findings == []
    history.die()
    claims = history.claim("left", "right", "foot")
    history.park(claims["foot"])
    history.wait(1)
    for job in ("left", "right"):
        history.end(claims[job])
    history.end(history.wake(claims["foot"]))


def _parked_while_anything_is_open(history: History) -> None:
    claims = history.nightfall("left", "right", "foot")
    history.park(claims["foot"])
    history.end(claims["left"])
    _, items = history.list_batch(3)
    history.end(items[0])
    history.wait(HOUR / 2)


def _written_late_by_a_frozen_lister(history: History) -> None:
    batch, _ = history.batch()
    history.store.enqueue([Item(job="bulk", key=item_key(batch.id, "late"), origin=Origin.BATCH, parent=batch.id)])
    history.wait(1)
    [late] = history.claim().values()
    history.end(late, State.CANCELLED, "batch ended")


CORRECT: dict[str, Callable[[History], None]] = {
    "takeover in an alerts watch": _takeover_in_an_alerts_watch,
    "killed before the gate was asked": _killed_before_the_gate_was_asked,
    "cancelled before the gate was asked": _cancelled_before_the_gate_was_asked,
    "gate asked late": _gate_asked_late,
    "pruned between items and end": _pruned_between_items_and_end,
    "pruned between a cancelled batch and its items": _pruned_between_a_cancelled_batch_and_its_items,
    "retried by hand": _retried_by_hand,
    "upstream retried later": _upstream_retried_later,
    "upstream retried and the first pruned": _upstream_retried_and_the_first_pruned,
    "chain by hand": _chain_by_hand,
    "rewound": _rewound,
    "snoozed": _snoozed,
    "reserved and reclaimed": _reserved_and_reclaimed,
    "parked while anything is open": _parked_while_anything_is_open,
    "written late by a frozen lister": _written_late_by_a_frozen_lister,
}


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_history_is_not_accused(history, name):
    CORRECT[name](history)
    assert history.audit().findings == []


def test_a_release_that_adds_an_upstream_is_not_held_against_the_runs_before(history):
    history.define("r0", rules=RULES | {"foot": (Rule("left"),)})
    claims = history.nightfall()
    history.end(claims["left"])
    history.end(claims["foot"])
    history.wait(5)
    history.end(claims["right"])
    assert history.audit().findings == []
    history.define("r2")
    history.wait(5)
    assert history.audit().findings == []


def test_what_once_was_found_is_gone_when_it_is_right_again(history):
    claims = history.nightfall("left", "right", "foot")
    history.park(claims["foot"])
    _, items = history.list_batch(1)
    for claim in (claims["left"], claims["right"], items[0]):
        history.end(claim)
    history.wait(60)
    assert len(history.audit().findings) == 2
    history.store.wake([one.id for job in ("foot", "bulk") for one in history.of(job)])
    assert history.audit().findings == []
