"""The picture of the last hour and the next, asked by HTTP and by its parts."""

import re
from datetime import timedelta

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.lanes import HOUR, TRACKS, NodeState, draw_lanes
from cronsensus.model.occurrence import Item
from cronsensus.triggers import every
from tests.dashboard.browser import Browser
from tests.dashboard.test_pages import BAD_NAME
from tests.hand_cluster import HandCluster

SECOND = timedelta(seconds=1)


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    return cluster


def drawn(cluster: HandCluster):
    views = cluster.store.jobs()
    nodes = [NodeState(one.node, one.state, None) for one in cluster.store.sessions()]
    now = cluster.store.now()
    return draw_lanes(
        cluster.store, now, nodes=nodes, views=views, glances=cluster.store.ran_since(now - HOUR), ranges=[]
    )


def test_a_takeover_is_drawn_from_the_dead_nodes_lane_into_the_new_one(cluster: HandCluster) -> None:
    cluster.every("tick", "1h")
    cluster.join("node-2")
    cluster.advance(3600)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.advance(5)
    cluster.store.reclaim(["session-of-node-1"])
    cluster.advance(1)
    (again,) = cluster.claim("session-of-node-2")
    assert again.id == claim.id
    cluster.advance(60)
    picture = drawn(cluster)
    [one] = picture.takeovers
    first, second = picture.lanes
    assert (first.name, second.name, one.after) == ("node-1", "node-2", SECOND)
    assert first.y < one.y < second.y < one.to_y
    assert [bar.kind for bar in picture.bars] == ["crash", "run"]
    text = Browser(dashboard(cluster.store)).get("/").text
    assert "tick: taken over after 1s" in text
    assert 'class="b b-crash"' in text
    assert re.search(r'class="gone" x="49\.\d+%"', text)


def test_what_ran_nowhere_stands_in_its_own_lane(cluster: HandCluster) -> None:
    cluster.declare("strict", every("1m"), grace="1s", catch_up="all")
    cluster.advance(150)
    cluster.fire()
    text = Browser(dashboard(cluster.store)).get("/").text
    assert "<b>Not run</b>" in text
    assert 'class="diamond" d="M0-8l8' in text
    assert re.search(r">strict missed 12:02 \u00d7 2<", text)
    assert "2 times" in text


def test_jobs_that_are_due_within_the_hour_stand_on_the_right_soonest_first(cluster: HandCluster) -> None:
    cluster.every("quarterly", "15m")
    cluster.every("daily", "1d")
    cluster.every("often", "10s")
    cluster.every("held", "30m")
    cluster.store.pause("held", by="ann", why="a reason")
    rows = drawn(cluster).ahead
    assert [row.job for row in rows] == ["often", "quarterly", "held"]
    assert [row.more for row in rows] == [True, False, False]
    assert rows[1].xs == (62.5, 75.0, 87.5, 100.0)
    assert rows[2].paused
    assert "4 \u00d7, next 12:15" in Browser(dashboard(cluster.store)).get("/").text


def test_more_at_once_than_there_are_tracks_is_a_number(cluster: HandCluster) -> None:
    cluster.declare("queue")
    cluster.store.enqueue([Item(job="queue") for _ in range(TRACKS + 4)])
    cluster.claim()
    cluster.advance(600)
    picture = drawn(cluster)
    assert len(picture.bars) == TRACKS
    assert picture.lanes[0].hidden == 4
    assert all(bar.x >= 0 and bar.x + bar.width <= 50.01 for bar in picture.bars)


def test_short_runs_side_by_side_are_one_bar_with_a_number(cluster: HandCluster) -> None:
    cluster.every("tick", "5s")
    for _ in range(20):
        cluster.advance(5)
        cluster.run_once(0.1)
    [bar] = drawn(cluster).bars
    assert bar.count == 20
    assert "tick: 20 short runs on node-1" in Browser(dashboard(cluster.store)).get("/").text


def test_names_in_the_picture_stay_text_and_the_page_is_whole_in_chinese(cluster: HandCluster) -> None:
    cluster.every(BAD_NAME, "1m")
    cluster.advance(60)
    cluster.run_once()
    text = Browser(dashboard(cluster.store)).get("/?lang=zh").text
    assert "<img" not in text
    assert "过去一小时与未来一小时" in text
    assert "未运行" in text
