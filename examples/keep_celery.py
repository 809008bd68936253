"""Celery on three machines: beat on each, two workers, and one of either is killed.

python keep_celery.py redis://localhost        # starts three beats and two workers here, and kills some
celery -A keep_celery beat                     # what each machine would run, with BROKER set
celery -A keep_celery worker
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery

from cronsensus.integrations.celery import configure

BROKER = os.environ.get("BROKER", "redis://localhost")

app = Celery("keep_celery", broker=f"{BROKER}/1")
app.conf.timezone = "UTC"
app.conf.beat_schedule = {"tick": {"task": "keep_celery.tick", "schedule": 1.0}}
configure(app, f"{BROKER}/0", namespace="keep_celery", lease="5s")


@app.task(bind=True)
def tick(self) -> None:
    print(f"tick of {self.request.headers['cronsensus-time']} in process {os.getpid()}", flush=True)


def start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-q", "-A", "keep_celery", *command],
        stderr=subprocess.STDOUT,  # a worker logs what its tasks print
        start_new_session=True,  # a worker has children, which are killed with it
    )


def main() -> None:
    if len(sys.argv) > 1:
        os.environ["BROKER"] = sys.argv[1]
    os.chdir(Path(__file__).parent)
    beats = [start("beat", "--pidfile=") for _ in range(3)]
    workers = [start("worker", "-c", "1", "-n", f"worker{number}@%h") for number in range(2)]
    try:
        time.sleep(8)
        for one in (beats[0], workers[0]):
            print(f"killing process {one.pid}", flush=True)
            os.killpg(one.pid, signal.SIGKILL)
        time.sleep(8)
    finally:
        for one in (*beats, *workers):
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGTERM)
            one.wait()
    print("Each second has one line. The ledger: cronsensus --url … --namespace keep_celery runs list --job beat:tick")


if __name__ == "__main__":
    main()
