"""RQ: ``node``, ``fill N``, ``trickle N``, ``long``."""

import os
import sys
import time

import evidence
from redis import Redis
from rq import Queue, Retry, SimpleWorker, Worker
from rq.worker_pool import WorkerPool


def noop(number: int) -> int:
    evidence.ran()
    return number


def arrive(sent: float) -> None:
    evidence.arrived(sent)


def long() -> None:
    evidence.begin()
    time.sleep(evidence.LONG)


if __name__ == "__main__":
    import rq_app  # by the name under which workers know the functions

    redis = Redis.from_url(evidence.URL)
    queue = Queue("default", connection=redis)
    match sys.argv[1:]:
        case ["node"] if evidence.AT_LEAST_ONCE:
            Worker([queue], connection=redis, job_monitoring_interval=3, maintenance_interval=5, worker_ttl=30).work(
                logging_level="WARNING"
            )
        case ["node"]:
            worker = SimpleWorker if os.environ.get("WORKER") == "simple" else Worker
            WorkerPool(["default"], connection=redis, num_workers=evidence.CONCURRENCY, worker_class=worker).start(
                logging_level="WARNING"
            )
        case ["fill", count]:
            numbers = range(int(count))
            for start in range(0, len(numbers), 1000):
                queue.enqueue_many([
                    Queue.prepare_data(rq_app.noop, (number,)) for number in numbers[start : start + 1000]
                ])  # fmt: skip
        case ["trickle", count]:
            for sent in evidence.paced(int(count)):
                queue.enqueue(rq_app.arrive, sent)
        case ["long"] if evidence.AT_LEAST_ONCE:
            queue.enqueue(rq_app.long, job_timeout=60, retry=Retry(max=3))
        case ["long"]:
            queue.enqueue(rq_app.long, job_timeout=3600)
        case words:
            sys.exit(f"nothing to do for {words}")
