"""The entries of Celery's beat as code of ours: what is printed runs, at the same times, with the same arguments."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery, chain
from celery.schedules import crontab, schedule

from cronsensus import Scheduler
from cronsensus.errors import ConfigurationError
from cronsensus.integrations.celery.migrating import migrate
from cronsensus.integrations.celery.nominal_times import shared_form

NOW = datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
HERE = __name__
CALLS: list[Any] = []

app = Celery("shop", broker="memory://", set_as_current=False)


@app.task(shared=False)
def work(*args, **kwargs):
    CALLS.append((args, kwargs))


@app.task(bind=True, shared=False)
def bound(self, *args):
    CALLS.append((self.name, args))


@app.task(
    autoretry_for=(OSError,), max_retries=5, retry_backoff=2, time_limit=600, soft_time_limit=500, rate_limit="9/m"
)
def careful(): ...


def hidden(): ...


inner = app.task(name="inner", shared=False)(hidden)
del hidden


@pytest.fixture(autouse=True)
def settings():
    CALLS.clear()
    before = dict(app.conf)
    app.__dict__.pop("timezone", None)
    yield
    app.conf.update(before, beat_schedule={})
    app.__dict__.pop("timezone", None)


def made(entries, **options):
    """Run the printed program; return it, what it defines, and its jobs by name."""
    app.conf.beat_schedule = entries
    found = migrate(app, f"{HERE}:app", **options)
    space: dict[str, Any] = {"__name__": "printed"}
    exec(compile(found.code, "printed", "exec"), space)
    return found, space, {name: job.spec for name, job in space["scheduler"].jobs.items()}


def entry(task=f"{HERE}.work", when: Any = 60, **more):
    return {"one": {"task": task, "schedule": when, **more}}


@pytest.mark.parametrize(
    "when",
    [
        crontab(minute=0, hour=3),
        crontab(minute="*/20", hour="3,15", day_of_week="mon-fri"),
        crontab(minute=0, hour=9, day_of_month="1-7", day_of_week="mon"),
        crontab(minute=30, hour="*/5", day_of_month="*/2", month_of_year="1-3,12"),
        300.0,
        timedelta(hours=1.5),
        schedule(0.5),
    ],
    ids=str,
)
def test_migrated_schedule_is_due_at_the_times_at_which_a_guarded_beat_sends(when):
    app.conf.timezone = "Europe/Berlin"
    _, _, jobs = made(entry(when=when))
    theirs = when if not isinstance(when, (float, timedelta)) else schedule(when)
    theirs.app = app
    shared = shared_form(theirs, app, lambda: NOW)
    there = here = NOW
    for _ in range(300):  # with the clock change of October, where there is one
        there, here = shared.next_after(there), jobs["one"].trigger.next_after(here)
        assert here == there


def test_job_calls_the_function_of_its_task_with_its_arguments():
    entries = {
        "nightly report": {
            "task": f"{HERE}.work",
            "schedule": 60,
            "args": (1, "two"),
            "kwargs": {"three": [3.5, None]},
        },
        "work": {"task": f"{HERE}.work", "schedule": 60, "kwargs": {"not-a-name": {"x": (1,)}}},
        "tests": {"task": f"{HERE}.bound", "schedule": 60, "args": ["é\n"]},
    }
    found, space, jobs = made(entries)
    for name in jobs:
        space["scheduler"].jobs[name]()
    assert [
        ((1, "two"), {"three": [3.5, None]}),
        ((), {"not-a-name": {"x": (1,)}}),
        (f"{HERE}.bound", ("é\n",)),
    ] == CALLS
    assert [*jobs] == [*entries], "a function has the name of the package that the others call"
    assert [one.job for one in found.remarks if "its self has no request" in one.text] == ["tests"]


def test_with_keep_celery_a_job_sends_its_task_under_the_key_of_the_run_and_its_options(monkeypatch):
    sent = []
    monkeypatch.setattr(work, "apply_async", lambda **options: sent.append(options))
    monkeypatch.setattr(app, "send_task", lambda name, **options: sent.append({"name": name, **options}))
    entries = {
        **entry(args=(1,), kwargs={"a": 2}, options={"expires": 60, "queue": "slow", "once": False}),
        "two": {"task": "elsewhere.thing", "schedule": 60},
    }
    found, space, _ = made(entries, keep_celery=True)
    scheduler: Scheduler = space["scheduler"]
    with Scheduler("memory://") as node:
        runs = []
        for name in ("one", "two"):
            job = node.job(name=name)(scheduler.jobs[name].function)
            job.enqueue().wait("10s")
            runs += node.runs(job=name)
    keys = [options.pop("task_id") for options in sent]
    assert len({*keys}) == 2
    assert all(run.key in key for run, key in zip(runs, keys, strict=True))
    assert sent == [
        {"args": [1], "kwargs": {"a": 2}, "expires": 60, "queue": "slow"},
        {"name": "elsewhere.thing"},
    ]
    assert "one: once=False is left out" in found.code


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (entry("elsewhere.thing"), "no task 'elsewhere.thing' is registered here; import its module"),
        (entry("inner"), "is not found as 'hidden' at the top level"),
        (entry("celery.chain", kwargs={"tasks": []}), "celery.chain: write a job for each task, and after="),
        (entry(args=(object(),)), "which cannot be written as text"),
        (entry(args=(float("nan"),)), "which cannot be written as text"),
        (entry(when=crontab(day_of_month="13", day_of_week="fri", hour=0, minute=0)), "Celery wants both to match"),
        (entry(when=crontab(minute=0, nowfun=lambda: NOW)), "the store's clock decides"),
        (entry(when=0), "not written: "),
        (entry(when="often"), "not written: "),
        ({"one": {"schedule": 60, "colour": "red"}}, "beat cannot read it either"),
    ],
)
def test_entry_without_an_equivalent_is_left_out_and_says_why(given, words):
    found, _, jobs = made(given)
    assert not jobs
    assert found.left_out == 1
    assert "# one: not written: " in found.code
    assert words in found.code


def test_zone_without_a_name_is_told_what_to_set_and_that_of_the_machine_is_named():
    app.conf.timezone = timezone(timedelta(hours=1))
    found, _, jobs = made(entry(when=crontab(minute=0)))
    assert not jobs
    assert "write app.conf.timezone = 'Europe/Berlin' there first" in found.code
    app.__dict__.pop("timezone")
    app.conf.timezone, app.conf.enable_utc = None, False
    found, _, jobs = made(entry(when=crontab(minute=0)))
    assert f"times are in this machine's zone, {jobs['one'].trigger.tz}" in found.code


def test_options_and_limits_become_policies_and_the_others_are_remarked():
    options = {"overdue": "2h", "expires": 90, "queue": "slow", "priority": 3, "countdown": 5}
    found, _, jobs = made(entry(f"{HERE}.careful", options=options))
    policies = jobs["one"].policies
    assert jobs["one"].overdue is not None
    assert (policies.grace, policies.timeout) == (timedelta(seconds=90), timedelta(minutes=10))
    assert (policies.retries, policies.retry_delay, policies.retry_max_delay) == (
        5, timedelta(seconds=2), timedelta(minutes=10),
    )  # fmt: skip
    for words in ("queue='slow'", "priority=3", "countdown=5", "soft_time_limit", "autoretry_for", "rate_limit='9/m'"):
        assert f"# one: {words}" in found.code


def test_periodic_tasks_that_are_added_in_code_are_written_and_get_a_name():
    late = Celery("late", broker="memory://", set_as_current=False)
    late.conf.beat_schedule = {"work": {"task": f"{HERE}.work", "schedule": 60}}
    late.on_after_configure.connect(
        lambda sender, **_: sender.add_periodic_task(60, sender.signature(f"{HERE}.work", (1,))), weak=False
    )
    late.on_after_finalize.connect(
        lambda sender, **_: sender.add_periodic_task(60, sender.signature(f"{HERE}.work"), name="named"), weak=False
    )
    found = migrate(late, "shop:late", keep_celery=True)
    assert found.jobs == 3, found.code
    assert 'name="work-2"' in found.code
    assert f"# {HERE}.work(1): it had no name and is called 'work-2'" in found.code
    assert "def named(run: Run)" in found.code


def test_cleaning_of_the_result_backend_that_beat_adds_by_itself_is_written_where_celery_stays(tmp_path):
    kept = Celery("kept", broker="memory://", backend=f"file://{tmp_path}", set_as_current=False)
    assert 'shop.kept.send_task("celery.backend_cleanup"' in " ".join(
        migrate(kept, "shop:kept", keep_celery=True).code.split()
    ).replace("( ", "(")
    assert migrate(kept, "shop:kept").jobs == 0
    none = Celery("none", broker="memory://", set_as_current=False)
    assert migrate(none, "shop:none", keep_celery=True).jobs == 0


def test_entries_in_a_database_and_a_chain_that_was_added_are_told():
    app.conf.beat_scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
    app.conf.beat_schedule = {}
    app.add_periodic_task(60, chain(app.signature("a"), app.signature("b")), name="chained")
    found = migrate(app, f"{HERE}:app")
    assert found.jobs == 0
    assert "entries in the database of django_celery_beat.schedulers:DatabaseScheduler are not read" in found.code
    assert "# chained: not written: celery.chain" in found.code


def test_what_is_no_app_or_cannot_be_loaded_is_answered_by_what_to_type():
    with pytest.raises(ConfigurationError, match="'shop:app' is a int, and no app of Celery; name one"):
        migrate(1, "shop:app")
    with pytest.raises(ConfigurationError, match=r"names a module of tasks that cannot be imported: .*no_such_tasks"):
        migrate(Celery("broken", include=["no_such_tasks"], set_as_current=False), "shop:app")
