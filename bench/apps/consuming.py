"""A consumer of RabbitMQ that does nothing, or sleeps; it writes down when it had run a tenth of all, and all."""

import itertools
import os
import time
from pathlib import Path

from cronsensus import Scheduler
from cronsensus.integrations.rabbitmq import consumer

WORK, MESSAGES, THREADS = float(os.environ["WORK"]), int(os.environ["MESSAGES"]), int(os.environ["THREADS"])
numbers = itertools.count(1)
times: list[float] = []
scheduler = Scheduler(os.environ["CRONSENSUS_URL"])


@consumer(scheduler, os.environ["QUEUE"], type="classic", threads=THREADS)
def work(body: dict[str, int]) -> int:
    if WORK:
        time.sleep(WORK)
    number = next(numbers)
    if number in {MESSAGES // 10, MESSAGES}:
        times.append(time.time())
        if number == MESSAGES:
            Path(os.environ["TIMES"]).write_text(" ".join(map(str, times)))
    return body["number"]


if __name__ == "__main__":
    work.run(os.environ["BROKER"])
