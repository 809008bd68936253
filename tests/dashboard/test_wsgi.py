"""The dashboard in Flask, under a prefix: it reads, acts and stays current by asking."""

from typing import Any

from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from cronsensus.dashboard import dashboard_wsgi
from tests.dashboard.browser import Form
from tests.hand_cluster import HandCluster


def client(app: Any) -> Client:
    return Client(DispatcherMiddleware(Flask(__name__).wsgi_app, {"/ops/cron": app}))


def test_under_a_prefix_it_reads_and_acts(cluster: HandCluster) -> None:
    browser = client(dashboard_wsgi(cluster.store, auth=lambda request: "operate"))
    text = browser.get("/ops/cron/job?name=tick").get_data(as_text=True)
    assert "every minute" in text or "every 1" in text
    assert 'data-live="poll"' in text
    assert browser.get("/ops/cron/static/style.css").status_code == 200
    assert "tick" in browser.get("/ops/cron/live?of=/jobs").get_data(as_text=True)
    form = Form(browser.get("/ops/cron/do/pause?job=tick").get_data(as_text=True))
    assert form.action == "/ops/cron/do/pause"
    answer = browser.post(form.action, data={**form.fields, "reason": "move"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/ops/cron/job?")
    assert cluster.store.trail()[0].why == "move"


def test_without_a_way_to_tell_people_apart_it_stays_closed_to_others(cluster: HandCluster) -> None:
    browser = client(dashboard_wsgi(cluster.store))
    assert browser.get("/ops/cron/", environ_base={"REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "1"}).status_code == 200
    assert browser.get("/ops/cron/", environ_base={"REMOTE_ADDR": "10.0.0.7", "REMOTE_PORT": "1"}).status_code == 403
    assert browser.get("/ops/cron/").status_code == 403
