"""The front door: what it exports, and what importing it costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import cronsensus

SOURCE = Path(cronsensus.__file__)


def test_the_list_of_exports_is_sorted_and_each_of_them_is_there():
    assert sorted(cronsensus.__all__) == cronsensus.__all__
    assert {name for name in cronsensus.__all__ if getattr(cronsensus, name, None) is None} == set()
    assert set(cronsensus.__all__) <= set(dir(cronsensus))


def test_type_checkers_and_the_interpreter_see_the_same_names_in_the_same_places():
    tree = ast.parse(SOURCE.read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert set(seen) | {"__version__"} == set(cronsensus.__all__)
    for name, module in seen.items():
        assert module is not None
        assert getattr(importlib.import_module(module), name) is getattr(cronsensus, name)
        assert module.removeprefix("cronsensus.") == cronsensus._MODULE_OF.get(name, "errors")


def test_an_error_that_is_not_exported_is_led_to_its_module():
    assert "InvalidOption" not in cronsensus.__all__
    with pytest.raises(AttributeError, match=r"write from cronsensus\.errors import InvalidOption"):
        cronsensus.InvalidOption  # noqa: B018


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Schedular'"):
        cronsensus.Schedular  # noqa: B018


def test_importing_loads_nothing_and_starts_nothing():
    program = (
        "import sys, threading, cronsensus\n"
        "print(threading.active_count(), sorted(name for name in sys.modules if name.startswith('cronsensus.')),\n"
        "      {'asyncio', 'sqlalchemy', 'psutil', 'logging'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1 [] set()\n"


def test_the_usual_import_leaves_the_heavy_libraries_for_later():
    program = (
        "import sys; from cronsensus import Scheduler, cron, every, at, Run, JobDefaults\n"
        "print({'asyncio', 'sqlalchemy', 'psutil', 'rich', 'click'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
