"""What is in which tier of the tests."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tiers import LONG, is_long, is_long_file, read_durations

ROOT = Path(__file__).parent.parent
LONGEST_SLEEP = 0.2
"""Seconds below which a sleep is no wait: it makes a race wider, or is the period of a poll."""

MAY_SLEEP = {
    "tests/chaos/chaos_jobs.py": "jobs of nodes that are killed meanwhile",
    "tests/integrations/guarded_app.py": "jobs of processes that are killed meanwhile",
    "tests/upgrade/upgrade_jobs.py": "jobs of nodes that are killed meanwhile",
    "tests/metrics/test_in_prometheus.py": "what Prometheus is to find missed is real time",
    "tests/node/test_node.py": "a job that blocks its event loop for longer than a real lease",
    "tests/testing/shop.py": "a sleep of virtual time, which takes none",
    "tests/testing/test_kit.py": "the same",
    "tests/testing/test_async_kit.py": "the same",
    "tests/testing/test_kit_locks.py": "the same",
    "tests/testing/test_kit_trouble.py": "the same",
    "tests/test_recipes.py": "what the recipe tells of is real time that nobody ran",
}
"""Files of the short tier that sleep, and why nothing can be waited for instead."""

MOST = 8.0
"""Seconds of a processor that one file may take of every commit's tests."""

MAY_TAKE_LONGER = {
    "tests/test_recipes.py": "starts the programs of twenty recipes",
    "tests/test_scheduler.py": "starts forty programs, each of which ends in another way",
    "tests/after/test_dependencies.py": "schedules of each second on real nodes, some of which are killed",
    "tests/integrations/test_django.py": "a project of Django's, whose commands are fifty processes",
    "tests/stores/test_mysql.py": "the suite of stores",
    "tests/stores/test_postgres.py": "the suite of stores",
    "tests/stores/test_redis.py": "the suite of stores",
    "tests/stores/test_sqlite.py": "the suite of stores",
    "tests/simulation/test_simulation.py": "fifty nights, and all past seeds",
    "tests/simulation/test_ablations.py": "nights without each safeguard",
    "tests/simulation/test_batch_nights.py": "ten nights of three kinds",
    "tests/simulation/test_diamond_nights.py": "the same",
}


def test_long_tier_names_files_that_exist():
    files = {pattern.split("::")[0].split("[[]")[0] for pattern, _ in LONG} - {"*40ms*"}
    assert not [file for file in files if not any(ROOT.glob(file))]


def test_long_tier_takes_by_path_and_by_parameter():
    assert is_long("tests/lock/test_lock.py::test_waiter_acquires_after_the_release[mysql-0ms]")
    assert not is_long("tests/lock/test_lock.py::test_waiter_acquires_after_the_release[postgres-0ms]")
    assert is_long("tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[125]")
    assert not is_long("tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[25]")


def test_file_with_a_test_of_the_short_tier_is_collected():
    assert is_long_file("tests/faults/test_full.py")
    assert not is_long_file("tests/lock/test_lock.py")
    assert not is_long_file("tests/stores/test_postgres.py")


def sleeps(path: Path) -> Iterator[str]:
    """Yield where a file sleeps for so many seconds, written out; programs that it starts are texts, and not read."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if re.search(r"sleep\(\d", text) else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "sleep" and node.args:
            wait = node.args[0]
            if isinstance(wait, ast.Constant) and isinstance(wait.value, int | float) and wait.value >= LONGEST_SLEEP:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_nothing_in_the_short_tier_sleeps_to_wait():
    files = [path for path in (ROOT / "tests").rglob("*.py") if not is_long_file(path.relative_to(ROOT).as_posix())]
    found = [call for path in files for call in sleeps(path)]
    wrong = [call for call in found if call.partition(":")[0] not in MAY_SLEEP]
    assert not wrong, f"wait for the event itself, or move a ManualClock: {wrong}"
    assert {call.partition(":")[0] for call in found} == MAY_SLEEP.keys(), "a file in MAY_SLEEP sleeps no more"


def test_no_file_of_the_short_tier_takes_long():
    slow = {file: took.processor for file, took in read_durations().items() if took.processor > MOST}
    wrong = slow.keys() - MAY_TAKE_LONGER.keys()
    assert not wrong, (
        f"share set-up, or move a second kind of store into LONG; then scripts/durations {' '.join(wrong)}"
    )


def test_durations_are_of_files_that_exist():
    assert not [file for file in read_durations() if not (ROOT / file).exists()], "run scripts/durations on its folder"
