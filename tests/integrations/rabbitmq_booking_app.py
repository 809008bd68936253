"""A consumer whose effects commit with the record, and which kills itself once before a commit and once after one.

BROKER, QUEUE, OUT and CRONSENSUS_URL say where.
"""

import os
import signal
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from cronsensus import Scheduler
from cronsensus.integrations.rabbitmq import Message, consumer
from cronsensus.outside import Outside

OUT = Path(os.environ["OUT"])
scheduler = Scheduler(os.environ["CRONSENSUS_URL"], lease="5s")
settle = Outside.settle


def kill_once(when: str) -> None:
    try:
        (OUT / when).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@consumer(scheduler, os.environ["QUEUE"], transaction=True, threads=1)
def book(connection: Connection, body: bytes, message: Message) -> None:
    name, pid = message.message_id, os.getpid()
    connection.execute(text("INSERT INTO bookings VALUES (:name, :pid)"), {"name": name, "pid": pid})
    if name == "before":
        kill_once("before")


def settle_or_die(self: Outside, won: Any, *more: Any) -> None:
    if won.claim.key == "after":
        kill_once("after")
    settle(self, won, *more)


if __name__ == "__main__":
    Outside.settle = settle_or_die  # type: ignore[method-assign,assignment]
    book.run(os.environ["BROKER"])
