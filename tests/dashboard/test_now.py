"""What the first page says needs people, what it says of the night, and its picture of a day."""

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.night import find_night
from cronsensus.dashboard.now import read_now_page
from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Parked
from cronsensus.model.occurrence import Item
from cronsensus.model.states import Origin, State
from cronsensus.testing.conformance.steps import settle
from tests.dashboard.browser import Browser, words_of
from tests.hand_cluster import HandCluster

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def pages(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store))


def expect(cluster: HandCluster, job: str, **what: Any) -> None:
    """Let a job be expected to succeed so often, or to take no longer."""
    specs = [replace(view.spec, **what) if view.spec.name == job else view.spec for view in cluster.store.jobs()]
    cluster.store.define_jobs(specs, release="r1")


def read(cluster: HandCluster) -> list[tuple[str, str, int, int]]:
    page = read_now_page(cluster.store, everything=True)
    return [(one.kind, one.name, one.times, one.row) for one in page.attention]


def run(cluster: HandCluster, job: str, state: State = State.SUCCEEDED, *, seconds: float = 2, **how: str) -> int:
    """Run a job once; return the number of the run."""
    cluster.store.enqueue([Item(job=job, key=f"{job}-{cluster.store.now().isoformat()}")])
    (claim,) = [one for one in cluster.claim() if one.job == job]
    cluster.advance(seconds)
    if state is State.FAILED:
        cluster.fail(claim, "disk is full")
    else:
        cluster.finish(claim, state, **how)
    return claim.id


def test_a_job_that_failed_in_a_row_stands_with_what_it_holds_up(cluster: HandCluster, pages: Browser) -> None:
    for name in ("extract", "load", "report", "other"):
        cluster.declare(name)
    run(cluster, "extract")
    run(cluster, "extract", State.FAILED)
    last = run(cluster, "extract", State.FAILED)
    run(cluster, "load", State.SKIPPED, reason="upstream failed: extract")
    run(cluster, "report", State.SKIPPED, reason="upstream skipped: load")
    assert read(cluster) == [("fail", "extract", 2, 2)]
    text = pages.get("/").text
    words = words_of(text)
    assert "one job needs you" in words
    assert "extract failed 2 times in a row" in words
    assert "It holds up: load, report" in words
    assert f'href="/runs/{last}">See the run' in text
    assert "/do/retry-failed?job=extract" in text
    run(cluster, "extract")
    # What it held up is not made good by that.
    assert [one[:2] for one in read(cluster)] == [("blocked", "report"), ("blocked", "load"), ("fail", "extract")]


def test_a_run_slower_than_usual_or_than_is_set_stands_there(cluster: HandCluster, pages: Browser) -> None:
    cluster.declare("usual")
    cluster.declare("strict")
    for _ in range(5):
        run(cluster, "usual", seconds=20)
    expect(cluster, "strict", slow=timedelta(seconds=30))
    cluster.store.enqueue([Item(job="usual", key="long"), Item(job="strict", key="long")])
    cluster.claim()
    cluster.store.pause("tick", by="ann", why="quiet")
    cluster.advance(29)
    assert read(cluster) == []
    cluster.advance(2)
    assert [one[:2] for one in read(cluster)] == [("slow", "strict")]
    cluster.advance(20)
    assert {one[:2] for one in read(cluster)} == {("slow", "strict"), ("slow", "usual")}
    words = words_of(pages.get("/").text)
    assert "usual runs for 51s" in words
    assert "on node-1; usually it takes no longer than 20s" in words


def test_what_is_overdue_stuck_or_late_stands_there_with_its_act(cluster: HandCluster, pages: Browser) -> None:
    cluster.declare("backup")
    cluster.declare("stuck", timeout="10s")
    cluster.declare("many")
    run(cluster, "backup")
    expect(cluster, "backup", overdue=timedelta(minutes=5))
    cluster.store.enqueue([Item(job="stuck", key="a")])
    cluster.claim()
    cluster.store.enqueue([Item(job="many", key=str(number)) for number in range(3)])
    cluster.store.pause("tick", by="ann", why="quiet")
    cluster.advance(301)
    assert read(cluster) == [("stuck", "stuck", 1, 1), ("overdue", "backup", 1, 1), ("late", "many", 3, 1)]
    text = pages.get("/").text
    assert "/do/trigger?job=backup" in text
    assert "many waits 3 times" in words_of(text)


