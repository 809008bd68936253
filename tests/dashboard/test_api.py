"""The same as JSON: documents of the commands, bounded, read only."""

import json

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.api import READS
from cronsensus.model.occurrence import Item
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.declare("queue")
    cluster.advance(60)
    cluster.run_once()
    return cluster


@pytest.fixture
def browser(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store))


GIVEN = {"job": "name=tick", "run": "id=1", "why": "job=tick&at=2026-11-20+12:01"}


@pytest.mark.parametrize("name", READS)
def test_each_read_answers_and_is_described(browser: Browser, name: str) -> None:
    answer = browser.get(f"/api/{name}?{GIVEN.get(name, '')}")
    assert answer.status_code == 200, answer.text
    assert isinstance(answer.json(), dict)
    described = browser.get("/api/openapi.json").json()["paths"][f"/api/{name}"]["get"]
    required = {one["name"] for one in described["parameters"] if one["required"]}
    assert required == {pair.partition("=")[0] for pair in GIVEN.get(name, "").split("&") if pair}
    assert browser.ask("POST", f"/api/{name}").status_code == 405


def test_runs_come_page_by_page(browser: Browser, cluster: HandCluster) -> None:
    cluster.store.enqueue([Item(job="queue", key=f"k{number}") for number in range(5)])
    found, after = list[int](), ""
    while True:
        page = browser.get(f"/api/runs?job=queue&limit=2&after={after}").json()
        found += [one["id"] for one in page["runs"]]
        after = page["after"]
        if after is None:
            break
    assert found == sorted(found, reverse=True)
    assert len(found) == 5


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/job", 400, "name= is missing"),
        ("/api/job?name=nobody", 404, "there is no job"),
        ("/api/run?id=99", 404, "no such run"),
        ("/api/run?id=x", 400, "is a number"),
        ("/api/runs?state=broken", 400, "state= is one or more of"),
        ("/api/nodes?limit=3", 400, "no parameter"),
        ("/api/why?job=tick&at=soon", 400, "soon"),
    ],
)
def test_what_is_wrong_is_said(browser: Browser, path: str, status: int, said: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == status
    assert said in json.loads(answer.text)["error"]
