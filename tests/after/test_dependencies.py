"""One job after another: for the same nominal time, once, and whatever dies in between."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from cronsensus import Run, Scheduler, at, cron, every
from cronsensus.after.crossing import CameAfter, unpack_upstreams
from cronsensus.after.upstreams import Gates, Upstream, UpstreamResults, last_until
from cronsensus.after.waking import UpstreamWaker
from cronsensus.audit import audit
from cronsensus.dashboard import dashboard
from cronsensus.errors import InvalidOption, StoreUnavailable
from cronsensus.insight.lookup import require_job
from cronsensus.insight.why import explain_time
from cronsensus.model.gate import After, Gate, Rule
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.parking import Sleeper
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step
from cronsensus.node import waking
from cronsensus.payload.typed import Types
from cronsensus.stores.memory import MemoryStore
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


def wait_until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    until = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)
    return answer


def of(scheduler: Scheduler, job: str) -> list[Any]:
    return scheduler.store.occurrences(OccurrenceFilter(job=job), limit=1000, newest_first=False)


def verdicts(scheduler: Scheduler, job: str) -> list[tuple[str, str | None]]:
    return [(str(one.state), one.reason) for one in of(scheduler, job) if one.state.final]


# --- the same nominal time --------------------------------------------------------------------------------------------


def test_a_job_runs_after_its_upstreams_for_the_same_time_and_sees_their_results(url):
    scheduler = Scheduler(url)
    seen: list[Any] = []

    @scheduler.job(every("1s"))
    def extract(run: Run) -> Any:
        time.sleep(0.1)
        return run.scheduled_for and run.scheduled_for.second

    @scheduler.job(every("1s"))
    async def rates() -> str:
        return "EUR"

    @scheduler.job(after=[extract, rates])
    def load(run: Run) -> Any:
        one = run.upstream[extract]
        seen.append((run.scheduled_for, one.scheduled_for, one.result, run.upstream["rates"].result, one.verdict))
        return one.result

    with scheduler:
        wait_until(lambda: len(seen) >= 2)
        wait_until(lambda: len(verdicts(scheduler, "load")) >= 2)
        assert audit(scheduler.store).ok
    for mine, theirs, result, currency, verdict in seen:
        assert (mine, mine.second, "EUR", "succeeded") == (theirs, result, currency, verdict)
    assert len({mine for mine, *_ in seen}) == len(seen)
    assert load.rule == extract.rule


def test_waiting_holds_no_slot_and_leaves_one_run(url):
    scheduler, go = Scheduler(url, concurrency=1), threading.Event()

    @scheduler.job(every("1s"))
    def first() -> None:
        go.wait(20)

    @scheduler.job(after=[first])
    def second() -> None: ...

    with scheduler:
        wait_until(lambda: any(one.is_parked for one in of(scheduler, "second")))
        go.set()
        wait_until(lambda: any(one.state is State.SUCCEEDED for one in of(scheduler, "second")))
        done = [one for one in of(scheduler, "second") if one.state is State.SUCCEEDED]
        assert [run.end for run in scheduler.store.runs(done[0].id)] == ["succeeded"]
        assert done[0].attempt == 1


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, ("skipped", "upstream failed: first")),
        ("ended", ("succeeded", None)),
        ("failed", ("succeeded", None)),
        ({"first": "ended"}, ("succeeded", None)),
    ],
)
def test_what_follows_a_failure_is_said_by_when(url, when, expected):
    scheduler = Scheduler(url)

    @scheduler.job(every("1s"))
    def first() -> None:
        raise ValueError("no source")

    @scheduler.job(after=[first], when=when)
    def second() -> None: ...

    @scheduler.job(after=[second])
    def third() -> None: ...

    with scheduler:
        wait_until(lambda: verdicts(scheduler, "third"))
        assert verdicts(scheduler, "second")[0] == expected
        assert verdicts(scheduler, "third")[0][0] == ("skipped" if expected[0] == "skipped" else "succeeded")


def test_a_diamonds_foot_runs_once_for_each_time(url):
    scheduler, feet = Scheduler(url), Counter[Any]()

    @scheduler.job(every("1s"))
    def top() -> None: ...

    @scheduler.job(after=[top])
    def left() -> None:
        time.sleep(0.05)

    @scheduler.job(after=[top])
    def right() -> None: ...

    @scheduler.job(after=[left, right])
    def foot(run: Run) -> None:
        feet[run.scheduled_for] += 1

    with scheduler:
        wait_until(lambda: len(feet) >= 3)
    assert set(feet.values()) == {1}


def test_a_chain_goes_from_link_to_link_at_once(url):
    scheduler = Scheduler(url)
    ended: list[Any] = []

    @scheduler.job(every("1s"))
    def link_0() -> None: ...

    last: Any = link_0
    for number in range(1, 10):

        @scheduler.job(after=[last], name=f"link_{number}")
        def link(run: Run) -> None:
            ended.append((run.scheduled_for, run.job, time.monotonic()))

        last = link
    with scheduler:
        wait_until(lambda: len({at for at, job, _ in ended if job == "link_9"}) >= 2)
    first = min(at for at, job, _ in ended if job == "link_9")
    times = [moment for at, job, moment in sorted(ended, key=lambda one: one[2]) if at == first]
    assert times[-1] - times[0] < 2


def test_what_was_started_by_hand_has_no_gate(url):
    scheduler = Scheduler(url)

    @scheduler.job(cron("0 3 * * *"))
    def first() -> None: ...

    @scheduler.job(after=[first])
    def second(run: Run) -> int:
        return len(run.upstream)

    with scheduler:
        assert second.trigger().result("10s") == 0
        assert second.enqueue().result("10s") == 0


def test_a_batch_is_an_upstream_and_may_come_after_others(url):
    """Its dependents start when all of it is done (XXL-JOB #3212)."""
    scheduler, called = Scheduler(url), []

    @scheduler.job(every("2s"))
    def prepare() -> None:
        called.append("prepare")

    @scheduler.job(after=[prepare], items=range(4), concurrency=4)
    def shop(number: int) -> int:
        time.sleep(0.05)
        called.append("item")
        return number

    @scheduler.job(after=[shop])
    def report() -> None:
        called.append("report")

    with scheduler:
        wait_until(lambda: "report" in called)
    assert called[:6] == ["prepare", *["item"] * 4, "report"]


# --- other schedules --------------------------------------------------------------------------------------------------


def test_upstreams_of_another_schedule_by_their_period_and_by_the_latest(url):
    scheduler = Scheduler(url)
    seen: list[Any] = []

    @scheduler.job(every("1s"))
    def hourly(run: Run) -> Any:
        return run.scheduled_for and run.scheduled_for.second

    @scheduler.job(every("2s"))
    def rates(run: Run) -> Any:
        return run.scheduled_for and run.scheduled_for.second

    @scheduler.job(every("4s"), after={hourly: "all_in_period", rates: "latest_before"})
    def report(run: Run) -> None:
        seen.append((run.scheduled_for, [one.result for one in run.upstream.all(hourly)], run.upstream[rates].result))

    with scheduler:
        wait_until(lambda: verdicts(scheduler, "report"), 30)
        wait_until(lambda: seen or len(verdicts(scheduler, "report")) >= 2, 30)
    # The first period may have begun before the jobs did: then its upstreams are missing.
    if seen:
        mine, all_of_them, latest = seen[0]
        assert all_of_them == [(mine.second - back) % 60 for back in (3, 2, 1, 0)]
        assert latest == mine.second
    else:
        assert verdicts(scheduler, "report")[0] == ("skipped", "upstream missing: hourly")


def test_the_last_time_up_to_one_is_found_for_any_trigger():
    daily = cron("0 2 * * *", tz="Europe/Paris")
    moment = datetime(2026, 3, 29, 12, tzinfo=UTC)
    assert last_until(daily, moment) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    found = last_until(every("7m"), moment)
    assert found is not None
    assert moment - timedelta(minutes=7) < found <= moment
    assert last_until(at("2030-01-01T00:00:00Z"), moment) is None
    often = every("1s", end="2026-03-01T00:00:00Z")
    assert last_until(often, moment) == datetime(2026, 3, 1, tzinfo=UTC)  # of millions


def test_many_times_of_a_period_are_read_in_pages_and_none_is_left_out(monkeypatch):
    scheduler = Scheduler("memory://a-long-period")

    @scheduler.job(every("1m"))
    def often() -> None: ...

    with scheduler:
        pass
    until = scheduler.store.now().replace(hour=0, minute=0, second=0, microsecond=0)
    scheduler.backfill("often", until - timedelta(hours=8), until)
    report = JobSpec(
        name="report",
        function="report",
        trigger=every("8h"),
        policies=Policies(overlap="allow"),
        after=After((Rule("often", "succeeded", "all_in_period"),)),
    )
    one = Sleeper(1, "report", "upstreams", until, scheduler.store.now())
    reads = Counter[str]()
    for verb in ("_occurrences", "_ranges"):
        real: Any = getattr(MemoryStore, verb)

        def counted(*a: Any, real: Any = real, verb: str = verb, **b: Any) -> Any:
            reads[verb] += 1
            return real(*a, **b)

        monkeypatch.setattr(MemoryStore, verb, counted)
    assert Gates(scheduler.store).decide_gate(report, one)[0] == Gate("wait", "for often")
    assert sum(reads.values()) <= 5
    monkeypatch.setattr("cronsensus.after.upstreams.MOST_IN_PERIOD", 100)
    assert Gates(scheduler.store).decide_gate(report, one)[0] == Gate("skip", "upstream missing: often")


# --- waiting, lost wake-ups, deaths -----------------------------------------------------------------------------------


def test_what_waits_says_for_whom_and_goes_on_although_every_wake_up_is_lost(url, monkeypatch):
    monkeypatch.setattr(UpstreamWaker, "trigger_of_end", lambda *_: None)
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.3)
    scheduler, go = Scheduler(url), threading.Event()

    @scheduler.job(every("1s"))
    def first() -> None:
        go.wait(20)

    @scheduler.job(after=[first])
    def second() -> None: ...

    with scheduler:
        wait_until(lambda: any(one.is_parked for one in of(scheduler, "second")))
        [waits] = [one for one in of(scheduler, "second") if one.is_parked][:1]
        view = scheduler.store.job("second")
        assert view is not None
        sentences = " ".join(map(str, explain_time(scheduler.store, view, waits.scheduled_for).sentences))
        assert "It comes after first, and waits for that." in sentences
        go.set()
        wait_until(lambda: ("succeeded", None) in verdicts(scheduler, "second"))


