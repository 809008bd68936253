import contextlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from msgspec import structs

from cronsensus.membership.timer import Timer
from cronsensus.model.batch import item_key
from cronsensus.node.executors import child_process
from cronsensus.node.executors.logs import LONGEST_LINE, MOST_LINES
from cronsensus.node.executors.processes import ProcessExecutor

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def shared():
    """One executor for all tests that leave its children alive: each start of a child costs a tenth of a second."""
    from cronsensus.timing.clock import SystemClock

    benches: dict[tuple[int, int], Any] = {}
    executor = ProcessExecutor(
        lambda call, ending: benches[call.claim.id, call.claim.token](call, ending), SystemClock(), most=1
    )
    executor.benches = benches  # type: ignore[attr-defined]
    yield executor
    executor.close()


@pytest.fixture
def run(bench, shared, jobs):
    """Run a function in the shared child."""

    def run(function, *args, **options):
        call = bench.call(function, *args, **options)
        shared.benches[call.claim.id, call.claim.token] = bench.done
        shared.start(call)
        return bench.wait(call)

    return run


@pytest.fixture
def executor(bench, clock, jobs):
    executor = ProcessExecutor(bench.done, clock, most=2, grace=10)
    yield executor
    pids = children_of(executor)
    executor.close()
    assert all(bench.is_gone(pid) for pid in pids)


def children_of(executor):
    """Return the process ids of the children that live."""
    return [child._process.pid for child in tuple(executor._children) if child._lives]


def pids_of(bench):
    """Return the process ids that the job printed: its own and that of what it started."""
    line = bench.wait_for_line(lambda line: line.text.startswith("pids "))
    return [int(word) for word in line.text.split()[1:]]


def test_a_function_runs_in_another_process_of_its_own_group(run, jobs):
    ending = run(jobs.whoami)
    pid, parent, group = map(int, ending.result.strip("[]").split(","))
    assert pid != os.getpid()
    assert parent == os.getpid()
    assert group == pid


def test_arguments_and_values_travel_as_json(run, jobs):
    assert run(jobs.add, [1, None, "é\n"], [2.5, {"a": True}]).result == '[1,null,"é\\n",2.5,{"a":true}]'
    assert run(jobs.add, a=1, b=2).result == "3"
    assert run(jobs.length, "é" * 100_000).result == "100000"
    assert run(jobs.add, "x" * 120_000, "y" * 120_000).result == '"' + "x" * 120_000 + "y" * 120_000 + '"'


def test_a_child_is_used_again(run, jobs):
    assert len({run(jobs.whoami).result for _ in range(5)}) == 1


def test_the_run_is_there_too(run, bench, jobs):
    ending = run(jobs.about, run_parameter="run")
    number = next(iter(bench.ends))[0]
    assert msgspec.json.decode(ending.result) == {
        "current": True,
        "scheduled_for": "2026-11-20 21:00:00+00:00",
        "attempt": 2,
        "token": 7000 + number,
        "key": f"key:{number}",
        "id": number,
        "job": "job",
        "origin": "enqueue",
    }


def test_an_item_knows_its_batch_and_its_shard_there_too(bench, shared, jobs):
    """Without them each of eight shards did the work of all."""
    call = bench.call(jobs.shard, run_parameter="run")
    call = structs.replace(call, claim=structs.replace(call.claim, key=item_key(7, "3/8"), parent=7))
    shared.benches[call.claim.id, call.claim.token] = bench.done
    shared.start(call)
    assert bench.wait(call).result == "[7,3,8]"


def test_what_a_job_says_arrives_with_its_run(run, bench, jobs):
    assert run(jobs.talk, run_parameter="run").kind == "returned"
    assert bench.progress == [(40.0, 100.0)]
    assert sorted(bench.texts("stdout")) == ["from below", "no end of line", "printed"]
    assert bench.texts("stderr") == ["complained"]
    assert bench.texts("WARNING") == ["logged 1\\ud800"]


