"""A task that ran twice: celery -A long_celery_task worker, on each machine; then python long_celery_task.py"""

import os
import time

from celery import Celery

from cronsensus.integrations.celery import configure

app = Celery("long_celery_task", broker=os.environ.get("BROKER", "redis://localhost/0"))
app.conf.broker_transport_options = {"visibility_timeout": 3}  # 3600 where nothing is said
configure(app, "sqlite:///cronsensus.db")  # sets acks_late, and runs each message once


@app.task
def export(month: str) -> None:
    print(f"exporting {month} in process {os.getpid()}", flush=True)
    time.sleep(10)


if __name__ == "__main__":
    export.delay("2026-11")
