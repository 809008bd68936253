"""Whatever a job raises or returns, its attempt ends, once, and the executor goes on."""

import asyncio
import ctypes
import importlib
import sys
import threading

import pytest

from cronsensus.node.executors.attempt import call_function
from cronsensus.node.executors.loop import LoopExecutor
from cronsensus.node.executors.processes import ProcessExecutor
from cronsensus.node.executors.result import describe_error, ending_of_error, ending_of_value, stack_of
from cronsensus.node.executors.threads import ThreadExecutor
from tests.node.executors import conftest


@pytest.fixture
def nasty(jobs):
    return importlib.import_module("nasty_jobs")


def make(kind, bench, clock):
    match kind:
        case "thread":
            return ThreadExecutor(bench.done, clock)
        case "async":
            return LoopExecutor(bench.done, clock)
        case _:
            return ProcessExecutor(bench.done, clock, most=2)


@pytest.mark.parametrize("kind", ["thread", "async", "process"])
def test_whatever_a_job_raises_or_returns_its_attempt_ends(bench, clock, nasty, kind):
    executor = make(kind, bench, clock)
    function = nasty.anasty if kind == "async" else nasty.nasty
    expected = nasty.table()
    calls = {name: bench.call(function, name, executor=kind) for name in expected}
    for call in calls.values():
        executor.start(call)
    endings = {name: bench.wait(call) for name, call in calls.items()}
    found = {
        name: (ending.kind, ending.error.type.rpartition(".")[2] if ending.error else "")
        for name, ending in endings.items()
    }
    wanted = {name: (kind, error.rpartition(".")[2] or found[name][1]) for name, (kind, error) in expected.items()}
    assert found == wanted
    for name, ending in endings.items():
        error = ending.error
        for text in (ending.reason or "", *((error.type, error.message, error.traceback) if error else ())):
            assert type(text) is str, name
            text.encode()
    assert bench.run(executor, function, "returns odd text").kind == "raised"
    assert executor.abandoned_count == 0
    assert not executor._attempts.list_open()
    executor.close()


def test_the_last_net_is_under_what_describes_endings(bench, nasty):
    run = bench.call(lambda: None).run
    for make_error, *_ in nasty.RAISED.values():
        ending_of_error(make_error(), run)
        describe_error(make_error())
    for value, *_ in nasty.RETURNED.values():
        if value is not nasty._recurses and value is not nasty._breaks_its_run:
            ending_of_value(value())


def test_an_annotation_that_exists_for_type_checkers_only_does_not_hide_the_error(bench, nasty):
    ending = call_function(bench.call(lambda: None).run, nasty.OwnSignature(), (), {})
    assert ending.error is not None
    assert (ending.kind, ending.error.type, ending.error.message) == ("raised", "TypeError", "its own")
    assert not ending.permanent


def test_a_stack_whose_source_cannot_be_had_is_said_so(monkeypatch):
    def no_source(*args):
        raise SystemExit

    monkeypatch.setattr("linecache.checkcache", no_source)
    assert stack_of(threading.get_ident()) == "(the stack cannot be shown: SystemExit)"


def test_an_exception_that_is_raised_into_a_worker_ends_its_attempt_only(bench, clock, nasty):
    executor = ThreadExecutor(bench.done, clock)
    calls = [bench.call(nasty.hit_from_outside) for _ in range(50)]
    for call in calls:
        executor.start(call)
    assert {bench.wait(call).kind for call in calls} <= {"raised", "returned"}
    assert bench.run(executor, lambda: 7).result == "7"
    executor.close()


def test_a_worker_that_is_hit_while_idle_leaves_and_loses_no_call(bench, clock):
    executor = ThreadExecutor(bench.done, clock)
    for _ in range(20):
        number = int(bench.run(executor, threading.get_ident).result)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(number), ctypes.py_object(SystemError))
        assert bench.run(executor, lambda: 7).kind in {"returned", "raised"}
    assert bench.run(executor, lambda: 7).result == "7"
    executor.close()


@pytest.mark.parametrize("gives", [lambda loop, coroutine, **_: None, lambda loop, coroutine, **_: sys.exit(3)])
def test_a_task_factory_that_gives_no_task_ends_the_attempt(bench, clock, gives):
    loop = asyncio.new_event_loop()
    loop.set_task_factory(gives)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    executor = LoopExecutor(bench.done, clock, loop=loop)

    async def job():
        return 7

    assert bench.run(executor, job).kind == "raised"
    executor.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(conftest.PATIENCE)
    loop.close()


def test_a_module_that_raises_when_looked_into_ends_the_attempt(bench, clock, nasty, monkeypatch):
    executor = ProcessExecutor(bench.done, clock)
    function = nasty.hit_from_outside

    class Module:
        def __getattr__(self, name):
            raise SystemExit(name)

    monkeypatch.setitem(sys.modules, function.__module__, Module())
    ending = bench.run(executor, function)
    assert (ending.kind, ending.error.type) == ("raised", "SystemExit")
    executor.close()