def test_ten_stand_there_and_a_link_to_all(cluster: HandCluster, pages: Browser) -> None:
    for number in range(12):
        cluster.declare(f"bad-{number:02}")
        run(cluster, f"bad-{number:02}", State.FAILED)
    text = pages.get("/").text
    assert len(re.findall(r"bad-\d\d</a> failed", text)) == 10
    assert 'href="/?all=1#attention">and 2 more' in text
    assert len(re.findall(r"bad-\d\d</a> failed", pages.get("/?all=1").text)) == 12


def test_failures_are_found_however_many_jobs_stand_before_them_by_name(cluster: HandCluster) -> None:
    for number in range(60):
        cluster.declare(f"good-{number:02}")
    cluster.declare("zebra")
    run(cluster, "zebra", State.FAILED)
    run(cluster, "zebra", State.FAILED)
    assert read(cluster) == [("fail", "zebra", 2, 2)]


def test_a_dead_node_alone_is_no_job_that_needs_people(cluster: HandCluster, pages: Browser) -> None:
    cluster.join("node-2")
    cluster.store.reclaim(["session-of-node-2"])
    words = words_of(pages.get("/").text)
    assert "No job needs you, but a node is gone" in words
    assert "1 of 2 nodes alive" in words


@pytest.mark.parametrize(
    ("now", "begin", "end"),
    [
        ("2027-03-23T09:42", "2027-03-22T18:00", "2027-03-23T08:00"),
        ("2027-03-23T03:00", "2027-03-22T18:00", "2027-03-23T03:00"),
        ("2027-03-23T22:00", "2027-03-22T18:00", "2027-03-23T08:00"),
        ("2027-03-28T09:00", "2027-03-27T18:00", "2027-03-28T08:00"),  # an hour shorter
    ],
)
def test_last_night_is_the_one_before_this_morning(now: str, begin: str, end: str) -> None:
    moments = [datetime.fromisoformat(one).replace(tzinfo=BERLIN).astimezone(UTC) for one in (now, begin, end)]
    assert find_night(moments[0], BERLIN) == (moments[1], moments[2])


def test_the_night_has_a_row_for_what_runs_seldom_and_a_line_for_the_rest(cluster: HandCluster, pages: Browser) -> None:
    cluster.every("nightly", "8h")
    cluster.every("often", "1h")
    while cluster.store.now() < datetime(2026, 11, 21, 9, tzinfo=UTC):
        cluster.advance(3600)
        cluster.fire()
        for claim in cluster.claim():
            cluster.finish(claim)
    night = read_now_page(cluster.store).night
    assert [(row.job, f"{row.at:%H:%M}") for row in night.rows] == [("nightly", "00:00")]
    assert (night.begin.hour, night.end.hour) == (18, 8)
    assert night.often == 2
    assert night.often_counts["succeeded"] >= 14
    assert "And 2 jobs that run more often:" in words_of(pages.get("/").text)


def test_the_day_shows_the_worst_of_each_half_hour_and_a_batch_as_one(cluster: HandCluster, pages: Browser) -> None:
    cluster.declare("shop")
    run(cluster, "shop")
    bad = run(cluster, "shop", State.FAILED)
    run(cluster, "shop")
    cluster.store.enqueue([Item(job="tick", key="all", origin=Origin.BATCH)])
    (claim,) = cluster.claim()
    cluster.store.enqueue(
        [
            Item(job="tick", key=item_key(claim.id, f"branch-{n}"), origin=Origin.BATCH, parent=claim.id)
            for n in range(5)
        ]
    )
    settle(cluster.store, [End.of(claim, Parked("items", 5, "waiting: for its items"))])
    for one in cluster.claim():
        cluster.finish(one)
    day = read_now_page(cluster.store, by="job").day
    assert day is not None
    assert [(row.job, [cell.counts for cell in row.cells]) for row in day.rows] == [
        ("shop", [Counter(succeeded=2, failed=1)]),
        ("tick", [Counter(running=1)]),
    ]
    assert day.rows[0].cells[0].run == bad
    text = pages.get("/?by=job").text
    assert f'<a href="/runs/{bad}" tabindex="-1"><title>shop' in text
    assert "<title>tick: 5 short runs" not in pages.get("/").text
    assert "branch-" not in pages.get("/?by=list").text
