"""What the tests of consumers of RabbitMQ share."""

from collections.abc import Iterator

import pytest

from tests.integrations.rabbitmq_queue import Ledger, Queue
from tests.scratch import scratch_folder


@pytest.fixture
def queue(rabbitmq_url: str) -> Iterator[Queue]:
    queue = Queue(rabbitmq_url)
    yield queue
    queue.close()


@pytest.fixture
def ledger(queue: Queue) -> Iterator[Ledger]:
    with scratch_folder() as folder:
        ledger = Ledger(folder, queue)
        yield ledger
        ledger.other._opened.close()
