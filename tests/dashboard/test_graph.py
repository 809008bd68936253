"""The page of what comes after what: drawn by the server, one night at a time, for people who see no colours, too."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from cronsensus import Scheduler, every
from cronsensus.dashboard import dashboard
from cronsensus.dashboard.graph import MOST_JOBS, arrange_columns
from cronsensus.insight.graph import graph_of
from cronsensus.model.gate import After, Rule
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster

HOSTILE = 'load"><script>'


@pytest.fixture
def cluster() -> HandCluster:
    return HandCluster()


@pytest.fixture
def nights(cluster: HandCluster) -> HandCluster:
    """Two minutes: in the first all was well, in the second extract failed."""
    cluster.join("node-1")
    cluster.every("extract", "1m")
    cluster.every(HOSTILE, "1m", overlap="allow", after=After((Rule("extract"),)))
    cluster.every("report", "1h", overlap="allow", after=After((Rule(HOSTILE, "ended", "latest_before"),)))
    for state in (State.SUCCEEDED, State.FAILED):
        cluster.advance(60)
        cluster.fire()
        for claim in cluster.claim():
            failed = state is State.FAILED
            cluster.finish(claim, state if claim.job == "extract" else State.SKIPPED if failed else state)
    return cluster


def drawing(text: str) -> ET.Element:
    found = re.search(r'<svg class="graph".*?</svg>\s*</div>', text, re.DOTALL)
    assert found is not None, text
    return ET.fromstring(found[0].rpartition("</div>")[0].strip())


def shown_nights(cluster: HandCluster) -> int:
    page = Browser(dashboard(cluster.store)).get("/graph")
    return len(re.findall(r'href="(/graph\?at=[^"]+)"', page.text))


def test_the_last_night_is_drawn_with_a_node_for_each_job_and_an_edge_for_each_rule(nights):
    page = Browser(dashboard(nights.store)).get("/graph")
    svg = drawing(page.text)
    classes = [one.get("class", "") for one in svg.iter()]
    assert sum("g-node" in one for one in classes) == 3
    assert sum("g-edge" in one for one in classes) == 2
    assert {"g-node g-fail", "g-node g-skip", "g-node g-none"} <= set(classes)
    assert "<script>" not in page.text
    assert "style=" not in page.text
    assert "(ended, latest_before)" in page.text


def test_another_night_is_a_link_away(nights):
    browser = Browser(dashboard(nights.store))
    first, last = re.findall(r'href="(/graph\?at=[^"]+)"', browser.get("/graph").text)
    assert "g-node g-ok" in browser.get(first.replace("&amp;", "&")).text
    assert "g-node g-fail" in browser.get(last.replace("&amp;", "&")).text
    assert browser.get("/graph?at=nonsense&job=nothing").status_code == 200


def test_nights_are_found_however_many_runs_and_items_came_since(nights):
    batch = nights.store.trigger("extract", by="ada", why="").id
    nights.store.enqueue([Item(job="extract", key=f"{batch}:{number}", parent=batch) for number in range(100)])
    nights.store.enqueue([Item(job="extract", key=str(number)) for number in range(300)])
    assert shown_nights(nights) == 2


def test_nights_of_a_job_that_was_paused_for_long_are_still_found(nights):
    nights.advance(30 * 86400)
    assert shown_nights(nights) == 2


def test_in_chinese_too(nights):
    text = Browser(dashboard(nights.store)).get("/graph?lang=zh").text
    assert "依赖图" in text
    assert "无此时间" in text


def test_a_jobs_page_says_what_it_comes_after_and_before(nights):
    text = Browser(dashboard(nights.store)).get("/job?name=extract").text
    assert re.search(r"<dt>Before</dt><dd><a href=[^>]*>load&#34;&gt;", text)
    assert "<dt>Comes after</dt>" not in text
    assert "every minute, after extract" in Browser(dashboard(nights.store)).get("/jobs").text


def test_of_a_large_graph_a_part_is_drawn_and_one_jobs_part_is_a_link_away():
    scheduler = Scheduler("memory://large")
    before: Any = scheduler.job(every("1h"), name="job0000")(lambda: None)
    for number in range(1, MOST_JOBS + 50):
        before = scheduler.job(after=[before], name=f"job{number:04}")(lambda: None)
    with scheduler:
        pass
    browser = Browser(dashboard(scheduler))
    text = browser.get("/graph").text
    assert f"{MOST_JOBS} of {MOST_JOBS + 50} jobs" in text
    assert text.count('class="g-node') == MOST_JOBS


def test_a_mounted_dashboard_without_such_jobs_shows_how_to_write_one():
    scheduler = Scheduler("memory://none")
    scheduler.job(every("1h"), name="alone")(lambda: None)
    assert "after=[extract]" in Browser(dashboard(scheduler)).get("/graph").text


def test_a_line_that_passes_a_layer_has_a_lane_there_and_what_belongs_together_stands_together():
    rules = {"b": ["a"], "z": ["y"], "end": ["b", "a"], "last": ["end", "z"]}
    graph = graph_of({job: [Rule(one) for one in upstreams] for job, upstreams in rules.items()})
    assert arrange_columns(graph) == [
        ["a", "y"],
        [("a", "end", 1), "b", "z"],
        ["end", ("z", "last", 2)],
        ["last"],
    ]
