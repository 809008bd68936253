"""Declaring jobs: what decorators make of functions, and what they refuse."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

from cronsensus import JobDefaults, Run, Scheduler, every
from cronsensus.errors import (
    ConfigurationError,
    DuplicateJob,
    InvalidDuration,
    InvalidOption,
    InvalidPayload,
    InvalidTrigger,
    UnknownJob,
    UnsupportedFunction,
)
from cronsensus.jobs.handle import Handle
from cronsensus.model.occurrence import Item

if TYPE_CHECKING:
    from somewhere import Unimportable  # type: ignore[import-not-found]

    from cronsensus import Run as OnlyForTypeCheckers


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("memory://")


def importable_with_order(order: int) -> int:
    return order


def importable() -> int:
    """Say seven."""
    return 7


# --- functions stay functions ----------------------------------------------------------------------------------------


def test_a_decorated_function_is_called_like_the_function_it_was(scheduler):
    @scheduler.job(every("5m"), args=(1,))
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert (add(1), add(1, b=5), add.__name__, add.__doc__) == (3, 6, "add", "Add.")
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
    assert (add.name, add.function(1), add.rule) == ("add", 3, every("5m"))


def test_a_decorated_async_function_is_still_one(scheduler):
    @scheduler.job()
    async def answer() -> int:
        return 42

    # Before 3.12 only asyncio could be told that an object is one.
    ask = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else getattr(asyncio, "iscoroutinefunction")  # noqa: B009
    assert ask(answer)
    assert asyncio.run(answer()) == 42
    assert answer.spec.executor == "async"


def test_one_function_may_be_several_jobs(scheduler):
    @scheduler.job(every("5m"), name="often")
    @scheduler.job(every("1d"), name="rarely")
    def work() -> None: ...

    assert sorted(scheduler.jobs) == ["often", "rarely"]
    assert scheduler.jobs["often"].function is scheduler.jobs["rarely"].function


def test_a_registered_function_comes_back_as_it_was(scheduler):
    assert scheduler.function(name="seven")(importable) is importable


def test_declaring_opens_and_starts_nothing(scheduler, tmp_path):
    Scheduler(f"sqlite:///{tmp_path}/a.db").job(every("1s"))(importable)
    assert list(tmp_path.iterdir()) == []


# --- definitions -----------------------------------------------------------------------------------------------------


def test_a_definition_holds_names_and_json_and_what_the_defaults_say():
    scheduler = Scheduler("memory://", defaults=JobDefaults(timeout="10m", retries=2))
    job = scheduler.job(every("5m"), retries=1, name="seven", executor="process")(importable)
    assert (job.spec.name, job.spec.function, job.spec.source) == ("seven", "seven", "code")
    assert (job.spec.policies.timeout, job.spec.policies.retries) == (timedelta(minutes=10), 1)
    assert job.spec.executor == "process"


def test_flags_that_come_after_the_import_still_reach_the_definitions(monkeypatch):
    monkeypatch.setenv("CRONSENSUS_KEEP", "3d")
    scheduler = Scheduler("memory://")
    job = scheduler.job()(importable)
    assert job.spec.policies.keep == timedelta(days=3)
    scheduler.configure({"keep": "5d"})
    assert job.spec.policies.keep == timedelta(days=5)
    assert Scheduler("memory://", defaults=JobDefaults(keep="30d")).job()(importable).spec.policies.keep.days == 30


def test_equal_code_is_an_equal_release_and_a_version_is_part_of_it(monkeypatch):
    def declared(**options):
        scheduler = Scheduler("memory://", **options)
        scheduler.job(every("5m"))(importable)
        return scheduler

    assert declared().release == declared().release
    assert declared(release="1.2").release == f"1.2+{declared().release}"
    other = declared()
    other.job(every("6m"), name="other")(importable)
    assert other.release != declared().release
    monkeypatch.setenv("CRONSENSUS_RELEASE", "v9")
    assert declared().release == "v9"
    flagged = declared(release="1.2")
    flagged.configure({"release": "v10"})
    assert flagged.release == "v10"


# --- the Run ---------------------------------------------------------------------------------------------------------


def _plain(run: Run) -> None: ...
def _optional(run: Run | None = None) -> None: ...
def _older(*, run: Optional[Run] = None) -> None: ...  # noqa: UP045
def _annotated(run: Annotated[Run, "the attempt"]) -> None: ...
def _behind_a_guard(run: OnlyForTypeCheckers) -> None: ...
def _beside_the_unknown(shop: Unimportable, run: Run) -> None: ...
def _in_another_order(run: Run | None = None) -> None: ...


@pytest.mark.parametrize(
    "function",
    [_plain, _optional, _older, _annotated, _beside_the_unknown, _in_another_order],
)
def test_a_parameter_annotated_with_run_is_found(scheduler, function):
    scheduler.job()(function)
    assert scheduler._declared.registry[function.__name__].run_parameter == "run"


def test_a_run_that_is_imported_only_for_type_checkers_is_known_by_its_name(scheduler):
    def job(run: Run) -> None: ...

    job.__globals__.pop("Nothing", None)
    job.__annotations__ = {"run": "not_imported.Run", "return": "None"}
    scheduler.job()(job)
    assert scheduler._declared.registry["job"].run_parameter == "run"


def test_a_parameter_that_is_only_called_run_is_an_ordinary_one(scheduler):
    @scheduler.job()
    def job(run: int, other: list[Run], third=None) -> None: ...

    assert scheduler._declared.registry["job"].run_parameter is None


def test_a_wrapped_function_is_looked_through(scheduler):
    def traced(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @scheduler.job()
    @traced
    def job(run: Run) -> None: ...

    assert scheduler._declared.registry["job"].run_parameter == "run"


def _twice(run: Run, again: Run) -> None: ...
def _positional(run: Run, /) -> None: ...
def _before_more(run: Run, *numbers: int) -> None: ...


@pytest.mark.parametrize("function", [_twice, _positional, _before_more])
def test_a_run_that_cannot_be_passed_by_name_is_refused(scheduler, function):
    with pytest.raises(UnsupportedFunction, match="the Run is passed by name"):
        scheduler.job()(function)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_two_jobs_of_one_name_are_an_error_that_names_both_places(scheduler):
    def first() -> None: ...
    def second() -> None: ...

    scheduler.job(name="same")(first)
    line = first.__code__.co_firstlineno
    with pytest.raises(DuplicateJob) as error:
        scheduler.job(name="same")(second)
    assert f"{__file__}:{line} and at {__file__}:{line + 1}" in str(error.value)


def test_a_function_declared_twice_at_one_place_is_explained(scheduler):
    scheduler.job()(importable)
    with pytest.raises(DuplicateJob, match="imported under two names"):
        scheduler.job()(importable)


def test_a_refused_declaration_leaves_nothing_behind(scheduler):
    with pytest.raises(InvalidOption):
        scheduler.job(every("5m"), retries=-1)(importable)
    scheduler.job(every("5m"))(importable)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"retrys": 3}, InvalidOption, "did you mean 'retries'"),
        ({"nmae": "x"}, InvalidOption, "did you mean 'name'"),
        ({"overlap": "sometimes"}, InvalidOption, "'skip', 'queue_one'"),
        ({"timeout": "soon"}, InvalidDuration, "timeout='soon'"),
        ({"name": " "}, InvalidOption, "printable"),
        ({"executor": "fibre"}, InvalidOption, "'async', 'thread', 'process'"),
        ({"executor": "async"}, UnsupportedFunction, "is not async"),
        ({"trigger": "0 3 * * *"}, InvalidTrigger, r"write cron\('0 3 \* \* \*'\)"),
        ({"trigger": "5m"}, InvalidTrigger, r"write every\('5m'\)$"),
        ({"trigger": 300}, InvalidTrigger, "not a trigger"),
        ({"max_instances": 1}, InvalidOption, "write concurrency=…"),
        ({"retrys": 1, "misfire_grace_time": 30}, InvalidOption, "'retrys' .* 'retries'.; unknown .* write grace=…"),
        ({"args": (1,)}, InvalidOption, "cannot be called like that: too many positional arguments"),
    ],
)
def test_a_wrong_option_is_an_error_where_it_is_written(scheduler, options, kind, said):
    with pytest.raises(kind, match=said):
        scheduler.job(**options)(importable)


def test_defaults_are_job_defaults():
    with pytest.raises(InvalidOption, match=r"write defaults=JobDefaults\("):
        Scheduler("memory://", defaults={"timeout": "10m"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"order": 1, "dealy": "5m"}, r"unexpected .* 'dealy'; did you mean .options\(delay='5m'\).enqueue\(…\)\?"),
        ({"order": 1, "countdown": 5}, r"unexpected .* 'countdown'; write .options\(delay='60s'\).enqueue\(…\)$"),
        ({"order": 1, "retries": 5}, r"unexpected .* 'retries'; write it where the job is declared"),
        ({"ordr": 1}, r"did you mean order=\?"),
        ({"order": 1, "zzz": 1}, r"unexpected keyword argument 'zzz'; it takes \(order"),
        ({}, r"missing a required argument: 'order'; it takes \(order"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_what_was_meant(scheduler, kwargs, said):
    @scheduler.job()
    def send_invoice(order: int) -> None: ...

    with pytest.raises(InvalidOption, match=said):
        send_invoice.enqueue(**kwargs)


OLD_STYLE = (
    r"`key` is an option .* write .options\(key='k', delay='5m'\).enqueue\(…\) instead of .enqueue\(…, key='k', "
)


def test_an_option_among_the_arguments_is_refused_with_what_to_write(scheduler):
    @scheduler.job()
    def send_invoice(order: int) -> None: ...

    for enqueue in (send_invoice.enqueue, send_invoice.call, partial(scheduler.enqueue, "send_invoice")):
        with pytest.raises(InvalidOption, match=OLD_STYLE + r"delay='5m'\)$"):
            enqueue(1, key="k", delay="5m")
    with pytest.raises(InvalidOption, match=OLD_STYLE + r"delay='5m'\)$"):
        scheduler.job(name="nothing")(lambda: None).enqueue(key="k", delay="5m")
    with pytest.raises(
        InvalidOption, match=r"'key'; `key` is an option of the call, which goes into .options\(key='k'\)"
    ):
        send_invoice.options(delay="5m").enqueue(1, key="k")


def test_an_option_among_the_arguments_of_a_function_that_may_take_it_is_refused_unless_options_were_given(scheduler):
    @scheduler.job()
    def anything(**kwargs: object) -> None: ...

    elsewhere = Scheduler(scheduler.store)
    elsewhere.store.migrate()
    anything.enqueue(color="red")
    for job in (partial(elsewhere.enqueue, "anything"), anything.enqueue):
        with pytest.raises(InvalidOption, match=OLD_STYLE + r".* write .options\(\).enqueue\(…, key='k', delay='5m'\)"):
            job(key="k", delay="5m")
    for options in (partial(elsewhere.options, "anything"), anything.options):
        assert options(priority=1).enqueue(key="k").look().kwargs == {"key": "k"}


def test_a_function_may_have_parameters_that_are_called_like_options(scheduler):
    @scheduler.job()
    def unlock(key: str, delay: int = 0) -> str:
        return f"{key} {delay}"

    with scheduler:
        first = unlock.options(key="once").enqueue(key="front door", delay=5)
        assert (first.key, first.result("60s")) == ("once", "front door 5")
        assert unlock.enqueue(key="back door").result("60s") == "back door 0"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kye": "a"}, "unknown option 'kye' for a call; did you mean 'key'?"),
        ({"countdown": 5}, "write delay='60s'"),
        ({"eta": 5}, "write at=…"),
        ({"task_id": "a"}, "write key='invoice:42'"),
        ({"retries": 3}, "write it where the job is declared: @scheduler.job(…)"),
        ({"args": (1,)}, ".options(…).enqueue(42, copies=2)"),
        ({"zzz": 1}, "known: at, delay, expires, key, on_failed, on_mismatch, priority"),
        ({"key": ""}, "key ''"),
        ({"key": "@2026"}, "belong to nominal times"),
        ({"delay": "1s", "at": "2026-11-20T00:00:00Z"}, "delay and at both say when"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"priority": "high"}, "priority='high': a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_to_write(scheduler, options, said):
    @scheduler.job()
    def send(shop: str) -> None: ...

    for make in (send.options, partial(scheduler.options, "send")):
        with pytest.raises(InvalidOption, match=re.escape(said)):
            make(**options)
    assert send.options(key=None, delay=None, at=None, priority=None, expires=None).enqueue("a").created


def test_a_job_that_lacks_arguments_cannot_be_triggered(scheduler):
    @scheduler.job()
    def send_invoice(order: int) -> None: ...

    with pytest.raises(InvalidOption, match=r"missing a required argument: 'order'; .* enqueue it with them"):
        send_invoice.trigger()
    scheduler.job(name="first", args=(1,))(importable_with_order).trigger()


def test_a_forgotten_pair_of_parentheses_is_explained(scheduler):
    with pytest.raises(InvalidTrigger, match=r"write @scheduler.job\(every\('5m'\)\), or @scheduler.job\(\)"):

        @scheduler.job
        def forgotten() -> None: ...

    assert scheduler.jobs == {}


@pytest.mark.parametrize("name", ["run", "self", "ctx"])
def test_a_run_without_its_annotation_is_told_to_have_it(scheduler, name):
    function = {"run": lambda run: run, "self": lambda self: self, "ctx": lambda ctx: ctx}[name]
    message = (
        rf"missing a required argument: '{name}'; if that is to be the run, annotate it: `{name}: Run`, after `from"
    )
    with pytest.raises(InvalidOption, match=message):
        scheduler.job(every("1m"), name="job")(function)
    told = scheduler.job(name="told")(function)
    scheduler.store.migrate()
    with pytest.raises(InvalidOption, match=message):
        told.enqueue()
    assert told.enqueue(1).created  # it may be an argument like any other


def test_a_method_is_refused_where_it_is_declared_with_what_to_write(scheduler):
    message = (
        r"'send' \(.*\) is a method of Mailer, and a node has no object to call it with; write a function at the top"
    )

    class Mailer:
        def send(self) -> str:
            return "sent"

        @staticmethod
        @scheduler.job()
        def post() -> str:
            return "posted"

    for decorator in (scheduler.job(every("1m")), scheduler.job(), scheduler.function):
        with pytest.raises(UnsupportedFunction, match=message):
            decorator(Mailer.send)
    assert Mailer.post() == "posted"
    with scheduler:
        assert scheduler.job(name="bound")(Mailer().send).enqueue().result("60s") == "sent"
        assert Mailer.post.enqueue().result("60s") == "posted"


def test_a_scheduled_job_must_have_all_its_arguments(scheduler):
    def send(shop: str) -> None: ...

    with pytest.raises(InvalidOption, match=r"missing a required argument: 'shop'; give what its schedule passes"):
        scheduler.job(every("5m"))(send)
    assert scheduler.job(every("5m"), kwargs={"shop": "a"})(send).spec.kwargs == {"shop": "a"}


def test_arguments_are_json_or_an_error_here(scheduler):
    def send(day: object) -> None: ...

    with pytest.raises(
        InvalidPayload,
        match=r"arguments of 'send': day is a datetime.datetime, which is not JSON, and its annotation is object",
    ):
        scheduler.job(every("5m"), args=(datetime(2026, 1, 1, tzinfo=UTC),))(send)


def test_job_that_no_executor_can_run_is_refused(scheduler):
    def numbers():
        yield 1

    with pytest.raises(UnsupportedFunction, match="is a generator"):
        scheduler.job()(numbers)
    with pytest.raises(UnsupportedFunction, match="is not a function"):
        scheduler.job()(int)
    with pytest.raises(UnsupportedFunction, match="is not a function"):
        scheduler.job()(3)
    with pytest.raises(UnsupportedFunction, match="has no name; give the job one"):
        scheduler.job()(functools.partial(importable))
    with pytest.raises(UnsupportedFunction, match="has no name; give the job one"):
        scheduler.job()(lambda: None)
    assert scheduler.job(name="partial")(functools.partial(importable))() == 7


@pytest.mark.parametrize("function", [lambda: None, functools.partial(importable)])
def test_a_process_job_must_be_importable(scheduler, function):
    with pytest.raises(UnsupportedFunction, match='executor="thread"'):
        scheduler.job(name="x", executor="process")(function)

    def closure() -> None: ...

    with pytest.raises(UnsupportedFunction, match="top level"):
        scheduler.job(executor="process")(closure)


def test_an_unknown_option_of_the_scheduler_is_an_error_with_the_nearest_one():
    with pytest.raises(InvalidOption, match="unknown option 'leese' for Scheduler; did you mean 'lease'"):
        Scheduler("memory://", leese="5s")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="from 1s to 1h"):
        Scheduler("memory://", lease=0.2)
    with pytest.raises(InvalidOption, match="did you mean 'retries'"):
        JobDefaults(retry=2)  # type: ignore[call-arg]


def test_settings_stand_while_the_node_runs(scheduler):
    with scheduler, pytest.raises(ConfigurationError, match="before start"):
        scheduler.configure({"lease": "5s"})


# --- calls that cannot work fail at the caller -----------------------------------------------------------------------


def test_a_wrong_call_fails_where_it_is_enqueued(scheduler):
    @scheduler.job()
    def send(shop: str, *, run: Run, copies: int = 1) -> None: ...

    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, "missing a required argument: 'shop'"),
        (("a", "b"), {}, "too many positional arguments"),
        (("a",), {"color": "red"}, "unexpected keyword argument 'color'"),
        (("a",), {"run": None}, "gets its 'run' from the node"),
    ]
    for args, kwargs, said in wrong:
        with pytest.raises(InvalidOption, match=said):
            send.enqueue(*args, **kwargs)
    with pytest.raises(InvalidPayload, match="arguments of 'send'"):
        send.enqueue({1, 2})
    with pytest.raises(InvalidPayload, match="store the data elsewhere and pass its key"):
        send.enqueue("x" * 300_000)
    assert scheduler.store.counts().pending == 0


def test_arguments_behind_the_run_may_still_go_by_position(scheduler):
    @scheduler.job()
    def send(run: Run, shop: str, copies: int = 1) -> list[object]:
        return [run.job, shop, copies]

    with scheduler:
        assert send.enqueue("a", 2).result("60s") == ["send", "a", 2]
        # A process that does not have the function enqueues by name, and cannot know where the Run stands.
        by_name = scheduler.store.enqueue([Item(job="send", args=("b", 3))])[0]
        scheduler.store.notify()
        assert Handle.of(by_name, scheduler._opened).result("60s") == ["send", "b", 3]


def test_unknown_job_raises_an_error_that_says_where_to_look(scheduler):
    for act in (
        lambda: scheduler.enqueue("nobody"),
        lambda: scheduler.pause("nobody", reason="x"),
        lambda: scheduler.trigger("nobody"),
        lambda: scheduler.backfill("nobody", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    ):
        with pytest.raises(UnknownJob, match=r"no job is called 'nobody'.*cronsensus jobs list"):
            act()
    with pytest.raises(InvalidOption, match="neither a job nor a job's name"):
        scheduler.enqueue(importable)
