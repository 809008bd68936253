"""An idle process with a node, a lock that it holds, and a guarded function that was called: what does it keep open?"""

import json
import sys
import threading
import time

import psutil

from cronsensus import Scheduler, every

scheduler = Scheduler(sys.argv[1], lease="10s")
settle = float(sys.argv[2])
me = psutil.Process()


@scheduler.job(every("1h"))
def job() -> None:
    """Be due in an hour."""


@scheduler.once("{number}")
def guarded(number: int) -> int:
    """Return at once."""
    return number


def count(what: str) -> None:
    """Print what there is once everything that ends by itself has ended."""
    time.sleep(settle)
    threads = sorted(each.name for each in threading.enumerate() if each is not threading.main_thread())
    files = sum(each.path.endswith(".db") for each in me.open_files())
    connections = [each for each in me.net_connections(kind="tcp") if each.status == psutil.CONN_ESTABLISHED]
    print(json.dumps({"with": what, "threads": threads, "connections": len(connections) or files}), flush=True)


if __name__ == "__main__":
    with scheduler:
        count("a node")
        with scheduler.lock("held"):
            count("a node and a lock")
            guarded(1)
            count("a node, a lock and a guarded function")
    count("nothing any more")
