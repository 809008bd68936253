"""huey, on Redis or PostgreSQL by the URL: ``node``, ``fill N``, ``trickle N``, ``long``."""

import os
import sys
import time

import evidence
from huey import PostgresHuey, RedisHuey

huey = PostgresHuey(dsn=evidence.URL) if evidence.URL.startswith("postgres") else RedisHuey(url=evidence.URL)


@huey.task()
def noop(number: int) -> int:
    """Return something, so that huey records a result as we do."""
    evidence.ran()
    return number


@huey.task()
def arrive(sent: float) -> None:
    evidence.arrived(sent)


@huey.task()
def long() -> None:
    evidence.begin()
    time.sleep(evidence.LONG)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["node"]:
            os.execv(sys.executable, [
                sys.executable, "-m", "huey.bin.huey_consumer", "huey_app.huey", "-w", str(evidence.CONCURRENCY), "-n",
                "-q",
            ])  # fmt: skip
        case ["fill", count]:
            import huey_app  # by the name under which the consumer knows the task

            for number in range(int(count)):
                huey_app.noop(number)
        case ["trickle", count]:
            import huey_app

            for sent in evidence.paced(int(count)):
                huey_app.arrive(sent)
        case ["long"]:
            import huey_app

            huey_app.long()
        case words:
            sys.exit(f"nothing to do for {words}")
