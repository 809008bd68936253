"""A process that is no node acquires keys and times together, records ends together, and takes over what is left."""

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronsensus import Scheduler, State
from cronsensus.errors import InvalidOption, StoreUnavailable
from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.ends import Again, Final
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.outside import Answer, Refused, Won, pruning

KEPT = Policies(overlap="allow")
QUEUE = JobSpec(name="rabbitmq:orders", function="rabbitmq:orders", policies=KEPT, source="runtime")
CLOCK = JobSpec(name="apscheduler:tick", function="apscheduler:tick", policies=KEPT, source="runtime")
DONE = Final(State.SUCCEEDED, result='"charged"')
PATIENCE = 20.0


class Process:
    """A program with a part in what others name, and guarded calls beside."""

    def __init__(self, url: str, name: str) -> None:
        self.scheduler = Scheduler(url, node=name, lease="5s")
        self.outside = self.scheduler._opened.outside()
        self.steps: Counter[str] = Counter()
        self.store = self.outside._claims.store

    def count(self, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
        for verb in ("acquire", "step"):
            monkeypatch.setattr(self.store, verb, self._counted(verb, getattr(self.store, verb)))
        return self.steps

    def _counted(self, verb: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.steps[verb] += 1
            return real(*args, **kwargs)

        return counted

    def keys(self, *keys: str) -> list[Won | Refused]:
        return [one for [one] in self.outside.acquire([(QUEUE, AskNamed(QUEUE.name, key=key)) for key in keys])]

    def close(self) -> None:
        self.outside.close(wait=timedelta(0))
        self.scheduler._opened.close()


@pytest.fixture
def processes(tmp_path: Any) -> Iterator[Callable[[str], Process]]:
    made: list[Process] = []

    def make(name: str) -> Process:
        made.append(Process(f"sqlite:///{tmp_path}/jobs.db", name))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def mine(processes: Callable[[str], Process]) -> Process:
    return processes("mine")


def states(process: Process, job: str = QUEUE.name) -> dict[str, State]:
    return {one.key: one.state for one in process.store.occurrences(OccurrenceFilter(job=job), limit=100)}


def test_keys_and_times_are_won_in_one_step_and_what_is_refused_says_why(
    processes: Callable[[str], Process], mine: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = processes("other")
    done, running = other.keys("done", "running")
    assert isinstance(done, Won) and isinstance(running, Won)  # noqa: PT018
    assert other.outside.settle_now(done, DONE)
    steps = mine.count(monkeypatch)
    now = mine.store.now().replace(microsecond=0)
    keys = [(QUEUE, AskNamed(QUEUE.name, key=key)) for key in ("done", "running", "new")]
    answers = mine.outside.acquire([*keys, (CLOCK, Ask(CLOCK.name, (now, now - timedelta(seconds=1))))])
    assert steps == {"acquire": 1}
    [was_done], [runs], [new], times = answers
    assert isinstance(was_done, Refused) and isinstance(runs, Refused)  # noqa: PT018
    assert (was_done.why, was_done.seen and was_done.seen.result) == (NotWon.LOST, '"charged"')
    assert (runs.why, runs.seen and runs.seen.session) == (NotWon.LOST, running.claim.session)
    assert isinstance(new, Won)
    assert [one.time for one in times if isinstance(one, Won)] == [now, now - timedelta(seconds=1)]


def test_ends_of_one_moment_are_recorded_in_one_step_and_each_is_told_of(
    mine: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    won = [one for one in mine.keys(*(f"m{number}" for number in range(30))) if isinstance(one, Won)]
    goes_on, told = threading.Event(), queue.Queue[bool]()
    mine.outside._background.submit(lambda: goes_on.wait(PATIENCE))
    for _ in range(3):  # all threads are taken: the ends wait for each other
        mine.outside.submit(lambda: goes_on.wait(PATIENCE))
    steps = mine.count(monkeypatch)
    for one in won:
        mine.outside.settle(one, DONE, told.put)
    goes_on.set()
    assert [told.get(timeout=PATIENCE) for _ in won] == [True] * 30
    assert steps == {"step": 1}
    assert set(states(mine).values()) == {State.SUCCEEDED}


def test_an_end_that_comes_too_late_is_told_as_refused(processes: Callable[[str], Process], mine: Process) -> None:
    [won] = mine.keys("late")
    assert isinstance(won, Won)
    processes("other").store.close_session(won.claim.session)
    told: queue.Queue[bool] = queue.Queue()
    mine.outside.settle(won, DONE, told.put)
    assert told.get(timeout=PATIENCE) is False


def test_what_is_to_be_tried_again_counts_or_not_and_is_free_when_it_is_due(mine: Process) -> None:
    [won] = mine.keys("again")
    assert isinstance(won, Won)
    assert mine.outside.settle_now(won, Again(timedelta(0), failed=False))
    [second] = mine.keys("again")
    assert isinstance(second, Won)
    assert (second.claim.attempt, second.claim.failures) == (1, 0)
    mine.outside.release(second)
    [third] = mine.keys("again")
    assert isinstance(third, Won)


def test_what_could_not_be_asked_runs_nowhere_and_each_who_asked_is_told(
    mine: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("it is away")

    mine.keys("first")  # opens the session
    monkeypatch.setattr(mine.store, "acquire", away)
    got: queue.Queue[Answer | Exception] = queue.Queue()
    mine.outside.acquire_soon((QUEUE, AskNamed(QUEUE.name, key="k")), got.put)
    assert isinstance(got.get(timeout=PATIENCE), StoreUnavailable)


def test_the_upkeep_of_guarded_calls_in_the_same_process_leaves_leftovers_alone(
    processes: Callable[[str], Process], mine: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were one object once: it closed what was not asked for again, and leftovers never are."""
    dead = processes("dead")
    [won] = dead.keys("left")
    assert isinstance(won, Won)
    dead.store.close_session(won.claim.session)
    guarded = mine.scheduler._opened.claims()
    assert guarded is not mine.outside._claims
    mine.keys("mine")
    monkeypatch.setattr(guarded.store, "now", lambda: datetime.now(UTC) + timedelta(days=400))

    @mine.scheduler.once(key="{order}")
    def charge(order: str) -> str:
        return order

    assert charge("o1") == "o1"
    guarded._maintained_at = -1e9
    guarded.maintain_store()
    assert states(mine)["left"] is State.PENDING


def test_a_leftover_is_taken_over_where_that_is_wanted_and_nowhere_else(
    processes: Callable[[str], Process], mine: Process
) -> None:
    dead, redelivers = processes("dead"), processes("redelivers")
    [won] = dead.keys("left")
    assert isinstance(won, Won)
    taken: queue.Queue[Won] = queue.Queue()
    mine.outside.on_leftover(taken.put)
    redelivers.keys("theirs")
    redelivers.outside.look_for_leftovers()
    assert redelivers.outside._leftovers._thread is None
    mine.keys("mine")
    dead.store.close_session(won.claim.session)
    mine.outside.look_for_leftovers()
    leftover = taken.get(timeout=PATIENCE)
    assert (leftover.claim.key, leftover.claim.attempt) == ("left", 2)


def test_effects_commit_with_the_end(mine: Process) -> None:
    from sqlalchemy import text

    [won] = mine.keys("paid")
    assert isinstance(won, Won)
    with mine.outside.transaction(won) as connection:
        connection.execute(text("CREATE TABLE paid (id TEXT)"))
        connection.execute(text("INSERT INTO paid VALUES ('paid')"))
        won.run.complete("charged")
    assert states(mine)["paid"] is State.SUCCEEDED
    assert mine.outside.settle_now(won, DONE)


def test_a_step_takes_no_more_ends_than_it_may(mine: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cronsensus.outside.outside.MOST_AT_ONCE", 4)
    won = [one for one in mine.keys(*(f"m{number}" for number in range(10))) if isinstance(one, Won)]
    for one in won:
        mine.outside.settle(one, DONE)
    assert mine.outside._empty.wait(PATIENCE)
    assert set(states(mine).values()) == {State.SUCCEEDED}


def test_closing_gives_back_what_still_runs(processes: Callable[[str], Process], mine: Process) -> None:
    mine.keys("open")
    mine.outside.close(wait=timedelta(0))
    [again] = processes("other").keys("open")
    assert isinstance(again, Won)


# --- what goes wrong beside others ------------------------------------------------------------------------------------


def test_what_was_won_runs_although_what_was_refused_cannot_be_looked_at(
    processes: Callable[[str], Process], mine: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes("other").keys("theirs")

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(mine.store, "occurrences", away)
    won, refused = mine.keys("mine", "theirs")
    assert isinstance(won, Won)
    assert refused == Refused(NotWon.LOST, None)


def test_what_ended_before_the_close_is_recorded_and_told_as_such(mine: Process) -> None:
    [won] = mine.keys("done")
    assert isinstance(won, Won)
    told: queue.Queue[bool] = queue.Queue()
    mine.outside._is_recording = True  # its thread has not come to it
    mine.outside.settle(won, DONE, told.put)
    mine.outside.close(wait=timedelta(0))
    assert told.get(timeout=PATIENCE) is True
    assert states(mine) == {"done": State.SUCCEEDED}


def test_what_is_given_back_is_never_told_as_recorded(mine: Process) -> None:
    [won] = mine.keys("cut")
    assert isinstance(won, Won)
    mine.outside.cut_off(won)
    told: queue.Queue[bool] = queue.Queue()
    mine.outside.settle(won, DONE, told.put)
    assert told.get(timeout=PATIENCE) is False


def test_a_run_that_is_settled_twice_stops_nobody(mine: Process) -> None:
    first, second = mine.keys("first", "second")
    assert isinstance(first, Won) and isinstance(second, Won)  # noqa: PT018
    told: queue.Queue[str] = queue.Queue()
    mine.outside.settle(first, DONE, lambda _: told.put("first"))
    mine.outside.settle(first, Final(State.FAILED), lambda _: told.put("never"))
    assert told.get(timeout=PATIENCE) == "first"
    mine.outside.settle(second, DONE, lambda _: told.put("second"))
    assert told.get(timeout=PATIENCE) == "second"
    assert set(states(mine).values()) == {State.SUCCEEDED}


def test_who_cannot_be_told_hurts_no_neighbour(mine: Process, caplog: pytest.LogCaptureFixture) -> None:
    won = [one for one in mine.keys("a", "b", "c") if isinstance(one, Won)]
    told: queue.Queue[bool] = queue.Queue()

    def closed(_: bool) -> None:
        raise ConnectionError("the channel is closed")

    mine.outside._is_recording = True
    mine.outside.settle(won[0], DONE, closed)
    for one in won[1:]:
        mine.outside.settle(one, DONE, told.put)
    mine.outside._record_ends()
    assert [told.get(timeout=PATIENCE) for _ in won[1:]] == [True, True]
    assert set(states(mine).values()) == {State.SUCCEEDED}
    assert "the callback for the recorded end" in caplog.text


def test_a_key_that_cannot_be_is_an_error_of_who_asked_for_it_alone(mine: Process) -> None:
    got: queue.Queue[Answer | Exception] = queue.Queue()
    mine.outside._is_acquiring = True
    mine.outside.acquire_soon((QUEUE, AskNamed(QUEUE.name, key="good")), got.put)
    with pytest.raises(InvalidOption):
        mine.outside.acquire_soon((QUEUE, AskNamed(QUEUE.name, key="k" * 100_000)), got.put)
    mine.outside._acquire_once()
    answer = got.get(timeout=PATIENCE)
    assert not isinstance(answer, Exception)
    assert isinstance(answer[0], Won)


def test_what_is_kept_no_longer_goes_once_in_a_while_although_no_node_runs(mine, monkeypatch):
    brief = JobSpec(
        name="rabbitmq:brief", function="rabbitmq:brief", policies=Policies(overlap="allow", keep=timedelta(0)),
        source="runtime",
    )  # fmt: skip
    [[won]] = mine.outside.acquire([(brief, AskNamed(brief.name, key="m-1"))])
    assert isinstance(won, Won)
    assert mine.outside.settle_now(won, DONE)
    mine.outside.prune_when_due()  # the next time is five minutes away
    monkeypatch.setattr(pruning, "PRUNE_EVERY", -1.0)
    assert states(mine, brief.name) == {"m-1": State.SUCCEEDED}
    gone = threading.Event()
    prune = mine.store.prune

    def watched(**options):
        pruned = prune(**options)
        gone.set()
        return pruned

    monkeypatch.setattr(mine.store, "prune", watched)
    mine.outside.prune_when_due()
    assert gone.wait(PATIENCE)
    assert states(mine, brief.name) == {}
