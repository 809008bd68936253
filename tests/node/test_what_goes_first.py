"""What goes first, as a user sees it: the schedule is kept beside a batch and behind a long queue."""

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from cronsensus import Run, Scheduler, every
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State

MUCH = 1200
TICKS = 8
LATE = 1.5


def replica(url: str, late: list[float], enough: threading.Event) -> tuple[Scheduler, Any, Any]:
    scheduler = Scheduler(url, concurrency=2)

    @scheduler.job(items=lambda: list(range(MUCH)))
    def close(shop: int) -> None:
        time.sleep(0.05)

    @scheduler.job()
    def mail(number: int) -> None:
        time.sleep(0.05)

    @scheduler.job(every("200ms"))
    def tick(run: Run) -> None:
        assert run.scheduled_for is not None
        late.append(time.time() - run.scheduled_for.timestamp())
        if len(late) >= TICKS:
            enough.set()

    return scheduler, close, mail


@pytest.mark.parametrize("behind", ["a batch", "a long queue"])
def test_a_job_of_each_fifth_of_a_second_is_run_in_time_behind(behind, tmp_path):
    late: list[float] = []
    enough = threading.Event()
    url = f"sqlite:///{tmp_path}/jobs.db"
    (one, close, mail), (other, _, _) = (replica(url, late, enough) for _ in range(2))
    with ExitStack() as nodes:
        nodes.enter_context(one)
        nodes.enter_context(other)
        if behind == "a batch":
            close.trigger()
        else:
            mail.enqueue_many(mail.call(number) for number in range(MUCH))
        job = "close" if behind == "a batch" else "mail"
        done, waits = (OccurrenceFilter(job=job, states=(state,)) for state in (State.SUCCEEDED, State.PENDING))
        while len(one.store.occurrences(done, limit=5)) < 5:
            assert not enough.wait(0.01), "nothing of it is run"
        late.clear()
        enough.clear()
        assert enough.wait(20)
        assert len(one.store.occurrences(waits, limit=10)) == 10, "it was over too soon to prove anything"
        assert max(late) < LATE
        one.store.retire(job, by="test", why="what waits need not be run")