def test_what_a_job_prints_is_printed_by_its_node_as_well(run, jobs, capfd):
    run(jobs.talk, run_parameter="run")
    printed = capfd.readouterr()
    assert sorted(printed.out.splitlines()) == ["from below", "no end of line", "printed"]
    assert "complained" in printed.err.splitlines()


def test_a_node_whose_output_nobody_reads_still_ends_a_job_that_is_over_its_time(run, jobs, monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        ending = run(jobs.print_for_ever, timeout=1.0)
        monkeypatch.undo()
    os.close(reading)
    assert ending.kind == "timed_out"


def test_a_flood_of_output_is_bounded(run, bench, jobs):
    run(jobs.chatter, 5000)
    assert bench.texts("stdout") == [str(number) for number in range(MOST_LINES)]
    assert bench.texts("WARNING") == ["cronsensus keeps 1,000 lines of a run; the rest is dropped"]
    bench.lines.clear()
    run(jobs.long_line)
    assert bench.texts("stdout") == ["x" * LONGEST_LINE, "after"]


def test_a_flood_of_progress_is_thinned_and_its_last_word_arrives(run, bench, jobs):
    run(jobs.hurry, 20_000, run_parameter="run")
    assert bench.progress[-1] == (20_000.0, 20_000.0)
    assert len(bench.progress) < 100


def test_imports_directory_and_environment_are_the_nodes(run, jobs, monkeypatch):
    ending = run(jobs.surroundings)
    told = msgspec.json.decode(ending.result)
    assert told["cwd"] == str(Path.cwd())
    assert str(HERE) in told["path"]
    assert told["pythonpath"] == os.environ.get("PYTHONPATH")
    assert told["stdin"] == ""


def test_decorators_are_looked_through(run, jobs):
    assert run(jobs.wrapped_job.function, 2).result == "4"
    assert run(jobs.wrapped_twice.function, 2).result == '["wrapped",6]'
    assert run(jobs.wrapped_twice.function.__wrapped__, 2).result == "6"


def test_an_async_function_gets_a_loop_there(run, jobs):
    assert run(jobs.async_add, 1, 2).result == "3"


def test_an_exception_tells_where_without_local_variables(run, jobs):
    ending = run(jobs.fails)
    assert (ending.kind, ending.error.type, ending.error.message) == ("raised", "ValueError", "the reason")
    assert ending.error.traceback.splitlines()[1].endswith("in fails")
    assert "node/executors/child.py" not in ending.error.traceback


@pytest.mark.parametrize(
    ("what", "kind", "reason"),
    [("skip", "skipped", "empty"), ("retry", "retry", "not yet"), ("cancel", "cancelled", "job: enough")],
)
def test_a_job_steers_its_own_run(run, jobs, what, kind, reason):
    ending = run(jobs.controls, what)
    assert (ending.kind, ending.reason) == (kind, reason)
    assert (ending.retry_after is not None) == (what == "retry")


def test_what_goes_wrong_in_a_call_leaves_the_child_to_the_next(run, jobs):
    pid = run(jobs.whoami).result
    assert "the job called sys.exit(3)" in run(jobs.leaves, 3).error.message
    assert run(jobs.recurses).error.type == "RecursionError"
    assert "a set, which is not JSON" in run(jobs.not_json).error.message
    assert "more than the 262,144 that a store keeps" in run(jobs.large).error.message
    assert "takes 0 positional arguments" in run(jobs.whoami, 1).error.message
    assert run(jobs.whoami).result == pid


def test_a_job_that_forks_ends_once(run, jobs):
    assert run(jobs.forks).result == '"from the first"'


def test_a_background_process_does_not_hold_up_the_end(run, jobs):
    assert run(jobs.background_print).kind == "returned"


def test_a_function_that_cannot_be_imported_is_a_failure_of_the_run(run, jobs):
    assert run(lambda: None).error.type == "UnsupportedFunction"
    assert "is a lambda" in run(lambda: None).error.message
    assert "would import the wrong thing" in run(jobs.first_shadowed).error.message


def test_a_module_that_fails_only_in_the_child_is_a_failure_of_the_run(run, tmp_path, monkeypatch):
    tmp_path.joinpath("fickle_jobs.py").write_text(
        "from cronsensus.node.executors.importing import in_child_process\n"
        "if in_child_process(): raise ImportError('not twice')\n"
        "def job(): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import fickle_jobs  # type: ignore[import-not-found]

    ending = run(fickle_jobs.job)
    assert (ending.kind, ending.error.type, ending.error.message) == ("raised", "ImportError", "not twice")
    assert "import_module" not in ending.error.traceback
    sys.modules.pop("fickle_jobs")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "the job's process ended with exit code 3 in the middle of the run (os._exit"),
        ("SIGSEGV", "the job's process was killed by SIGSEGV (a segmentation fault: a bug in an extension module"),
        ("SIGKILL", "the job's process was killed by SIGKILL (by an operator, or by the kernel because memory ran out"),
        ("SIGUSR1", "the job's process was killed by SIGUSR1"),
    ],
)
def test_a_child_that_dies_is_a_failure_in_words_and_the_next_call_is_served(bench, executor, jobs, how, words):
    ending = bench.run(executor, jobs.dies, how)
    assert (ending.kind, ending.error.type) == ("raised", "ProcessDied")
    assert ending.error.message.startswith(words)
    assert "last words" in ending.error.traceback
    if how == "SIGSEGV":
        assert "in dies" in ending.error.traceback  # the fault handler's stack
    assert bench.run(executor, jobs.add, 1, 2).result == "3"


