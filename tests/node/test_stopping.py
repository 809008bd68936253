"""A node that stops while its store does not answer leaves that handle alone."""

import threading
from datetime import timedelta

import pytest

from cronsensus import InvalidOption, Run, Scheduler
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
    monkeypatch.setattr("cronsensus.node.node.LEAVING", 0.1)
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
