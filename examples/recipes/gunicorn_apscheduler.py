"""My job runs 4 times under gunicorn: gunicorn --workers 4 gunicorn_apscheduler:app"""

import os

from apscheduler.schedulers.background import BackgroundScheduler
from flask import Flask

from cronsensus.integrations.apscheduler import guard

app = Flask(__name__)
scheduler = BackgroundScheduler()
guard(scheduler, "sqlite:///cronsensus.db")  # new, with its import; on several hosts "postgresql://…"


@scheduler.scheduled_job("cron", second="*", id="report")
def report() -> None:
    print(f"report in worker {os.getpid()}", flush=True)


scheduler.start()
