"""Dramatiq on RabbitMQ: ``fill``, ``work``; it writes down when it had run a tenth of all, and all."""

import itertools
import os
import sys
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

WORK, MESSAGES = float(os.environ["WORK"]), int(os.environ["MESSAGES"])
numbers = itertools.count(1)
times: list[float] = []
dramatiq.set_broker(RabbitmqBroker(url=os.environ["BROKER"]))


@dramatiq.actor(queue_name=os.environ["QUEUE"])
def work(number: int) -> int:
    if WORK:
        time.sleep(WORK)
    done = next(numbers)
    if done in {MESSAGES // 10, MESSAGES}:
        times.append(time.time())
        if done == MESSAGES:
            Path(os.environ["TIMES"]).write_text(" ".join(map(str, times)))
    return number


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill"]:
            for number in range(MESSAGES):
                work.send(number)
        case ["work"]:
            os.environ["PYTHONPATH"] = str(Path(__file__).parent)
            os.execv(sys.executable, [
                sys.executable, "-m", "dramatiq", Path(__file__).stem, "--processes", "1", "--threads",
                os.environ["THREADS"],
            ])  # fmt: skip
        case words:
            sys.exit(f"nothing to do for {words}")
