"""What threads wait for each other by is whole after an exception out of a signal handler, wherever that comes."""

import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.process import interrupts
from cronsensus.process.background import Background, Gone
from cronsensus.process.logger import Logger
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, win_named
from tests import cancelling
from tests.cancelling import CutCall, each_line

PATIENCE = 60.0
LEASE = timedelta(minutes=5)


def elsewhere(act: Callable[[], object]) -> bool:
    """Whether another thread comes to the end of this."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


@pytest.fixture
def from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt this file too, as if it were the library's."""
    monkeypatch.setattr(cancelling, "LIBRARY", __file__)
    monkeypatch.setattr(cancelling, "BENEATH", cancelling.BENEATH | {interrupts.__file__})


def use(condition: threading.Condition) -> None:
    with condition:
        condition.notify_all()
        condition.wait_for(lambda: False, 0.001)


@pytest.mark.usefixtures("from_here")
def test_a_condition_is_free_after_an_interruption_anywhere():
    def scenario(cut: CutCall) -> None:
        condition = interrupts.Condition()
        cut(lambda: use(condition))
        assert cut.error is None or isinstance(cut.error, cancelling.Interrupted)
        assert elsewhere(lambda: use(condition))

    assert each_line(scenario, visits=2) > 10


@pytest.mark.usefixtures("from_here")
def test_that_of_the_standard_library_is_not(monkeypatch):
    """Why there is one of our own; when this fails, it may go."""
    monkeypatch.setattr(f"{__name__}.PATIENCE", 0.2)

    def scenario(cut: CutCall) -> None:
        condition = threading.Condition()
        cut(lambda: use(condition))
        assert elsewhere(lambda: use(condition))

    with pytest.raises(AssertionError):
        each_line(scenario, visits=2)


@pytest.mark.usefixtures("from_here")
def test_an_event_wakes_others_after_an_interruption_anywhere():
    def scenario(cut: CutCall) -> None:
        event = interrupts.Event()

        def both() -> None:
            event.wait(0.001)
            event.set()
            event.wait()

        cut(both)
        event.clear()
        woken = threading.Thread(target=event.wait, daemon=True)
        woken.start()
        assert elsewhere(event.set)
        woken.join(PATIENCE)
        assert not woken.is_alive()

    assert each_line(scenario, visits=2) > 5


def test_event_wakes_all_waiters_and_a_timeout_returns_false():
    event = interrupts.Event()
    assert not event.wait(0)
    assert not event.wait(-1)
    said: list[bool] = []
    threads = [threading.Thread(target=lambda: said.append(event.wait(PATIENCE))) for _ in range(4)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join()
    assert said == [True] * 4
    assert event.wait()


def test_undisturbed_act_is_done_whole_or_not_begun():
    background = Background("undisturbed", most=1, log=Logger("cronsensus"))

    def scenario(cut: CutCall) -> None:
        did: list[int] = []

        def act() -> int:
            did.append(1)
            did.append(2)
            return 3

        cut(lambda: background.undisturbed(act))
        assert did in ([], [1, 2])
        assert cut.error is not None or cut.value == 3
        assert background.undisturbed(lambda: 4) == 4

    assert each_line(scenario) > 5


def test_an_error_of_what_is_done_undisturbed_is_the_callers():
    background = Background("undisturbed", most=1, log=Logger("cronsensus"))
    with pytest.raises(ZeroDivisionError):
        background.undisturbed(lambda: 1 / 0)


def test_the_memory_store_is_whole_after_an_interruption_anywhere():
    numbers = count()

    def scenario(cut: CutCall) -> None:
        store = MemoryStore()
        store.define_jobs([JobSpec(name="a", function="f")], release="r1")
        first, second = (f"s{next(numbers)}" for _ in range(2))
        store.open_session(a_session(first), lease=LEASE)

        def run() -> None:
            claim = win_named(store, first, "a", lease=LEASE, key="k")
            assert claim is not None
            store.lock("name", "me", ttl=LEASE, session=first)
            outcome = an_end(id=claim.id, token=claim.token, session=first, state=State.PENDING)
            settle(store, [outcome])

        cut(run)
        store.close_session(first)
        store.open_session(a_session(second), lease=LEASE)
        assert elsewhere(store.counts)
        claim = win_named(store, second, "a", lease=LEASE, key="k")
        assert claim is not None
        assert store.lock("name", "me", ttl=LEASE, session=second) is not None
        outcome = an_end(id=claim.id, token=claim.token, session=second, state=State.SUCCEEDED)
        assert settle(store, [outcome])[0].accepted
        assert [one.state for one in store.occurrences(OccurrenceFilter())] == [State.SUCCEEDED]
        assert [view.holds for view in store.sessions()] == [1]

    assert each_line(scenario) > 20


# --- what is dropped --------------------------------------------------------------------------------------------------


class Held:
    """What is held, such as a lock."""


def test_dropped_act_does_not_wait_for_an_earlier_one():
    background = Background("dropped", most=4, log=Logger("cronsensus"))
    lock = Held()
    background.held[Gone(lock)] = None
    background.need_one()
    go_on, both = threading.Event(), threading.Event()
    background.drop(lambda: go_on.wait(PATIENCE))  # as one that frees a lock in a store that does not answer
    background.drop(both.set)
    assert both.wait(PATIENCE / 2)
    go_on.set()
    background.held.clear()


def test_a_thread_stays_if_something_is_held_just_as_it_goes():
    background = Background("goes", most=4, log=Logger("cronsensus"))
    started, lock = [threading.current_thread()], Held()

    class Threads(list[threading.Thread]):
        def remove(self, one: threading.Thread) -> None:
            background.held[Gone(lock)] = None  # and ``need_one`` finds that there is a thread
            super().remove(one)

    background._threads = Threads(started)
    assert not background._may_end()
    assert background._threads == started
