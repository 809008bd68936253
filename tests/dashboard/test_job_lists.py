"""The page of jobs: trouble, filters, how long runs take, and how much is asked for it."""

import re
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.dashboard import dashboard, reads
from cronsensus.model.glance import Glance
from cronsensus.model.states import State
from cronsensus.triggers import cron, every
from tests.dashboard.browser import Browser
from tests.hand_cluster import START, HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    """Return a cluster in which ``bad`` failed last, ``late`` was missed, ``held`` is paused, and ``a`` is well."""
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("a", "1m")
    cluster.every("bad", "1h")
    cluster.declare("late", every("2m"), grace="1s", catch_up="all")
    cluster.every("held", "1d")
    cluster.store.pause("held", by="ann", why="a reason")
    cluster.advance(60)
    cluster.run_once(4)
    cluster.advance(120)
    cluster.store.trigger("bad", by="ann")
    cluster.fire()
    for claim in cluster.claim():
        if claim.job == "bad":
            cluster.fail(claim)
        else:
            cluster.finish(claim)
    return cluster


def names(text: str) -> list[str]:
    return re.findall(r"<a href=\"/job\?name=\w+\"><b>(\w+)</b>", text)


def test_jobs_in_trouble_stand_first_then_the_soonest(cluster: HandCluster) -> None:
    assert names(Browser(dashboard(cluster.store)).get("/jobs").text) == ["bad", "late", "a", "held"]


@pytest.mark.parametrize(("only", "found"), [("failing", ["bad"]), ("missed", ["late"]), ("paused", ["held"])])
def test_a_filter_shows_only_what_is_so(cluster: HandCluster, only: str, found: list[str]) -> None:
    text = Browser(dashboard(cluster.store)).get(f"/jobs?only={only}").text
    assert names(text) == found
    assert f'only={only}" aria-current="true"' in text
    assert "None of these jobs is so." in Browser(dashboard(cluster.store)).get(f"/jobs?only={only}&after=zzz").text


def test_a_list_of_jobs_asks_for_all_their_verdicts_in_one_read(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    for verb in ("last_of", "occurrences", "ranges", "runs"):
        real = getattr(cluster.store, verb)

        def counted(*args: Any, real: Any = real, verb: str = verb, **more: Any) -> Any:
            asked.append(verb)
            return real(*args, **more)

        monkeypatch.setattr(cluster.store, verb, counted)
    assert "<b>bad</b>" in Browser(dashboard(cluster.store)).get("/jobs").text
    assert asked == ["last_of"]


def test_how_long_runs_took_is_said_of_those_that_succeeded(cluster: HandCluster) -> None:
    text = Browser(dashboard(cluster.store)).get("/jobs?q=a").text
    row = text[text.index("<b>a</b>") :]
    assert re.search(r'data-label="p95">4s</td>', row)
    taken = [_run(seconds) for seconds in range(1, 101)]
    failed = [_run(9000, State.FAILED)]
    assert reads.read_percentiles([*taken, *failed]) == (timedelta(seconds=50), timedelta(seconds=95))
    assert reads.read_percentiles(failed) == (None, None)


def test_a_next_time_beside_a_clock_change_says_so() -> None:
    cluster = HandCluster()
    cluster.advance((START.replace(year=2027, month=3, day=27) - START).total_seconds())
    cluster.declare("nightly", cron("30 2 * * *", tz="Europe/Berlin"))
    text = Browser(dashboard(cluster.store)).get("/jobs").text
    assert re.search(r'class="second noted">.*', text)
    assert "2027-03-28 01:00:00Z" in text


def _run(seconds: int, state: State = State.SUCCEEDED) -> Glance:
    return Glance(
        id=seconds,
        job="a",
        state=state,
        scheduled_for=START,
        due_at=START,
        crashes=0,
        failures=0,
        node="n",
        reason=None,
        created_at=START,
        started_at=START,
        finished_at=START + timedelta(seconds=seconds),
    )