def test_nonsense_from_a_child_ends_it(bench, executor, jobs):
    ending = bench.run(executor, jobs.nonsense)
    assert (ending.kind, ending.error.type) == ("raised", "ProcessBroken")
    ending = bench.run(executor, jobs.closes_everything)
    assert (ending.kind, ending.error.type) == ("raised", "ProcessDied")
    assert bench.run(executor, jobs.add, 1, 2).result == "3"


def test_timeout_ends_the_process_and_all_that_it_started(bench, clock, watch, jobs):
    executor = ProcessExecutor(bench.done, clock, watch.timer, grace=10)
    call = bench.call(jobs.waits, timeout=0.5)
    executor.start(call)
    pids = pids_of(bench)
    watch.let_pass(0.5)
    ending = bench.wait(call)
    assert ending.kind == "timed_out"
    assert ending.error.message == "the attempt ran longer than timeout=500ms"
    assert "in waits" in ending.error.traceback
    assert call.run.cancelled.is_set()
    for pid in pids:
        bench.until(lambda pid=pid: bench.is_gone(pid), "its death")
    executor.close()


def test_stop_ends_the_process_even_one_that_ignores_it(bench, clock, jobs):
    executor = ProcessExecutor(bench.done, clock, grace=0.3)
    call = bench.call(jobs.waits_stubbornly)
    executor.start(call)
    pids = pids_of(bench)
    begun = time.monotonic()
    executor.stop(call, "operator: enough")
    ending = bench.wait(call)
    assert (ending.kind, ending.reason, ending.error) == ("cancelled", "operator: enough", None)
    assert time.monotonic() - begun >= 0.3
    for pid in pids:
        bench.until(lambda pid=pid: bench.is_gone(pid), "its death")
    assert bench.run(executor, jobs.add, 1, 2).result == "3"
    executor.close()


def test_a_process_that_hangs_in_the_kernel_holds_up_nothing(bench, clock, jobs, monkeypatch):
    executor = ProcessExecutor(bench.done, clock, most=1, grace=0.05)
    call = bench.call(jobs.waits_stubbornly)
    executor.start(call)
    pids_of(bench)
    process = executor._children[0]._process
    monkeypatch.setattr(process, "send_signal", lambda number: None)  # nothing comes through to it
    executor.stop(call, "operator: enough")
    assert bench.wait(call).kind == "cancelled"
    assert bench.run(executor, jobs.add, 1, 2).result == "3"
    executor.close()
    os.killpg(process.pid, signal.SIGKILL)
    process._process.wait()


