import asyncio
from datetime import timedelta

import pytest

from cronsensus.errors import Cancel, LeaseLost, Retry, Skip
from cronsensus.model.occurrence import RunError
from cronsensus.node.executors.attempt import call_function
from cronsensus.node.executors.result import (
    LONGEST_MESSAGE,
    LONGEST_TRACEBACK,
    clean_text,
    describe_error,
    ending_of_error,
    ending_of_value,
)


@pytest.fixture
def run(bench):
    return bench.call(lambda: None).run


def caught(function):
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError


def error_of(ending):
    assert ending.error is not None
    return ending.error


def raises(error):
    def function():
        raise error

    return function


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit("from __str__")


class StrangeMeta(type):
    def __getattribute__(cls, name):
        if name == "__module__":
            raise RuntimeError
        return super().__getattribute__(name)


class Strange(Exception, metaclass=StrangeMeta):
    pass


def test_a_value_comes_back_as_json():
    assert ending_of_value({"a": [1, None, "é"]}).result == '{"a":[1,null,"é"]}'
    assert ending_of_value(None).result is None
    assert ending_of_value(False).result == "false"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            {1, 2},
            "its result is a set, which is not JSON, and has no annotation; write `-> set` in the function's signature",
        ),
        ({"a": [float("nan")]}, "its result.a[0] is nan: JSON has no such number"),
        ({1: 2}, "its result has the key 1: JSON keys are text"),
        ("x" * 10_000_000, "its result is 10,000,002 bytes as JSON, more than the 262,144 that a store keeps"),
        ("\ud800", "cannot be written as JSON"),
        ((item for item in "ab"), "its result is a generator"),
    ],
    ids=["set", "nan", "key", "10 MB", "surrogate", "generator"],
)
def test_what_no_store_can_keep_is_a_failure_that_says_what_to_do(value, words):
    ending = ending_of_value(value)
    assert ending.kind == "raised"
    assert error_of(ending).type == "InvalidPayload"
    assert words in error_of(ending).message
    assert "the job ran to its end, but" in error_of(ending).message
    assert error_of(ending).message.endswith("Return None if nobody needs the result")


def test_a_loop_of_references_is_refused():
    value: list[object] = []
    value.append(value)
    assert "nests deeper" in error_of(ending_of_value(value)).message


def test_an_error_tells_type_message_and_where_without_local_variables(run):
    def job():
        password = "s3cret"  # noqa: F841
        raise ValueError("the reason")

    ending = call_function(run, job, (), {})
    assert ending.kind == "raised"
    assert (error_of(ending).type, error_of(ending).message) == ("ValueError", "the reason")
    lines = error_of(ending).traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in job" in lines[1]
    assert lines[-1] == "ValueError: the reason"
    assert "attempt.py" not in error_of(ending).traceback
    assert "s3cret" not in error_of(ending).traceback.replace('password = "s3cret"', "")


def test_wrong_arguments_leave_no_frame_of_ours(run):
    ending = call_function(run, lambda: None, (1,), {})
    assert "takes 0 positional arguments but 1 was given" in error_of(ending).message
    assert "executors" not in error_of(ending).traceback


@pytest.mark.parametrize("code", [None, 0, 3, "a reason", object()])
def test_sys_exit_ends_the_run_and_nothing_else(run, code):
    ending = call_function(run, raises(SystemExit(code)), (), {})
    assert ending.kind == "raised"
    assert error_of(ending).type == "SystemExit"
    assert "the job called sys.exit(" in error_of(ending).message
    assert "return instead, or raise an exception" in error_of(ending).message


def test_keyboard_interrupt_ends_the_run_and_nothing_else(run):
    ending = call_function(run, raises(KeyboardInterrupt()), (), {})
    assert (ending.kind, error_of(ending).type) == ("raised", "KeyboardInterrupt")


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (Unprintable(), "Unprintable", "(the exception's __str__ raised SystemExit)"),
        (Strange("x"), "Exception", "x"),
        (ValueError("a\0b\ud800c"), "ValueError", "a\\x00b\\ud800c"),
        (ValueError(), "ValueError", ""),
        (GeneratorExit("x"), "GeneratorExit", "x"),
    ],
    ids=["__str__ raises", "metaclass", "unstorable characters", "silent", "no Exception"],
)
def test_a_strange_exception_still_gives_an_error(run, error, name, message):
    ending = call_function(run, raises(error), (), {})
    assert ending.kind == "raised"
    assert error_of(ending).type.rpartition(".")[2] == name
    assert error_of(ending).message == message
    error_of(ending).traceback.encode()


