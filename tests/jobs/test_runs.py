# mypy: disable-error-code="union-attr, operator, arg-type, misc"
"""What a program asks the store for: its jobs, when they are next due, and the runs of the last hours."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import cronsensus
from cronsensus import Run, Scheduler, any_of, at, cron, every
from cronsensus.errors import DuplicateJob, InvalidOption, UnknownJob
from cronsensus.lock.lease import _OF_THE_BACKEND
from cronsensus.model.states import State
from cronsensus.node.run import _OF_THE_NODE
from cronsensus.timing.clock import ManualClock
from tests.payload.typed_jobs import idempotency_key_here, local_time_here

_names = count()


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://runs-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def scheduler(url):
    scheduler = Scheduler(url, node="me")
    yield scheduler
    scheduler.stop("0s")


def nightly(scheduler, expression, **options):
    return scheduler.add_job(idempotency_key_here, cron(expression), name="nightly", **options)


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_a_deploy_with_another_cron_replaces_the_job_that_it_added_before(url):
    with Scheduler(url) as before:
        nightly(before, "0 3 * * *", replace=True, timeout="10m")
    with Scheduler(url) as after:
        with pytest.raises(DuplicateJob, match=r"write replace=True to have this one in its place, use change_job"):
            nightly(after, "0 4 * * *")
        assert after.jobs == {}
        job = nightly(after, "0 4 * * *", replace=True)
        assert job.next_time.hour == 4
        view = after.store.job("nightly")
        assert (view.revision, view.spec.trigger, view.spec.policies.timeout) == (2, cron("0 4 * * *"), None)
        nightly(after, "0 4 * * *", replace=True)
        assert after.store.job("nightly").revision == 2


def test_a_replaced_job_stays_paused(scheduler):
    with scheduler:
        nightly(scheduler, "0 3 * * *").pause(reason="stocktaking")
        nightly(scheduler, "0 4 * * *", replace=True)
        assert scheduler.store.job("nightly").paused_why == "stocktaking"


def test_replace_leaves_a_job_that_another_program_declares_in_code(url):
    declaring = Scheduler(url)
    declaring.job(every("1h"), name="nightly")(idempotency_key_here)
    with declaring, Scheduler(url) as other:
        with pytest.raises(DuplicateJob, match="which a release declares in code; change it there"):
            nightly(other, "0 4 * * *", replace=True)
        assert other.store.job("nightly").spec.trigger == every("1h")


def test_the_words_of_apscheduler_are_answered_with_replace(scheduler):
    with pytest.raises(InvalidOption, match=r"'replace_existing' for a job; write replace=True for add_job"):
        nightly(scheduler, "0 3 * * *", replace_existing=True)
    with pytest.raises(InvalidOption, match=r"'replace' for a job; write nothing"):
        scheduler.job(every("1h"), replace=True)


def test_jobs_lists_what_was_added_until_it_is_removed(scheduler):
    scheduler.job()(idempotency_key_here)
    with scheduler:
        added = nightly(scheduler, "0 3 * * *")
        assert scheduler.jobs == {"idempotency_key_here": scheduler.jobs["idempotency_key_here"], "nightly": added}
        scheduler.remove_job("nightly")
        assert list(scheduler.jobs) == ["idempotency_key_here"]


def test_next_time_is_the_nominal_time_that_comes_or_none(url):
    scheduler = Scheduler(url, tz="Asia/Shanghai")
    daily = scheduler.job(cron("0 3 * * *", jitter="1h"), name="daily")(idempotency_key_here)
    told = scheduler.job(name="told")(idempotency_key_here)
    over = scheduler.job(at("2020-01-01T00:00:00Z"), name="over", grace="1s")(idempotency_key_here)
    scheduler.store.migrate()
    undefined = daily.next_time  # the store does not know it yet
    with scheduler:
        now = datetime.now(UTC)
        assert daily.next_time == undefined
        assert (daily.next_time.tzinfo, daily.next_time.hour, daily.next_time.minute) == (UTC, 19, 0)
        assert now < daily.next_time <= now + timedelta(days=1)
        assert told.next_time is None
        daily.pause(reason="stocktaking")
        assert daily.next_time is None
        daily.resume()
        assert daily.next_time == undefined
        assert scheduler.runs("over", since="1m") == [] or over.next_time is None
        added = nightly(scheduler, "30 3 * * *")
        assert added.next_time.minute == 30
        scheduler.change_job("nightly", trigger=cron("15 3 * * *"))
        assert added.next_time.minute == 15
        scheduler.remove_job("nightly")
        assert added.next_time is None


# --- runs ------------------------------------------------------------------------------------------------------------


def _fail() -> None:
    raise ValueError("no paper")


def test_runs_are_those_of_a_state_and_a_job_newest_first(scheduler):
    fail = scheduler.job(name="fail")(_fail)
    work = scheduler.job(name="work")(idempotency_key_here)
    with scheduler:
        first, second, fine = fail.enqueue(), fail.enqueue(), work.enqueue()
        for handle in (first, second, fine):
            handle.wait("60s")
        failed = scheduler.runs(state="failed", since="12h")
        assert [(one.id, one.job, one.error.message) for one in failed] == [
            (second.id, "fail", "no paper"),
            (first.id, "fail", "no paper"),
        ]
        assert [one.id for one in scheduler.runs()] == [fine.id, second.id, first.id]
        assert [one.id for one in scheduler.runs(work)] == [fine.id]
        assert scheduler.runs("work", state=[State.FAILED, "missed"]) == []


def test_runs_come_in_pages(scheduler):
    work = scheduler.job(name="work")(idempotency_key_here)
    scheduler.store.migrate()
    ids = [work.enqueue().id for _ in range(5)]
    pages, after = [], None
    while page := scheduler.runs("work", limit=2, after=after):
        pages.append([one.id for one in page])
        after = page[-1].id
    assert pages == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]


def test_since_is_how_long_ago_or_a_time_in_the_schedulers_zone():
    clock = ManualClock(datetime(2026, 12, 1, 1, 0, tzinfo=UTC))
    scheduler = Scheduler("memory://", clock=clock, tz="Asia/Shanghai")  # 09:00 there
    work = scheduler.job(name="work")(idempotency_key_here)
    scheduler.store.migrate()
    old = work.enqueue()
    clock.advance(timedelta(hours=2))
    new = work.enqueue()
    cases: list[tuple[Any, list[int]]] = [
        ("1h", [new.id]), (3600, [new.id]), ("2h", [new.id, old.id]), ("2026-12-01 09:30", [new.id]),
        ("2026-12-01T01:30:00Z", [new.id]), ("2026-12-01 08:59", [new.id, old.id]),
        (datetime(2026, 12, 1, 1, 30, tzinfo=UTC), [new.id]), (None, [new.id, old.id]),
    ]  # fmt: skip
    for since, expected in cases:
        assert [one.id for one in scheduler.runs(since=since)] == expected, since


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "broken"}, r"state='broken': choose of 'pending', .*'failed'"),
        ({"state": 5}, r"state=5: choose of 'pending'"),
        ({"limit": 0}, r"limit=0: write 1 to 1000; for the next page write after="),
        ({"limit": 10_000}, r"limit=10000: write 1 to 1000"),
        ({"since": "yesterday"}, r"since='yesterday' is not a time; .*, or how long ago: '12h'"),
        ({"since": datetime(2026, 12, 1)}, r"since=.* has no time zone"),  # noqa: DTZ001
    ],
)
def test_what_runs_cannot_list_is_refused_with_what_to_write(scheduler, options, message):
    scheduler.store.migrate()
    with pytest.raises(InvalidOption, match=message):
        scheduler.runs(**options)


def test_runs_of_an_unknown_job_are_refused(scheduler):
    scheduler.store.migrate()
    with pytest.raises(UnknownJob, match="no job is called 'nihgtly'"):
        scheduler.runs("nihgtly")


# --- when work is due ------------------------------------------------------------------------------------------------


def test_at_takes_text_as_the_trigger_does_in_the_zone_of_the_job_or_the_scheduler(url):
    scheduler = Scheduler(url, tz="Asia/Shanghai")
    work = scheduler.job()(idempotency_key_here)
    paris = scheduler.job(cron("0 3 * * *", tz="Europe/Paris"), name="paris")(idempotency_key_here)
    scheduler.store.migrate()
    nine = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
    assert work.options(at="2026-12-01 09:00").enqueue().look().due_at == nine - timedelta(hours=8)
    assert scheduler.options("paris", at="2026-12-01T09:00").enqueue().look().due_at == nine - timedelta(hours=1)
    assert paris.options(at="2026-12-01T09:00:00Z").enqueue().look().due_at == nine
    assert work.options(at=nine).enqueue().look().due_at == nine
    with pytest.raises(InvalidOption, match=r"at='2026-03-29 02:30:00' does not exist in Europe/Paris"):
        paris.options(at="2026-03-29 02:30")


@pytest.mark.parametrize("wrong", [5, datetime(2026, 12, 1).date(), "soon", "2026-12-01", object(), True])  # noqa: DTZ001
def test_at_refuses_what_is_no_time_with_what_to_write(scheduler, wrong):
    work = scheduler.job()(idempotency_key_here)
    with pytest.raises(InvalidOption, match=r"at=.*; write|at=.* write"):
        work.options(at=wrong)


# --- the day that is meant -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize(
    ("trigger", "zone"),
    [
        (cron("0 3 * * *", tz="Asia/Shanghai"), "Asia/Shanghai"),
        (cron("0 3 * * *"), "Pacific/Kiritimati"),
        (any_of(every("1d"), cron("0 3 * * *", tz="Europe/Paris")), "Europe/Paris"),
        (every("1d"), "Pacific/Kiritimati"),
    ],
)
def test_local_time_is_the_nominal_time_in_the_zone_of_the_trigger_else_of_the_scheduler(url, executor, trigger, zone):
    scheduler = Scheduler(url, tz="Pacific/Kiritimati")
    job = scheduler.job(trigger, executor=executor, catch_up="all")(local_time_here)
    with scheduler:
        assert job.enqueue().result("60s") == [None, zone]
        nominal = cron("0 3 * * *", tz="Asia/Shanghai").next_after(datetime.now(UTC) - timedelta(days=3))
        [handle, *_] = job.backfill(nominal - timedelta(days=1), nominal + timedelta(days=1))
        shown, name = handle.result("60s")
        assert name == zone
        assert shown == handle.look().scheduled_for.astimezone(ZoneInfo(zone)).isoformat()


@pytest.mark.parametrize(
    ("period", "zone"), [(cron("* * * * *", tz="Asia/Shanghai"), "Asia/Shanghai"), ("1m", "Pacific/Kiritimati")]
)
def test_a_function_that_is_guarded_once_per_slot_sees_its_local_time(url, period, zone):
    scheduler = Scheduler(url, tz="Pacific/Kiritimati")
    shown, name = scheduler.once_per(period)(local_time_here)()
    assert name == zone
    assert datetime.fromisoformat(shown).utcoffset() == datetime.now(ZoneInfo(zone)).utcoffset()


# --- handles, and what completion shows ------------------------------------------------------------------------------


def test_handles_on_one_occurrence_are_equal_whenever_they_were_made(scheduler):
    work = scheduler.job(name="work")(idempotency_key_here)
    with scheduler:
        first = work.options(key="a").enqueue()
        first.wait("60s")
        again, found, other = work.options(key="a").enqueue(), scheduler.find(work, key="a"), work.enqueue()
        assert (first.created, again.created) == (True, False)
        assert first.state != again.state
        assert first == again == found != other
        assert len({first, again, found, other}) == 2


def test_completion_shows_what_is_public():
    assert dir(cronsensus) == sorted(cronsensus.__all__)
    seen: list[list[str]] = []
    gone: set[str] = set()
    scheduler = Scheduler("memory://")
    with scheduler:

        @scheduler.job()
        def look(run: Run) -> None:
            seen.append([name for name in dir(run) if not name.startswith("__")])
            gone.update(name for name in _OF_THE_NODE if not hasattr(run, name))

        look.enqueue().wait("60s")
    assert seen == [
        sorted([
            "add_items", "atransaction", "attempt", "batch", "cancel_reason", "cancelled", "check", "committed",
            "complete", "complete_in", "due_at", "id", "idempotency_key", "job", "key", "lease_lost", "local_time",
            "namespace", "origin", "progress", "scheduled_for", "session", "shard", "shards", "token", "transaction",
            "upstream", "zone",
        ])
    ]  # fmt: skip
    with scheduler.lock("reindex") as lease:
        gone.update(name for name in _OF_THE_BACKEND if not hasattr(lease, name))
        assert not gone, "left out of completion, and not there any more"
        assert [name for name in dir(lease) if not name.startswith("__")] == [
            "aextend", "aowned", "areacquire", "arelease", "check", "expires_in", "extend", "holder", "lost", "name",
            "owned", "reacquire", "release", "released", "token", "ttl",
        ]  # fmt: skip
