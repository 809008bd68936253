"""Where the ``Run`` stands among the arguments of a call."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cronsensus.node.executors.base import with_run

RUN: Any = SimpleNamespace()


@pytest.mark.parametrize(
    ("parameter", "before", "args", "kwargs", "expected"),
    [
        pytest.param(None, sys.maxsize, (1,), {"a": 2}, ((1,), {"a": 2}), id="not wanted"),
        pytest.param("run", 0, (1,), {}, ((RUN, 1), {}), id="before what goes by position"),
        pytest.param("run", 1, (1, 2), {}, ((1, RUN, 2), {}), id="between"),
        pytest.param("run", 1, (1,), {"b": 2}, ((1,), {"b": 2, "run": RUN}), id="behind all that goes by position"),
        pytest.param("run", 0, (), {"a": 1}, ((), {"a": 1, "run": RUN}), id="everything by name"),
        pytest.param("run", sys.maxsize, (1, 2, 3), {}, ((1, 2, 3), {"run": RUN}), id="by name alone"),
    ],
)
def test_the_run_is_where_the_function_wants_it(
    parameter: str | None, before: int, args: tuple[Any, ...], kwargs: dict[str, Any], expected: object
):
    assert with_run(RUN, parameter, before, args, kwargs) == expected
