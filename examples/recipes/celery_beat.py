"""Celery beat on several machines: celery -A celery_beat worker -B, on each of them"""

import os

from celery import Celery

from cronsensus.integrations.celery import configure

app = Celery("celery_beat", broker=os.environ.get("BROKER", "redis://localhost/0"))
app.conf.beat_schedule = {"report": {"task": "celery_beat.report", "schedule": 1.0}}
configure(app, "sqlite:///cronsensus.db")  # on several machines postgresql://…, mysql://… or redis://…


@app.task(bind=True)
def report(self) -> None:
    print(f"report for {self.request.headers['cronsensus-time']} in process {os.getpid()}", flush=True)
