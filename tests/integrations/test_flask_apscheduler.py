"""flask-apscheduler's wrapper: the guard stands before the scheduler that it has inside."""

from datetime import UTC, datetime

import pytest
from flask import Flask
from flask_apscheduler import APScheduler

from cronsensus import Scheduler
from cronsensus.errors import InvalidOption
from cronsensus.integrations.apscheduler import guard
from cronsensus.model.occurrence import OccurrenceFilter
from tests.scratch import scratch_folder

PATIENCE = 30.0
ran: list[datetime] = []


def note():
    ran.append(datetime.now(UTC))


def flask_with(job):
    app = Flask("shop")
    app.config["SCHEDULER_JOBS"] = [{"func": note, "misfire_grace_time": 30, **job}]
    return app


def test_jobs_of_the_configuration_are_guarded():
    with scratch_folder() as folder:
        url = f"sqlite:///{folder / 'flask.db'}"
        wrapper = APScheduler()
        guard(wrapper, url)
        wrapper.init_app(flask_with({"id": "note", "trigger": "cron", "second": "*"}))
        wrapper.start()
        reader = Scheduler(url)
        store = reader.store
        try:
            while not (recorded := store.occurrences(OccurrenceFilter(job="apscheduler:note"), limit=5)):
                store.wait(0.1)
        finally:
            wrapper.shutdown()
            reader.stop()
    assert recorded
    assert ran


def test_job_of_the_configuration_that_differs_between_processes_is_refused():
    wrapper = APScheduler()
    guard(wrapper, "memory://flask-refused")
    wrapper.init_app(flask_with({"id": "note", "trigger": "interval", "seconds": 5}))
    with pytest.raises(InvalidOption, match="counts its interval from the moment"):
        wrapper.start(paused=True)