def test_what_comes_after_a_run_that_was_pruned_meanwhile_says_so(url):
    scheduler, go = Scheduler(url), threading.Event()
    scheduler.store.migrate()
    start = scheduler.store.now() + timedelta(seconds=1)

    @scheduler.job(every("1h", start=start))
    def fast() -> None: ...

    @scheduler.job(every("1h", start=start))
    def slow() -> None:
        go.wait(20)

    @scheduler.job(after=[fast, slow])
    def foot() -> None: ...

    with scheduler:
        wait_until(lambda: verdicts(scheduler, "fast"))
        wait_until(lambda: any(one.is_parked for one in of(scheduler, "foot")))
        wait_until(lambda: scheduler.store.prune(scheduler.store.now()))
        go.set()
        wait_until(lambda: verdicts(scheduler, "foot") == [("skipped", "upstream unknown: pruned: fast")])


def test_what_waits_too_long_is_skipped(url, monkeypatch):
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.2)
    scheduler, go = Scheduler(url), threading.Event()

    @scheduler.job(every("1h"))
    def first() -> None:
        go.wait(20)

    @scheduler.job(after=[first], wait_for="500ms")
    def second() -> None: ...

    with scheduler:
        now = scheduler.store.now()
        scheduler.backfill("first", now - timedelta(hours=2), now)
        scheduler.backfill("second", now - timedelta(hours=2), now)
        wait_until(lambda: verdicts(scheduler, "second"))
        go.set()
        assert verdicts(scheduler, "second")[0] == ("skipped", "upstream late: first")


