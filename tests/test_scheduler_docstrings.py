"""The examples in the docstrings of what users touch are run, and each class has one."""

import doctest
import importlib

import pytest

import cronsensus

MODULES = (
    "cronsensus",
    "cronsensus.jobs.calls",
    "cronsensus.config",
    "cronsensus.jobs.handle",
    "cronsensus.jobs.job",
    "cronsensus.model.job",
    "cronsensus.node.run",
    "cronsensus.run",
    "cronsensus.jobs.enqueuing",
    "cronsensus.jobs.runs",
    "cronsensus.scheduler",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_do_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = doctest.testmod(importlib.import_module(name))
    assert (done.failed, done.attempted > 0) == (0, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["Handle", "Job", "JobDefaults", "Run", "Scheduler"])
def test_each_class_that_users_make_or_get_has_an_example(name):
    assert ">>> " in (getattr(cronsensus, name).__doc__ or "")
