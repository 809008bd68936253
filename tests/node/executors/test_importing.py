import functools
import json
import subprocess
import sys

import pytest

from cronsensus.errors import UnsupportedFunction
from cronsensus.node.executors.importing import in_child_process, load_function, locate_function, require_importable


class Methods:
    def method(self):
        pass

    @staticmethod
    def static():
        pass

    def __call__(self):
        pass


def nested():
    def inner():
        pass

    return inner


a_lambda = lambda: None  # noqa: E731


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            a_lambda,
            r"test_importing\.<lambda> \(test_importing\.py:\d+\) is a lambda, .* `def job\(\): …` at the top level",
        ),
        (
            nested(),
            r"inner \(test_importing\.py:\d+\) is defined inside nested\(\), .* pass what it needs as arguments",
        ),
        (Methods().method, r"Methods\.method .* is a method, and its object exists in this process only"),
        (Methods.method, r"is defined in a class; write a function at the top level"),
        (Methods.static, r"is defined in a class"),
        (Methods(), r"is not a function written in Python, .* wrap it"),
        (Methods, r"is a class, .* wrap it"),
        (len, r"len is not a function written in Python"),
        ([].append, r"is not a function written in Python"),
        (json.JSONDecoder().decode, r"is a method"),
        (functools.partial(nested), r"is a functools\.partial, .* pass the arguments with the job"),
    ],
    ids=[
        "lambda",
        "nested",
        "method",
        "in class",
        "static",
        "callable",
        "class",
        "builtin",
        "c method",
        "bound",
        "partial",
    ],
)
def test_what_no_other_process_can_import_is_refused_with_what_to_type_instead(function, words):
    with pytest.raises(UnsupportedFunction, match=words) as refused:
        require_importable(function)
    assert 'or use executor="thread"' in str(refused.value)


def test_a_function_at_the_top_level_is_fine(jobs):
    require_importable(jobs.add)
    assert load_function(locate_function(jobs.add)) is jobs.add


def test_a_decorators_wrapping_is_looked_through(jobs):
    function = jobs.wrapped_job.function
    target = locate_function(function)
    assert (target.module, target.qualname, target.steps) == ("executor_jobs", "wrapped_job", ("function",))
    assert load_function(target) is function
    inner = jobs.wrapped_twice.function.__wrapped__
    assert locate_function(inner).steps == ("function", "__wrapped__")
    assert load_function(locate_function(inner)) is inner


def test_a_name_that_stands_for_something_else_by_now_is_refused(jobs):
    require_importable(jobs.first_shadowed)
    with pytest.raises(
        UnsupportedFunction, match=r"another process would import the wrong thing; give the function a name"
    ):
        locate_function(jobs.first_shadowed)


def test_this_is_no_child():
    assert not in_child_process()


def test_what_is_typed_into_a_session_is_refused():
    program = """
from cronsensus.errors import UnsupportedFunction
from cronsensus.node.executors.importing import require_importable
def job(): pass
try:
    require_importable(job)
except UnsupportedFunction as error:
    print(error)
"""
    for command in (["-c", program], ["-"]):
        ran = subprocess.run([sys.executable, *command], input=program, capture_output=True, text=True, check=True)
        assert "__main__.job" in ran.stdout
        assert "was typed into an interactive session (or python -c), which another process cannot import" in ran.stdout
