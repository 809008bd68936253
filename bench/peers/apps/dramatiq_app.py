"""Dramatiq: ``node``, ``fill N``."""

import os
import sys

import dramatiq
import evidence
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=evidence.URL))


@dramatiq.actor
def noop(number: int) -> int:
    evidence.ran()
    return number


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["node"]:
            os.execv(sys.executable, [
                sys.executable, "-m", "dramatiq", "dramatiq_app", "--processes", "1", "--threads",
                str(evidence.CONCURRENCY),
            ])  # fmt: skip
        case ["fill", count]:
            for number in range(int(count)):
                noop.send(number)
        case words:
            sys.exit(f"nothing to do for {words}")
