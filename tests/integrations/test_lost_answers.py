"""The server gave a named time to this process, and its answer was lost: the time is run once, by somebody."""

import contextlib
import queue
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from cronsensus import Scheduler, State, StoreError
from cronsensus.model.acquiring import Ask
from cronsensus.model.ends import Final
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.outside import Won
from tests.once.test_lost_answers import lose_next
from tests.servers.proxy import Proxy

NAME = "apscheduler:tick"
SPEC = JobSpec(name=NAME, function=NAME, policies=Policies(overlap="allow"), source="runtime")
PATIENCE = 30.0


@pytest.fixture(params=["postgres", "mysql", "redis"])
def server_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


class Replica:
    """A process that takes part, and runs at once whatever it gets."""

    def __init__(self, url: str, ran: "queue.Queue[tuple[str, datetime]]", name: str) -> None:
        self._ran, self._name = ran, name
        self.scheduler = Scheduler(url, node=name, lease="2s")
        self.participant = self.scheduler._opened.outside()
        self.participant.on_leftover(self._run)
        self.participant.declare(SPEC)

    def name_time(self, at: datetime) -> None:
        for one in self.participant.acquire([(SPEC, Ask(NAME, (at,), "run"))])[0]:
            if isinstance(one, Won):
                self._run(one)

    def _run(self, won: Won) -> None:
        self._ran.put((self._name, won.time))
        self.participant.settle(won, Final(State.SUCCEEDED))

    def close(self) -> None:
        self.participant.close()
        self.scheduler._opened.close()


@pytest.fixture
def proxy(server_url: str) -> Iterator[Proxy]:
    with Proxy(server_url) as made:
        yield made


def test_a_time_of_which_the_answer_is_lost_is_run_once(server_url: str, proxy: Proxy) -> None:
    ran: queue.Queue[tuple[str, datetime]] = queue.Queue()
    cut, other = Replica(proxy.url, ran, "cut"), Replica(server_url, ran, "other")
    try:
        first = datetime.now(UTC).replace(microsecond=0)
        cut.name_time(first)  # defines the job, opens the session
        assert ran.get(timeout=PATIENCE) == ("cut", first)
        times = [first + timedelta(milliseconds=number) for number in (1, 2, 3)]
        for at in times:
            lose_next(proxy, server_url)
            with contextlib.suppress(StoreError):  # it does not know, and runs nothing; a renewal gives it back
                cut.name_time(at)
            proxy.pass_on()
            other.name_time(at)
        assert proxy.struck, "the fault did not bite"
        got = [ran.get(timeout=PATIENCE)[1] for _ in times]
        assert sorted(got) == times
        for replica in (cut, other):
            replica.participant.look_for_leftovers()
        with pytest.raises(queue.Empty):
            ran.get(timeout=3.0)  # longer than the lease: nobody runs one again
        where = OccurrenceFilter(job=NAME, states=(State.SUCCEEDED,))
        assert len(other.scheduler.store.occurrences(where)) == 4
    finally:
        proxy.pass_on()
        cut.close()
        other.close()