def test_a_retry_of_what_was_skipped_runs_once_its_upstream_has_succeeded(url):
    scheduler, tries = Scheduler(url), []

    @scheduler.job(every("1h"))
    def first() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("the first time")

    @scheduler.job(after=[first])
    def second() -> None: ...

    with scheduler:
        now = scheduler.store.now()
        [one] = scheduler.backfill("first", now - timedelta(minutes=60), now)[:1]
        [other] = scheduler.backfill("second", now - timedelta(minutes=60), now)[:1]
        assert other.wait("10s").reason == "upstream failed: first"
        scheduler.retry(one.id).wait("10s")
        at = other.look().scheduled_for
        assert at is not None
        said = [str(one) for one in explain_time(scheduler.store, require_job(scheduler.store, "second"), at).sentences]
        command = f"cronsensus runs retry {other.id} --downstream"
        assert f"It has succeeded since; run this one, and what comes after it: {command}." in said
        assert scheduler.retry(other.id).wait("10s").state is State.SUCCEEDED


def test_a_retry_downstream_runs_what_comes_after_it_once_more_and_behind_it(url):
    scheduler, ran = Scheduler(url), []

    @scheduler.job(every("1h"))
    def first() -> None:
        ran.append("first")
        if len(ran) == 1:
            raise ValueError("the first time")

    @scheduler.job(after=[first])
    def a_second() -> None:  # before it by name
        ran.append("second")

    with scheduler:
        now = scheduler.store.now()
        [one] = scheduler.backfill("first", now - timedelta(minutes=60), now)[:1]
        [other] = scheduler.backfill("a_second", now - timedelta(minutes=60), now)[:1]
        assert other.wait("10s").reason == "upstream failed: first"
        scheduler.retry(one, downstream=True).wait("10s")
        wait_until(lambda: ("succeeded", None) in verdicts(scheduler, "a_second"))
        by_hand = scheduler.enqueue("first")
        by_hand.wait("10s")
        with pytest.raises(InvalidOption, match="no nominal time"):
            scheduler.retry(by_hand, downstream=True)
    assert ran[:3] == ["first", "first", "second"]


