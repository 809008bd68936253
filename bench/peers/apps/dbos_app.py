"""DBOS: ``prepare``, ``node``, ``fill N``, ``trickle N``."""

import os
import signal
import sys
import threading

import evidence
from dbos import DBOS, DBOSClient

VERSION = "bench"
ended = threading.Event()


@DBOS.workflow(name="noop")
def noop(number: int) -> int:
    evidence.ran()
    return number


@DBOS.workflow(name="arrive")
def arrive(sent: float) -> None:
    evidence.arrived(sent)


match sys.argv[1:]:
    case ["node"] | ["prepare"]:
        DBOS(config={
            "name": "bench", "system_database_url": evidence.URL, "application_version": VERSION,
            "executor_id": str(os.getpid()),
        })  # fmt: skip
        DBOS.launch()
        DBOS.register_queue("bench", worker_concurrency=evidence.CONCURRENCY, polling_interval_sec=0.1)
        if sys.argv[1] == "node":
            signal.signal(signal.SIGTERM, lambda *_: ended.set())
            ended.wait()
        DBOS.destroy()
    case ["fill", count]:
        client = DBOSClient(system_database_url=evidence.URL)
        for number in range(int(count)):
            client.enqueue({"queue_name": "bench", "workflow_name": "noop", "app_version": VERSION}, number)
        client.destroy()
    case ["trickle", count]:
        client = DBOSClient(system_database_url=evidence.URL)
        for sent in evidence.paced(int(count)):
            client.enqueue({"queue_name": "bench", "workflow_name": "arrive", "app_version": VERSION}, sent)
        client.destroy()
    case words:
        sys.exit(f"nothing to do for {words}")
