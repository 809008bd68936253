"""Jobs in Flask: gunicorn --workers 4 --config flask_app.py flask_app:app"""

import os

from flask import Flask

from cronsensus import Run, Scheduler, every

app = Flask(__name__)
scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(every("1s"))
def report(run: Run) -> None:
    with app.app_context():
        print(f"report for {run.scheduled_for:%H:%M:%S} in worker {os.getpid()}", flush=True)


@scheduler.job()
def send_invoice(number: int) -> None:
    print(f"invoice {number} in worker {os.getpid()}", flush=True)


@app.post("/orders/<int:number>")
def order(number: int) -> str:
    send_invoice.options(key=f"invoice:{number}").enqueue(number)
    return "ordered\n"


# What gunicorn calls in each worker; these two may as well stand in gunicorn.conf.py.


def post_worker_init(_worker):
    from flask_app import scheduler

    scheduler.start()


def worker_exit(_server, _worker):
    from flask_app import scheduler

    scheduler.stop()