def test_a_chain_runs_now_one_after_another_for_one_time(url):
    scheduler, ran = Scheduler(url), []

    @scheduler.job(cron("0 2 1 1 *"))
    def first(run: Run) -> int:
        ran.append(("first", run.scheduled_for))
        return 41

    @scheduler.job(after=[first])
    def a_second(run: Run) -> int:  # before it by name
        ran.append(("second", run.scheduled_for))
        return run.upstream[first].result + 1

    @scheduler.job(after=[a_second])
    def third(run: Run) -> None:
        ran.append(("third", run.scheduled_for))

    with scheduler:
        made = first.trigger(downstream=True, key="new year, early")
        assert not scheduler.trigger("first", downstream=True, key="new year, early").created
        at = made.look().scheduled_for
        wait_until(lambda: len(ran) == 3)
        assert ran == [("first", at), ("second", at), ("third", at)]
        [second] = scheduler.runs(job="a_second")
        assert scheduler.retry(second.id, again=True).result("10s") == 42
        wait_until(lambda: len(ran) == 4)
        with pytest.raises(InvalidOption, match="begin with the first job"):
            third.trigger(downstream=True)
        report = audit(scheduler.store)
        assert report.ok, report


def test_why_names_the_upstream_and_how_to_see_what_became_of_it(url):
    scheduler = Scheduler(url)

    @scheduler.job(every("1h"))
    def first() -> None:
        raise ValueError("no source")

    @scheduler.job(after=[first])
    def second() -> None: ...

    @scheduler.job(after=[second])
    def third() -> None: ...

    with scheduler:
        now = scheduler.store.now()
        made = {job: scheduler.backfill(job, now - timedelta(hours=1), now)[0] for job in ("first", "second", "third")}
        assert made["third"].wait("10s").reason == "upstream skipped: second"
        at = made["third"].look().scheduled_for
        assert at is not None
        said = {job: explain_time(scheduler.store, require_job(scheduler.store, job), at).sentences for job in made}
        of_second, of_third = ([str(one) for one in said[job]] for job in ("second", "third"))
        page = Browser(dashboard(scheduler)).get(f"/ledger?job=second&at={at.isoformat()[:19]}Z").text
    failed = made["first"].id
    assert {
        "No: it comes after first, which failed or was cancelled.",
        f"See it: cronsensus runs show {failed}.",
        f"Run it again, and this one after it: cronsensus runs retry {failed} --downstream.",
    } <= set(of_second)
    assert "No: it comes after second, which was skipped." in of_third
    assert any(one.startswith("See why: cronsensus why second '20") for one in of_third)
    assert f'<a href="/runs/{failed}">cronsensus runs show {failed}</a>' in page


