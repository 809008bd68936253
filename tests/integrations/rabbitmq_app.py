"""A consumer as each machine runs it, which writes down each of its runs.

BROKER, QUEUE, OUT and CRONSENSUS_URL say where, ROOM how many may be held in the process.
"""

import logging
import os
import random
import time
from pathlib import Path

from cronsensus import Scheduler
from cronsensus.integrations.rabbitmq import Message, consumer

OUT = Path(os.environ["OUT"])

logging.basicConfig(level=logging.INFO)
scheduler = Scheduler(os.environ["CRONSENSUS_URL"], lease="5s")


def note(what: str, *more: object) -> None:
    with OUT.open("a", encoding="utf-8") as file:
        file.write(" ".join(map(str, (what, os.getpid(), *more))) + "\n")


def note_delivery(message: Message) -> str:
    note("delivered", message.message_id)
    return str(message.message_id)


@consumer(scheduler, os.environ["QUEUE"], key=note_delivery, room=int(os.environ["ROOM"]))
def charge(body: bytes, message: Message) -> str:
    note("begun", message.message_id)
    if message.message_id == "deadly":
        time.sleep(0.1)
        os.abort()
    time.sleep(float(os.environ.get("WORK", "0")) or random.uniform(0.02, 0.08))
    return body.decode()


if __name__ == "__main__":
    charge.run(os.environ["BROKER"])
    note("stopped")