def test_a_stopped_job_cleans_up_and_knows_why(bench, executor, jobs, tmp_path):
    call = bench.call(jobs.waits_and_cleans_up, path=str(tmp_path / "note"), run_parameter="run")
    executor.start(call)
    bench.wait_for_line(lambda line: line.text == "waiting")
    executor.stop(call, "lease lost", lease_lost=True)
    ending = bench.wait(call)
    assert (ending.kind, ending.reason, ending.error) == ("cancelled", "lease lost", None)
    assert (tmp_path / "note").read_text() == "lost=True lease lost"
    assert call.run.lease_lost.is_set()


def test_a_stopped_async_job_cleans_up(bench, executor, jobs, tmp_path):
    call = bench.call(jobs.waits_on_a_loop, path=str(tmp_path / "note"), run_parameter="run")
    executor.start(call)
    bench.wait_for_line(lambda line: line.text == "waiting True")
    executor.stop(call, "operator")
    assert bench.wait(call).kind == "cancelled"
    assert (tmp_path / "note").read_text() == "cleaned up"


def test_sigterm_to_the_process_group_leaves_the_decision_to_the_node(bench, executor, jobs, tmp_path):
    call = bench.call(jobs.waits_for_file, str(tmp_path / "go"))
    executor.start(call)
    bench.wait_for_line(lambda line: line.text == "waiting")
    os.kill(children_of(executor)[0], signal.SIGTERM)
    (tmp_path / "go").touch()
    assert bench.wait(call).result == '"found"'


def test_calls_beyond_the_limit_wait_and_their_time_runs(bench, clock, jobs, tmp_path):
    executor = ProcessExecutor(bench.done, clock, most=1)
    first = bench.call(jobs.waits_for_file, str(tmp_path / "go"))
    late = bench.call(jobs.add, 1, 2, timeout=0.02)
    stopped, served = bench.call(jobs.add, 1, 2), bench.call(jobs.add, 3, 4)
    for call in (first, late, stopped, served):
        executor.start(call)
    executor.stop(stopped, "operator")
    assert bench.wait(stopped).reason == "operator (before it began)"
    ending = bench.wait(late)
    assert ending.kind == "timed_out"
    assert "it was still waiting for one of 1 processes" in ending.error.message
    (tmp_path / "go").touch()
    assert bench.wait(first).result == '"found"'
    assert bench.wait(served).result == "7"
    assert len(children_of(executor)) == 1
    executor.close()


def test_calls_run_side_by_side(bench, executor, jobs, tmp_path):
    calls = [bench.call(jobs.waits_for_file, str(tmp_path / name)) for name in "ab"]
    for call in calls:
        executor.start(call)
    bench.until(lambda: len(bench.texts("stdout")) == 2, "both")
    assert len(children_of(executor)) == 2
    for name in "ba":
        (tmp_path / name).touch()
    assert {bench.wait(call).kind for call in calls} == {"returned"}


def test_end_timeout_stop_and_death_at_the_same_moment_give_one_report(bench, clock, jobs):
    executor = ProcessExecutor(bench.done, clock, Timer(clock), most=4)
    dice = random.Random(3)
    calls = [
        bench.call(jobs.add, 1, 2, timeout=0.2 * dice.random() + 0.01 if number % 3 else None) for number in range(60)
    ]
    threads = []
    for call in calls:
        executor.start(call)
        roll = dice.random()
        if roll < 0.3:
            threads.append(threading.Timer(0.3 * dice.random(), executor.stop, (call, "operator")))
            threads[-1].start()
        elif roll < 0.4 and children_of(executor):
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(dice.choice(children_of(executor)), signal.SIGKILL)
    kinds = {bench.wait(call).kind for call in calls}
    for thread in threads:
        thread.join()
    assert kinds <= {"returned", "timed_out", "cancelled", "raised"}
    assert bench.run(executor, jobs.add, 1, 2).result == "3"
    executor.close()
    executor._attempts.timer.close()