PROGRAM = """
import sys, time
from cronsensus import Run, Scheduler, every
scheduler = Scheduler(sys.argv[1], node=sys.argv[2], lease="3s")
@scheduler.job(every("1s"))
def extract(run: Run) -> int:
    time.sleep(0.3)
    return run.scheduled_for.second
@scheduler.job(after=[extract])
def load(run: Run) -> int:
    time.sleep(0.2)
    return run.upstream[extract].result
scheduler.run()
"""


def test_each_night_is_loaded_once_although_nodes_are_killed_between_the_two(sqlite_url):
    def start(name: str) -> Any:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, sqlite_url, name], stderr=subprocess.DEVNULL)

    nodes = {name: start(name) for name in "abc"}
    scheduler = Scheduler(sqlite_url)
    store = scheduler._opened.ready()
    done = OccurrenceFilter(job="load", states=(State.SUCCEEDED,))
    try:
        wait_until(lambda: len(store.sessions()) == 3)
        for job in ("extract", "load", "extract"):
            running = OccurrenceFilter(job=job, states=(State.RUNNING,))
            name = wait_until(lambda: next((one.node for one in store.occurrences(running)), None))  # noqa: B023 - here
            nodes[name].kill()
            nodes[name].wait()
            nodes[name] = start(name)
        last = store.now()
        wait_until(lambda: any(one.scheduled_for > last for one in store.occurrences(done) if one.scheduled_for))
    finally:
        for node in nodes.values():
            node.terminate()
        for node in nodes.values():
            node.wait(20)
    loaded = store.occurrences(done, limit=100)
    extracted = store.occurrences(OccurrenceFilter(job="extract", states=(State.SUCCEEDED,)), limit=100)
    assert len(loaded) >= 3
    ended: dict[Any, Any] = {one.scheduled_for: one.finished_at for one in extracted}
    loads: list[Any] = loaded
    assert all(one.started_at >= ended[one.scheduled_for] for one in loads), "one began before its upstream ended"
    assert all(one.result == str(one.scheduled_for.second) for one in loads)
    report = audit(store)
    scheduler._opened.close()
    assert report.ok, report


# --- the audit --------------------------------------------------------------------------------------------------------


def test_the_audit_judges_no_run_by_an_edge_that_a_later_release_added():
    cluster = HandCluster()
    behind: dict[str, Any] = {"overlap": "allow", "concurrency": 1, "catch_up": "all"}
    cluster.every("extract")
    cluster.every("load", **behind)
    cluster.join()
    cluster.advance(61)
    cluster.fire()
    for claim in sorted(cluster.claim(), key=lambda one: one.job, reverse=True):
        cluster.advance(1)
        cluster.finish(claim)
    cluster.advance(1)
    cluster.every("load", **behind, after=After((Rule("extract"),)))
    assert audit(cluster.store).ok
    cluster.advance(60)
    cluster.fire()
    for claim in sorted(cluster.claim(), key=lambda one: one.job, reverse=True):
        cluster.advance(1)
        cluster.finish(claim)
    assert [one.kind for one in audit(cluster.store).findings] == ["early"]


def test_the_audit_finds_no_run_early_that_was_skipped_at_its_gate():
    cluster = HandCluster()
    cluster.every("extract")
    cluster.every("load", overlap="allow", after=After((Rule("extract"), Rule("rates"))))
    cluster.join()
    cluster.advance(61)
    cluster.fire()
    first, skipped = sorted(cluster.claim(), key=lambda one: one.job)
    cluster.finish(skipped, State.SKIPPED, reason="upstream skipped: rates")
    cluster.advance(1)
    cluster.finish(first)
    assert audit(cluster.store).ok


# --- misuse -----------------------------------------------------------------------------------------------------------


