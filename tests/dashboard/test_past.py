"""The pictures of one job: its calendar, its durations, and what was changed."""

import re
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.past import DAYS, HOURS, MOST_READ, draw_calendar, plot_durations
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import State
from cronsensus.triggers import cron
from tests.dashboard.browser import Browser
from tests.hand_cluster import START, HandCluster

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
NOW = START


def ran(number: int, ago: timedelta, state: State = State.SUCCEEDED, *, seconds: int = 4, crashes: int = 0) -> Glance:
    at = NOW - ago
    return Glance(
        id=number,
        job="a",
        state=state,
        scheduled_for=at,
        due_at=at,
        crashes=crashes,
        failures=0,
        node="n",
        reason=None,
        created_at=at,
        started_at=at,
        finished_at=at + timedelta(seconds=seconds),
    )


def missed(first: timedelta, last: timedelta, count: int) -> LedgerRange:
    return LedgerRange(1, "a", VerdictRange(NOW - first, NOW - last, State.MISSED, "late", count), NOW)


def test_the_worst_verdict_of_a_day_counts() -> None:
    found = draw_calendar(Past((ran(2, MINUTE), ran(1, 2 * MINUTE, State.FAILED), ran(3, DAY)), ()), NOW, UTC)
    assert not found.hourly
    assert len(found.cells) == DAYS
    assert [cell.worst for cell in found.cells[-3:]] == ["", "succeeded", "failed"]
    assert found.totals == {"succeeded": 2, "failed": 1}


def test_a_range_of_missed_times_marks_each_day_that_it_touches() -> None:
    found = draw_calendar(Past((), (missed(3 * DAY, DAY, 10),)), NOW, UTC)
    assert [cell.worst for cell in found.cells[-5:]] == ["", "missed", "missed", "missed", ""]
    assert found.totals == {"missed": 10}


def test_a_day_is_one_of_the_jobs_zone() -> None:
    late = Past((ran(1, timedelta(hours=12, minutes=30)),), ())
    assert draw_calendar(late, NOW, UTC).cells[-2].worst == "succeeded"
    assert draw_calendar(late, NOW, ZoneInfo("Europe/Berlin")).cells[-1].worst == "succeeded"


def test_a_job_whose_verdicts_do_not_reach_back_shows_hours_and_since_when() -> None:
    often = Past(tuple(ran(MOST_READ - number, number * MINUTE) for number in range(MOST_READ)), ())
    found = draw_calendar(often, NOW, UTC)
    assert found.hourly
    assert len(found.cells) == HOURS
    assert found.since == NOW - (MOST_READ - 1) * MINUTE
    assert found.cells[-2].counts == {"succeeded": 60}


def test_a_longer_run_stands_higher_and_a_later_one_further_right() -> None:
    past = Past((ran(3, MINUTE, seconds=8), ran(2, 2 * MINUTE, State.FAILED), ran(1, 3 * MINUTE, crashes=1)), ())
    found = plot_durations(past, timedelta(seconds=4), timedelta(seconds=8))
    assert found is not None
    newest, middle, oldest = found.points
    assert newest.y < middle.y == oldest.y
    assert oldest.x < middle.x < newest.x
    assert [one.kind for one in found.points] == ["ok", "fail", "take"]
    assert [name for name, _, _ in found.lines] == ["p50", "p95"]
    assert plot_durations(Past(), None, None) is None


def test_a_job_shows_its_pictures_and_what_was_changed_by_whom() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.advance(60)
    cluster.run_once(4)
    cluster.every("tick", "2m")
    cluster.store.pause("tick", by="ann", why="<b>bank holiday</b>")
    text = Browser(dashboard(cluster.store)).get("/job?name=tick").text
    calendar, _, _ = text[text.index('<div class="body calendar') :].partition("</svg>")
    assert calendar.count('class="c c-ok"') == 1
    assert calendar.count('class="c c-') == DAYS
    assert "How long it took" in text
    assert "p95 4s" in text
    assert "<b>pause</b>" in text
    assert "by ann" in text
    assert "&lt;b&gt;bank holiday" in text
    assert text.index("<b>every 2 minutes</b>") < text.index("<b>every minute</b>")
    assert "90 天" in Browser(dashboard(cluster.store)).get("/job?name=tick&lang=zh").text


def test_a_job_shows_its_policies_and_what_a_release_changed_of_them() -> None:
    cluster = HandCluster()
    for release, retries, token in (("1", 0, "old"), ("2", 3, "new")):
        spec = JobSpec(
            name="bill",
            function="bill",
            trigger=cron("0 3 * * *", tz="Europe/Berlin"),
            kwargs={"token": token},
            policies=Policies(retries=retries, timeout=timedelta(minutes=10 * (1 + retries))),
        )
        cluster.store.define_jobs([spec], release=release, by="web-1")
    page = Browser(dashboard(cluster.store)).get("/job?name=bill").text
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "overlap skip catch_up latest on_crash retry retries 3 timeout 40m" in text
    assert "retries 0 → 3; timeout 10m → 40m" in text
    assert "release 2, by web-1" in text
    assert "old" not in text.partition("Changes")[2].partition("Runs")[0]