def test_close_while_running_reports_nothing_and_leaves_nothing_behind(bench, clock, jobs):
    me = psutil.Process()
    descriptors, threads = me.num_fds(), threading.active_count()
    executor = ProcessExecutor(bench.done, clock, most=2, grace=0.3)
    bench.run(executor, jobs.add, 1, 2)
    call = bench.call(jobs.waits)
    executor.start(call)
    pids = pids_of(bench) + children_of(executor)
    executor.close()
    executor.close()
    assert bench.of(call) == []
    assert call.run.cancelled.is_set()
    for pid in pids:
        bench.until(lambda pid=pid: bench.is_gone(pid), "its death")
    assert (me.num_fds(), threading.active_count()) == (descriptors, threads)
    with pytest.raises(RuntimeError, match="closed"):
        executor.start(bench.call(jobs.add, 1, 2))


def test_a_job_does_not_find_what_the_job_before_changed_about_the_process(bench, executor, jobs, tmp_path):
    before = bench.run(executor, jobs.traces).result
    assert bench.run(executor, jobs.leaves_traces, str(tmp_path)).kind == "returned"
    assert bench.run(executor, jobs.traces).result == before


def test_many_deaths_leak_no_descriptor(bench, executor, jobs):
    bench.run(executor, jobs.dies, "exit")
    before = psutil.Process().num_fds()
    for _ in range(3):
        bench.run(executor, jobs.dies, "SIGKILL")
        bench.run(executor, jobs.waits, timeout=0.01)
    assert psutil.Process().num_fds() == before
    assert children_of(executor) == []


def test_an_idle_child_leaves_after_a_while_in_an_orderly_way(bench, executor, jobs, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.child_thread.IDLE_SECONDS", 0.05)
    threads = threading.active_count()
    bench.run(executor, jobs.in_the_background)
    bench.until(lambda: not children_of(executor), "its leaving")
    bench.until(lambda: threading.active_count() <= threads, "the end of its thread")
    assert bench.run(executor, jobs.add, 1, 2).result == "3"


def test_without_process_descriptors_death_is_found_by_looking(bench, executor, jobs, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.child_process.POLL_SECONDS", 0.02)
    monkeypatch.setattr(child_process, "_watch_death", lambda pid: -1)
    assert bench.run(executor, jobs.dies, "SIGKILL").error.type == "ProcessDied"
    assert bench.run(executor, jobs.waits, timeout=0.2).kind == "timed_out"
    assert bench.run(executor, jobs.add, 1, 2).result == "3"


def test_an_application_that_reaps_all_children_is_no_trouble(bench, executor, jobs, monkeypatch):
    bench.run(executor, jobs.add, 1, 2)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ending = bench.run(executor, jobs.dies, "exit")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert ending.error.type == "ProcessDied"


def test_no_process_to_be_had_is_a_failure_of_the_run(bench, clock, jobs, tmp_path):
    executor = ProcessExecutor(bench.done, clock, python=str(tmp_path / "no-python"))
    ending = bench.run(executor, jobs.add, 1, 2)
    assert ending.kind == "raised"
    assert "the node cannot start a process for the job: FileNotFoundError" in ending.error.message
    executor.close()


def test_no_thread_to_be_had_is_a_failure_of_each_run_that_needs_one(bench, clock, jobs, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    executor = ProcessExecutor(bench.done, clock, most=1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(2):
            ending = bench.run(executor, jobs.add, 1, 2)
            assert "the node cannot start a process for the job: RuntimeError: can't start" in ending.error.message
    assert bench.run(executor, jobs.add, 1, 2).result == "3"
    executor.close()


def test_an_interpreter_without_our_package_is_told_in_its_own_words(bench, clock, jobs, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no such module' >&2\nexit 1\n")
    program.chmod(0o755)
    executor = ProcessExecutor(bench.done, clock, python=str(program))
    ending = bench.run(executor, jobs.add, 1, 2)
    assert "exit code 1" in ending.error.message
    assert ending.error.traceback == "no such module"
    executor.close()