def jobs() -> tuple[Scheduler, Any, Any]:
    scheduler = Scheduler("memory://")

    @scheduler.job(cron("0 2 * * *"))
    def extract() -> None: ...

    @scheduler.job()
    def by_hand() -> None: ...

    return scheduler, extract, by_hand


@pytest.mark.parametrize(
    ("trigger", "options", "words"),
    [
        (None, {"after": 5}, "neither a job nor a job's name"),
        (None, {"after": ["nothing"]}, "'nothing', which is not declared here"),
        (None, {"after": ["load"]}, "itself, or in a circle"),
        (None, {"after": ["by_hand"]}, "which has no schedule"),
        (None, {"after": ["extract"], "overlap": "skip"}, "leave it out"),
        (None, {"after": ["extract"], "when": "done"}, "'succeeded', 'ended', 'failed'"),
        (None, {"after": {"extract": "last"}}, "'latest_before'"),
        (None, {"after": ["extract"], "when": {"extrakt": "ended"}}, "'load' does not come after that"),
        (None, {"when": "ended"}, "come after others"),
        (None, {"wait_for": "1h"}, "come after others"),
        (every("1h"), {"after": ["extract"]}, "'latest_before' 20.*'all_in_period'.*'same'"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(trigger, options, words):
    scheduler, *_ = jobs()
    with pytest.raises(InvalidOption, match=words):

        @scheduler.job(trigger, **options)
        def load() -> None: ...


def test_to_ask_for_what_it_did_not_come_after_says_what_there_is(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    def alone(run: Run) -> None:
        run.upstream["extract"]

    with scheduler:
        error = alone.enqueue().wait("10s").error
    assert error is not None
    assert "did not come after 'extract'" in error.message


# --- no way around the gate -------------------------------------------------------------------------------------------


def test_a_claim_whose_answer_was_lost_goes_through_its_gate_when_it_is_found(monkeypatch):
    scheduler, order = Scheduler("memory://lost-before-a-gate"), []
    step = MemoryStore.step

    def loses_claims(self: MemoryStore, session: str, said: Step) -> Done:
        done = step(self, session, said)
        if "lost" not in order and any(claim.job == "second" for claim in done.claims):
            order.append("lost")
            raise StoreUnavailable("the answer is lost")
        return done

    monkeypatch.setattr(MemoryStore, "step", loses_claims)

    @scheduler.job(every("1s"))
    def first() -> None:
        order.append("first")

    @scheduler.job(after=[first])
    def second(run: Run) -> None:
        order.append(run.upstream[first].verdict)

    with scheduler:
        wait_until(lambda: "succeeded" in order)
    assert order[0] == "first"
    assert order.index("lost") < order.index("succeeded")


def test_the_thread_that_begins_everything_else_reads_nothing_for_a_gate(monkeypatch):
    """It held up all other jobs for as long as that took: 160 s for 1,000 nights on a store 40 ms away."""
    scheduler, by, claimed = Scheduler("memory://beside-a-gate"), Counter[str](), Counter[str]()
    occurrences, step = MemoryStore.occurrences, MemoryStore.step

    def watched(self: MemoryStore, *args: Any, **more: Any) -> Any:
        by[threading.current_thread().name] += 1
        return occurrences(self, *args, **more)

    def counted(self: MemoryStore, session: str, said: Step) -> Done:
        done = step(self, session, said)
        claimed.update(claim.job for claim in done.claims)
        return done

    monkeypatch.setattr(MemoryStore, "occurrences", watched)
    monkeypatch.setattr(MemoryStore, "step", counted)

    @scheduler.job(every("1s"))
    def first() -> int:
        return 7

    @scheduler.job(after=[first])
    def second(run: Run) -> int:
        return run.upstream[first].result

    with scheduler:
        wait_until(lambda: claimed["second"] >= 3)
    assert set(by) == {"cronsensus-waking"}
    assert claimed["second"] <= claimed["first"], "each is claimed once: it is neither claimed to be parked nor in vain"


def test_a_batch_that_went_through_its_gate_is_listed_once_although_its_upstream_is_tried_again(url):
    scheduler, listed, fails, failed = Scheduler(url), [], threading.Event(), threading.Event()

    @scheduler.job(every("1h"))
    def first() -> None:
        if fails.is_set():
            raise ValueError("the second time")

    def shops() -> list[str]:
        listed.append(1)
        return ["paris", "lyon"]

    @scheduler.job(after=[first], items=shops, collect=lambda results: len(list(results)))
    def close(shop: str) -> None:
        failed.wait(20)

    with scheduler:
        now = scheduler.store.now()
        [one] = scheduler.backfill("first", now - timedelta(minutes=60), now)[:1]
        [batch] = scheduler.backfill("close", now - timedelta(minutes=60), now)[:1]
        wait_until(lambda: listed)
        fails.set()
        scheduler.retry(one.id, again=True).wait("10s")
        failed.set()
        assert batch.wait("20s").state is State.SUCCEEDED
    assert listed == [1]


@pytest.mark.parametrize("others", [True, False])
def test_what_an_earlier_release_held_goes_on_in_one_that_has_no_such_edge(sqlite_url, monkeypatch, others):
    """It slept for ever, and as it counts as active, each later time was skipped by overlap."""
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.3)

    on = threading.Event()

    def release(after: list[str]) -> Scheduler:
        scheduler = Scheduler(sqlite_url)

        @scheduler.job(every("1h"))
        def first() -> None:
            on.wait(20)

        @scheduler.job(every("1h"), after=after)
        def second() -> None: ...

        if others:

            @scheduler.job(after=[first])
            def third() -> None: ...

        return scheduler

    before, later = release(["first"]), release([])
    before.start()
    now = before.store.now()
    before.backfill("first", now - timedelta(minutes=60), now)
    [held] = before.backfill("second", now - timedelta(minutes=60), now)[:1]
    wait_until(lambda: held.look().is_parked)
    before.stop("0s")
    with later:
        wait_until(lambda: ("succeeded", None) in verdicts(later, "second"), 10)
        on.set()


def test_a_job_that_is_added_with_the_function_of_one_that_comes_after_others_comes_after_nothing(url):
    """It once slept for ever: held by its function's edges, and looked for by its own."""
    scheduler, ran = Scheduler(url), []

    @scheduler.job(cron("0 3 * * *"))
    def first() -> None: ...

    @scheduler.job(after=[first])
    def second(run: Run) -> None:
        ran.append(run.job)

    with scheduler:
        scheduler.add_job(second, every("1s"), name="other")
        wait_until(lambda: ran)
    assert set(ran) == {"other"}


IN_A_PROCESS = """
import sys, time
from dataclasses import dataclass
from cronsensus import Run, Scheduler, every

scheduler = Scheduler(sys.argv[1] if __name__ == "__main__" else "memory://")

@dataclass
class Total:
    shops: int

@scheduler.job(every("1s"))
def extract() -> Total:
    return Total(3)

@scheduler.job(after={extract: "same"}, executor="process")
def load(run: Run) -> list[str]:
    upstream = run.upstream[extract]
    return [repr(upstream.result), upstream.verdict, str(upstream.scheduled_for == run.scheduled_for)]

if __name__ == "__main__":
    with scheduler:
        while not (done := scheduler.runs(job="load", state="succeeded")):
            time.sleep(0.05)
        print(done[0].result)
"""


def test_a_run_in_a_process_of_its_own_sees_what_it_came_after(tmp_path):
    (tmp_path / "night.py").write_text(IN_A_PROCESS)
    ran = subprocess.run(
        [sys.executable, "night.py", f"sqlite:///{tmp_path}/jobs.db"], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(ran.stdout) == ["Total(shops=3)", "succeeded", "True"], ran.stderr


def test_a_model_of_a_function_that_cannot_be_imported_there_travels_as_json():
    """It was an error of each run that came after it."""

    class Total(BaseModel):
        days: dict[int, int]

    def extract() -> Total:
        return Total(days={1: 2})

    results = UpstreamResults({"extract": Types(extract)}, {"extract": extract})
    one = Upstream("extract", datetime(2026, 11, 20, tzinfo=UTC), "succeeded", extract(), 7)
    reader, packed = CameAfter({"extract": (one,)}, results).pack_call()
    assert reader.endswith(":unpack_upstreams")
    assert unpack_upstreams(packed).times["extract"][0].result == {"days": {"1": 2}}
