"""Writes down what each test took, as a plugin: ``scripts/durations`` asks for it."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

TIMES = "TIMES_OF_TESTS"
"""The variable with the path of the file to write to: the file of a test, its seconds, its processor seconds."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = os.times()
    done = yield
    took = [now - then for now, then in zip(os.times(), before, strict=True)]
    line = f"{item.nodeid.partition('::')[0]} {took[4]:.3f} {sum(took[:4]):.3f}\n"
    with Path(os.environ[TIMES]).open("a", encoding="utf-8") as times:
        times.write(line)
    return done