def test_a_huge_message_is_cut(run):
    error = describe_error(caught(raises(ValueError("x" * 10_000_000))))
    assert len(error.message) == LONGEST_MESSAGE
    assert len(error.traceback) <= LONGEST_TRACEBACK
    assert "in function" in error.traceback


def test_deep_recursion_shows_the_innermost_frames(run):
    def sinks(depth):
        if depth == 0:
            raise ValueError("at the bottom")
        sinks(depth - 1)

    error = describe_error(caught(lambda: sinks(200)))
    assert error.traceback.count("in sinks") <= 30
    assert error.traceback.endswith("ValueError: at the bottom")

    def endless():
        endless()

    assert error_of(call_function(run, endless, (), {})).type == "RecursionError"


def test_a_long_chain_of_causes_is_cut_from_its_start():
    error: BaseException | None = None
    for number in range(300):
        try:
            raise ValueError(f"number {number}") from error
        except ValueError as next_error:
            error = next_error
    assert error is not None
    text = describe_error(error).traceback
    assert len(text) <= LONGEST_TRACEBACK
    assert text.endswith("ValueError: number 299")


def test_an_exception_group_is_shown_whole(run):
    ending = call_function(run, raises(BaseExceptionGroup("two", [ValueError("a"), KeyboardInterrupt("b")])), (), {})
    assert error_of(ending).type == "BaseExceptionGroup"
    assert "ValueError: a" in error_of(ending).traceback
    assert "KeyboardInterrupt: b" in error_of(ending).traceback


def test_a_job_steers_its_own_run(run):
    skip = ending_of_error(Skip("nothing new"), run)
    assert (skip.kind, skip.reason) == ("skipped", "nothing new")
    assert ending_of_error(Skip(), run).reason is None
    cancel = ending_of_error(Cancel("enough"), run)
    assert (cancel.kind, cancel.reason) == ("cancelled", "job: enough")
    retry = ending_of_error(Retry("not yet", after="5s"), run)
    assert (retry.kind, retry.reason, retry.retry_after) == ("retry", "not yet", timedelta(seconds=5))
    assert retry.error is None


def test_control_in_a_group_of_one_counts(run):
    assert (
        ending_of_error(ExceptionGroup("from a task group", [ExceptionGroup("", [Skip("x")])]), run).kind == "skipped"
    )
    assert ending_of_error(ExceptionGroup("two", [Skip("x"), ValueError()]), run).kind == "raised"


def test_retry_keeps_what_caused_it(run):
    def job():
        try:
            raise OSError("connection refused")
        except OSError as error:
            raise Retry from error

    ending = call_function(run, job, (), {})
    assert ending.kind == "retry"
    assert (error_of(ending).type, error_of(ending).message) == ("OSError", "connection refused")


def test_retry_with_a_wrong_duration_is_an_error(run):
    ending = ending_of_error(Retry(after="soon"), run)
    assert ending.kind == "raised"
    assert "Retry(after=…)='soon'" in error_of(ending).message


def test_a_lost_lock_is_a_failure_but_a_lost_session_is_a_cancellation(run):
    assert ending_of_error(LeaseLost("lock 'reindex'"), run).kind == "raised"
    run.request_stop("lease lost", lease_lost=True)
    ending = ending_of_error(caught(run.check), run)
    assert (ending.kind, ending.reason, ending.error) == ("cancelled", "lease lost", None)


def test_after_a_request_to_stop_an_exception_is_a_cancellation_and_kept(run):
    run.request_stop("operator: too slow")
    for error in (Cancel("x"), asyncio.CancelledError()):
        ending = ending_of_error(error, run)
        assert (ending.kind, ending.reason, ending.error) == ("cancelled", "operator: too slow", None)
    ending = ending_of_error(OSError("broken pipe"), run)
    assert (ending.kind, ending.reason) == ("cancelled", "operator: too slow")
    assert isinstance(ending.error, RunError)
    assert error_of(ending).message == "broken pipe"
    assert ending_of_error(Skip("x"), run).kind == "skipped"
    assert ending_of_error(Retry("x"), run).kind == "retry"


def test_task_cancelled_from_outside_is_a_failure(run):
    ending = ending_of_error(asyncio.CancelledError(), run)
    assert ending.kind == "raised"
    assert "not by cronsensus" in error_of(ending).message


def test_clean_keeps_its_bound():
    assert clean_text("x" * 10, 10) == "x" * 10
    assert clean_text("x" * 11, 10) == "x" * 9 + "…"
