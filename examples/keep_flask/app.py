"""Flask with flask-apscheduler under gunicorn: eight workers, and each time in one of them.

    cd examples/keep_flask && gunicorn -w 8 app:app               # or with --preload

Needs: pip install "cronsensus[apscheduler]" Flask-APScheduler gunicorn
"""

import os
import time

from flask import Flask
from flask_apscheduler import APScheduler

from cronsensus.integrations.apscheduler import guard


class Config:
    SCHEDULER_JOBS = [  # noqa: RUF012 - as flask-apscheduler has it
        {"id": "report", "func": "app:report", "trigger": "cron", "second": "*/2", "misfire_grace_time": 30}
    ]


def report() -> None:
    print(f"{time.strftime('%H:%M:%S')} report in {os.getpid()}", flush=True)


app = Flask(__name__)
app.config.from_object(Config)

scheduler = APScheduler()
guard(scheduler, os.environ.get("CRONSENSUS_URL", "sqlite:///keep_flask.db"))
scheduler.init_app(app)  # gunicorn.conf.py starts it, in each worker
