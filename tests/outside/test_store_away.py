"""A store that is away for longer than the lease, while nobody else can reach it either."""

import queue
from datetime import timedelta

from cronsensus import Scheduler
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Final
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.states import State
from cronsensus.outside import Won
from tests.servers.proxy import Proxy

QUEUE = JobSpec(
    name="rabbitmq:orders", function="rabbitmq:orders", policies=Policies(overlap="allow"), source="runtime"
)
PATIENCE = 30.0


def test_an_end_that_was_owed_for_longer_than_the_lease_is_recorded_when_the_store_is_back(postgres_url: str) -> None:
    told: queue.Queue[bool] = queue.Queue()
    with Proxy(postgres_url) as proxy:
        scheduler = Scheduler(proxy.url, lease="5s")
        outside = scheduler._opened.outside()
        [[won]] = outside.acquire([(QUEUE, AskNamed(QUEUE.name, key="m1"))])
        assert isinstance(won, Won)
        proxy.refuse()
        proxy.cut()
        outside.settle(won, Final(State.SUCCEEDED), told.put)
        assert won.run.lease_lost.wait(PATIENCE)
        assert told.empty()
        proxy.pass_on()
        assert told.get(timeout=PATIENCE)
        outside.close(wait=timedelta(0))
        scheduler._opened.close()
