"""Dramatiq: ``node``, ``fill N``, ``trickle N``, ``long``."""

import os
import sys
import time

import dramatiq
import evidence
from dramatiq.brokers.redis import RedisBroker

patience = {"heartbeat_timeout": 10_000, "maintenance_chance": 100_000} if evidence.AT_LEAST_ONCE else {}
dramatiq.set_broker(RedisBroker(url=evidence.URL, **patience))


@dramatiq.actor
def noop(number: int) -> int:
    evidence.ran()
    return number


@dramatiq.actor
def arrive(sent: float) -> None:
    evidence.arrived(sent)


@dramatiq.actor
def long() -> None:
    evidence.begin()
    time.sleep(evidence.LONG)


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
        case ["trickle", count]:
            for sent in evidence.paced(int(count)):
                arrive.send(sent)
        case ["long"]:
            long.send()
        case words:
            sys.exit(f"nothing to do for {words}")
