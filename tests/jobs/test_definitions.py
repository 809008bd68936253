# mypy: disable-error-code="union-attr"
"""Jobs that are added at run time, and what a constructor is given by mistake."""

import sqlite3
import threading
import time

import pytest
import redis
import sqlalchemy

from cronsensus import Run, Scheduler, any_of, at, cron, current_run, every
from cronsensus.errors import InvalidOption, InvalidTrigger, UnknownJob, UnsupportedFunction
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.node.executors import importing
from tests.payload.typed_jobs import idempotency_key_here


@pytest.fixture
def scheduler():
    return Scheduler("memory://")


def test_a_function_of_a_module_can_be_added_as_it_is(scheduler):
    with scheduler:
        job = scheduler.add_job(idempotency_key_here, None, name="nightly")
        assert job.options(key="x").enqueue().result("60s") == "default:nightly:x"
        again = scheduler.add_job(idempotency_key_here, None, name="nightly")
        assert again.name == "nightly"
        assert scheduler.add_job("idempotency_key_here", None, name="by name").enqueue().result("60s")


def test_a_program_that_adds_a_job_when_it_is_imported_does_not_do_so_in_processes_of_its_jobs(tmp_path, monkeypatch):
    """Each of them added it once more, also when it had been removed or replaced meanwhile."""
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setattr(importing, "_loading_program", True)
    job = scheduler.add_job(idempotency_key_here, every("1h"), name="nightly")
    assert (job.name, list(tmp_path.iterdir())) == ("nightly", [])


def test_add_job_of_a_function_without_a_name_is_refused(scheduler):
    def inner() -> None: ...

    scheduler.store.migrate()
    for function in (inner, lambda: None, scheduler.add_job, print):
        with pytest.raises(
            UnsupportedFunction, match=r"put @scheduler.function\(\) above it, where every node imports"
        ):
            scheduler.add_job(function, None, name="nightly")
    with pytest.raises(UnknownJob, match=r"7 is no function"):
        scheduler.add_job(7, None, name="nightly")


def test_a_function_is_registered_with_parentheses_or_without(scheduler):
    @scheduler.function
    def bare() -> int:
        return 1

    @scheduler.function(name="named")
    def other() -> int:
        return 2

    assert (bare(), other()) == (1, 2)
    with scheduler:
        assert scheduler.add_job(bare, None, name="a").enqueue().result("60s") == 1
        assert scheduler.add_job("named", None, name="b").enqueue().result("60s") == 2


@pytest.mark.parametrize(
    "trigger",
    [every("1s", jitter="5s"), cron("* * * * *", jitter="90s"), any_of(every("10s"), every("15s"), jitter="1m")],
)
@pytest.mark.parametrize("overlap", ["skip", "queue_one", "cancel_previous"])
def test_a_jitter_that_reaches_over_the_next_run_is_refused(scheduler, trigger, overlap):
    with pytest.raises(InvalidOption, match=r"jitter=.* is longer: a run would still wait .* or overlap='allow'"):
        scheduler.job(trigger, overlap=overlap, name="tick")(lambda: None)
    assert "tick" not in scheduler.jobs
    with scheduler:
        with pytest.raises(InvalidOption, match=r"jitter=.* is longer"):
            scheduler.add_job(idempotency_key_here, trigger, overlap=overlap, name="tick")
        scheduler.add_job(idempotency_key_here, every("1h"), overlap=overlap, name="tick")
        with pytest.raises(InvalidOption, match=r"jitter=.* is longer"):
            scheduler.change_job("tick", trigger=trigger)


@pytest.mark.parametrize("trigger", [every("5s", jitter="5s"), at("2030-01-01T00:00:00Z", jitter="1h"),
                                     cron("0 9,17 * * *", jitter="1h"), cron("* 9 * * *", jitter="1m")])  # fmt: skip
def test_a_jitter_up_to_the_next_run_is_fine(scheduler, trigger):
    assert scheduler.job(trigger, name="tick")(lambda: None).spec.trigger == trigger


@pytest.mark.parametrize("overlap", ["allow", "queue"])
def test_a_job_that_runs_beside_or_after_itself_may_have_any_jitter(scheduler, overlap):
    assert scheduler.job(every("1s", jitter="5s"), overlap=overlap, name="tick")(lambda: None)


@pytest.mark.parametrize(
    ("given", "write"),
    [
        (redis.Redis("cache", 6380, db=2, password="s3cret"), r"Scheduler\('redis://:PASSWORD@cache:6380/2'\)"),
        (sqlalchemy.create_engine("sqlite://"), r"Scheduler\(engine.url.render_as_string\(hide_password=False\)\)"),
        (sqlite3.connect(":memory:"), r"Scheduler\('sqlite:///FILE'\)"),
    ],
    ids=["redis", "engine", "connection"],
)
def test_a_client_instead_of_a_url_is_answered_with_the_url(given, write):
    with pytest.raises(
        InvalidOption, match=f"opens connections of its own, and so takes a URL; write {write}"
    ) as refused:
        Scheduler(given)
    assert "s3cret" not in str(refused.value)
    if isinstance(given, sqlite3.Connection):
        given.close()
    elif isinstance(given, sqlalchemy.Engine):
        given.dispose()


@pytest.mark.parametrize("path", ["C:\\data\\jobs.db", "C:/data/jobs.db", "/d:/jobs.db"])
def test_a_drive_of_windows_is_no_file_of_that_name(path):
    with pytest.raises(
        InvalidOption, match=r"names a drive of Windows, and this system has none; write sqlite:////abs"
    ):
        Scheduler(f"sqlite:///{path}").store.migrate()


@pytest.mark.parametrize("text", ["every 5min", "@every 5min", "5min"])
def test_an_interval_in_words_is_answered_with_every(scheduler, text):
    with pytest.raises(InvalidTrigger, match=r"is text, not a trigger; write every\('5min'\)"):
        scheduler.job(text)


def test_a_run_in_the_key_of_a_guard_is_answered_with_what_to_write(scheduler):
    with pytest.raises(
        InvalidOption, match=r"has no argument 'run_key', it has order; inside a job pass it run.idempotency"
    ):

        @scheduler.once(key="{run_key}")
        def charge(order: int) -> None: ...


def test_a_guard_may_take_the_key_of_the_run_that_calls_it(scheduler):
    charged = []

    @scheduler.once(key=lambda amount: current_run().idempotency_key)
    def charge(amount):
        charged.append(amount)
        return amount

    @scheduler.job(retries=1, retry_delay=0)
    def pay(run: Run):
        charge(7)
        if run.attempt == 1:
            raise ValueError
        return charge(7)

    with scheduler:
        assert pay.enqueue().result("60s") == 7
    assert charged == [7]


@pytest.mark.parametrize(("grace", "state"), [(None, "succeeded"), ("1m", "missed")])
def test_an_instant_of_long_ago_runs_at_once_unless_grace_forbids_it(scheduler, grace, state):
    @scheduler.job(at("2020-01-01T00:00:00Z"), grace=grace)
    def late() -> None: ...

    def found() -> set[str]:
        runs = scheduler.store.occurrences(OccurrenceFilter(), limit=5)
        verdicts = scheduler.store.ranges("late", limit=5)
        return {str(one.state) for one in runs if one.state.final} | {str(one.range.state) for one in verdicts}

    with scheduler:
        pause = threading.Event()
        until = time.monotonic() + 30
        while not found() and time.monotonic() < until:
            pause.wait(0.01)
        assert found() == {state}
