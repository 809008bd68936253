"""A node that stops while its store does not answer leaves that handle alone."""

import threading
from datetime import timedelta

import pytest

from cronsensus import Run, Scheduler
from cronsensus.errors import InvalidOption
from cronsensus.stores.memory import MemoryStore


class Stuck(MemoryStore):
    """A store in which a look, once it is told to, does not come back."""

    stuck = threading.Event()
    entered = threading.Event()
    free = threading.Event()
    closed_by: list[int]

    def _look(self, limit, partition, ahead):
        if self.stuck.is_set():
            self.entered.set()
            self.free.wait(20)
        return super()._look(limit, partition, ahead)

    def close_session(self, session):
        self.closed_by.append(threading.get_ident())
        return super().close_session(session)


def test_a_session_is_left_to_its_lease_while_its_round_is_inside_the_store(monkeypatch, caplog):
    monkeypatch.setattr("cronsensus.node.node.LEAVING_SECONDS", 0.1)
    monkeypatch.setattr(Stuck, "closed_by", [], raising=False)
    scheduler = Scheduler(Stuck("memory://stuck-in-a-look"))

    @scheduler.job()
    def work() -> None: ...

    scheduler.start()
    Stuck.stuck.set()
    work.enqueue()
    try:
        assert Stuck.entered.wait(10)
        scheduler.stop(timedelta(0))
        assert Stuck.closed_by == []
        assert "left to end with its lease" in caplog.text
    finally:
        Stuck.free.set()


def test_a_round_that_the_end_of_its_node_cut_off_is_no_mistake(monkeypatch, caplog):
    class CutOff(MemoryStore):
        entered, closed = threading.Event(), threading.Event()
        looks: list[tuple[MemoryStore, threading.Thread]]

        def _look(self, limit, partition, ahead):
            self.looks.append((self, threading.current_thread()))
            self.entered.set()
            assert self.closed.wait(20)
            raise AttributeError("'NoneType' object has no attribute 'recv'")

        def close(self):
            super().close()
            if any(handle is self for handle, _ in self.looks):
                self.closed.set()

    monkeypatch.setattr("cronsensus.node.node.LEAVING_SECONDS", 0.1)
    monkeypatch.setattr(CutOff, "looks", [], raising=False)
    caplog.set_level("DEBUG", "cronsensus.node")
    scheduler = Scheduler(CutOff("memory://cut-off"))
    scheduler.start()
    assert CutOff.entered.wait(10)
    scheduler.stop(timedelta(0))
    ((_, rounds),) = CutOff.looks
    rounds.join(20)
    assert not rounds.is_alive()
    assert "cut off by the stop" in caplog.text
    assert "a mistake in cronsensus" not in caplog.text


@pytest.mark.parametrize("numbers", [(float("inf"), 1), (1, float("nan"))])
def test_progress_is_told_in_numbers_that_json_has(numbers):
    scheduler = Scheduler("memory://")

    @scheduler.job()
    def work(run: Run) -> None:
        run.progress(*numbers)

    with scheduler:
        one = work.enqueue().wait("60s")
    assert one.error is not None
    assert one.error.type.endswith(InvalidOption.__name__)
    assert "finite" in one.error.message
