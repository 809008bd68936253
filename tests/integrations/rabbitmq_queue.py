"""A queue of one test on the broker of the run, the ledger beside it, and consumers in threads of the test."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika

from cronsensus import Scheduler
from cronsensus.integrations.rabbitmq import Consumer
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter

PATIENCE = 20.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


class Queue:
    """A queue of one test on the broker of the run, with the two queues beside it."""

    def __init__(self, url: str, kind: str = "quorum") -> None:
        self.url, self.name, self.kind = url, f"test-{uuid.uuid4().hex[:8]}", kind
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        for name in (self.name, f"{self.name}.failed"):  # both, or a broker may be asked for one that is being made
            self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})

    def send(self, *ids: str | None, body: bytes = b'{"number": 7}', **properties: Any) -> None:
        for id_ in ids:
            shown = pika.BasicProperties(message_id=id_, delivery_mode=2, **properties)
            self.channel.basic_publish("", self.name, body, shown, mandatory=True)

    def dead_letters(self, count: int) -> list[Any]:
        """Wait for so many, and take them out: their properties and bodies."""
        found: list[Any] = []

        def has_more() -> bool:
            got, shown, body = self.channel.basic_get(f"{self.name}.failed", auto_ack=True)
            if got is not None:
                found.append((shown, body))
            return len(found) >= count

        wait_for(has_more, f"{count} dead letters")
        return found

    @property
    def left(self) -> int:
        """How many messages are there, of which none is with a consumer; ask when none runs."""
        channel = self.connection.channel()
        count = channel.queue_declare(self.name, passive=True).method.message_count
        channel.close()
        return int(count)

    def close(self) -> None:
        for queue in (self.name, f"{self.name}.failed", f"{self.name}.held"):
            self.connection.channel().queue_delete(queue)
        self.connection.close()


class Ledger:
    """The store of a test, as another process sees it."""

    def __init__(self, folder: Path, queue: Queue) -> None:
        self.url, self.job = f"sqlite:///{folder}/messages.db", f"rabbitmq:{queue.name}"
        self.other = Scheduler(self.url, lease="5s", node="other")

    def scheduler(self) -> Scheduler:
        return Scheduler(self.url, lease="5s")

    def seen(self, key: str) -> Occurrence | None:
        found = self.other._opened.shared().occurrences(OccurrenceFilter(job=self.job, key=key), limit=1)
        return found[0] if found else None

    def wait_for_end(self, *keys: str) -> list[Occurrence]:
        def ended() -> list[Occurrence]:
            found = [self.seen(key) for key in keys]
            return [one for one in found if one is not None and one.state.final and len(found) == len(keys)]

        wait_for(lambda: len(ended()) == len(keys), f"an end of {keys}")
        return ended()


@contextmanager
def running(made: Consumer[..., Any], url: str) -> Iterator[None]:
    errors: list[Exception] = []

    def run() -> None:
        try:
            made.run(url)
        except Exception as error:  # noqa: BLE001 - raised where the test ends
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        made.stop()
        thread.join(PATIENCE)
        made._scheduler._opened.close()
    assert not thread.is_alive()
    assert not errors, errors
