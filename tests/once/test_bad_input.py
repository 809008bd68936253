"""What cannot work is refused where it is written, or where it is called, with what to write instead."""

import pytest

from cronsensus import Run, Scheduler
from cronsensus.errors import DuplicateJob, InvalidOption, InvalidTrigger, UnsupportedFunction


def charge(order_id, amount=1.0):
    return order_id


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("charge:{order}", "charge\\(\\) has no argument 'order', it has order_id, amount; did you mean {order_id}"),
        ("charge:{nothing.id}", "no argument 'nothing'"),
        ("charge:{}", "name the argument"),
        ("charge:{0}", "name the argument"),
        ("charge:{order_id", "is no template"),
        ("", "use 1 to 400 characters"),
        ("@charge", "belong to nominal times"),
        (None, "write a template"),
        (7, "write a template"),
    ],
)
def test_invalid_keys_are_refused(local, key, says):
    with pytest.raises(InvalidOption, match=says):
        local.once(key)(charge)


def test_a_guard_around_a_task_says_that_it_belongs_inside(local):
    class Task:
        __name__ = "task"

        def __call__(self, order_id): ...

        def delay(self, order_id): ...

    with pytest.raises(AttributeError, match=r"has no delay; .* put the task's decorator above @scheduler\.once"):
        local.once("task:{order_id}")(Task()).delay(1)
    with pytest.raises(AttributeError, match=r"has no enqueue; it runs where it is called; .* @scheduler\.job\(\)"):
        local.once("charge:{order_id}")(charge).enqueue(1)


def test_call_with_an_invalid_key_is_refused(local):
    guarded = local.once("charge:{order_id}")(charge)
    with pytest.raises(InvalidOption, match="order_id is None here, and all such calls would be one"):
        guarded(None)
    with pytest.raises(InvalidOption, match=r"has no text of its own.*as in \{order_id\.id\}"):
        guarded(object())
    with pytest.raises(TypeError, match="order_id"):
        guarded()
    by_part = local.once("{order_id.number}", name="by_part")(charge)
    with pytest.raises(InvalidOption, match="cannot be filled in from this call: AttributeError"):
        by_part(7)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on_busy": "queue"}, "choose one of 'wait', 'skip', 'raise'"),
        ({"on_error": "retry"}, "choose one of 'free', 'keep'"),
        ({"on_crash": "again"}, "choose one of 'retry', 'fail'"),
        ({"max_crashes": 0}, "at least 1"),
        ({"keep": 0}, "protects nothing"),
        ({"wait_for": "1s", "on_busy": "skip"}, "leave one of them out"),
        ({"on_mismatch": "ignore"}, "choose one of 'error', 'return'"),
        ({"payload": "amout"}, r"payload='amout': charge\(\) has no argument 'amout'.*did you mean {amount}"),
        ({"payload": ("amount", "0")}, "name the argument"),
        ({"payload": 7}, "write names of arguments"),
        ({"payload": (7,)}, "write names of arguments"),
        ({"ttl": "30s"}, "unknown option 'ttl' for once"),
        ({"on_bussy": "skip"}, "did you mean 'on_busy'"),
    ],
)
def test_invalid_options_are_refused(local, options, says):
    with pytest.raises(InvalidOption, match=says):
        local.once("k", **options)(charge)


def test_invalid_functions_are_refused(local):
    with pytest.raises(UnsupportedFunction, match=r"write current_run\(\) in it instead"):

        @local.once("k")
        def wants_run(run: Run) -> None: ...

    with pytest.raises(UnsupportedFunction, match="is a generator"):

        @local.once("k")
        def yields():
            yield 1

    with pytest.raises(UnsupportedFunction, match="is not a function"):
        local.once("k")(7)
    with pytest.raises(InvalidOption, match="needs a first parameter for the connection"):
        local.once("k", transaction=True, name="none")(lambda: None)
    with pytest.raises(InvalidOption, match="no argument 'conn'"):
        local.once("{conn}", transaction=True, name="conn")(lambda conn: conn)


def test_two_guarded_functions_of_one_name_are_refused(local):
    local.once("a")(charge)
    with pytest.raises(DuplicateJob, match=r"'charge' is guarded twice by @scheduler.once"):
        local.once("b")(charge)


@pytest.mark.parametrize("period", ["soon", 0, "-1h"])
def test_invalid_periods_are_refused(local, period):
    with pytest.raises(InvalidTrigger):
        local.once_per(period)


def test_decorators_without_their_parentheses(local):
    with pytest.raises(InvalidOption, match=r"write @scheduler.once_per\('1h'\)"):
        local.once_per(charge)
    with pytest.raises(InvalidOption, match=r"write @scheduler.startup\(scope='start'\)"):
        local.startup(charge)
    bare = local.once(charge)  # it may be meant as the key
    for call in (lambda: bare(7), lambda: bare(order_id=7), lambda: bare("a", "b"), bare):
        with pytest.raises(InvalidOption, match=r"write @scheduler.once\(key='charge:{order_id}'\)"):
            call()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scope": "cluster"}, "choose one of 'start', 'deploy', 'host'"),
        ({"deploy_id": "abc"}, "only with scope='deploy'"),
        ({"deploy_id": " ", "scope": "deploy"}, "deploy_id ' ': use 1 to 200 printable characters"),
        ({"deploy_id": "x" * 10_000, "scope": "deploy"}, "deploy_id 'xxx.*…': use 1 to 200 printable characters"),
        ({"on_error": "ignore"}, "choose one of 'free', 'keep'"),
        ({"timeout": 5}, "unknown option 'timeout' for startup"),
    ],
)
def test_invalid_startup_tasks_are_refused(local, options, says):
    with pytest.raises(InvalidOption, match=says):
        local.startup(**options)(lambda: None)


def test_a_startup_that_wants_arguments(local):
    with pytest.raises(InvalidOption, match="is called without arguments"):
        local.startup()(charge)


def test_nothing_is_opened_where_it_is_declared(tmp_path):
    Scheduler(f"sqlite:///{tmp_path / 'nowhere' / 'x.db'}").once("k")(charge)
