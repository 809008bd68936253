"""The program itself, as a process: a node that runs, drains and logs; exit codes; pipes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

JOBS = """
import logging
from cronsensus import Scheduler, every
scheduler = Scheduler("sqlite:///jobs.db")
log = logging.getLogger("shop")
@scheduler.job(every("200ms"), timeout="10s")
def tick():
    log.info("tick \\x1b[31mred")
"""
URL = "sqlite:///jobs.db"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}


def program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cronsensus", *arguments],
        capture_output=True, text=True, timeout=100, check=False, env=environment(), **options,
    )  # fmt: skip


@pytest.fixture
def start(empty_folder: Path, write: Callable[..., Any]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start nodes of an application in a folder of its own; none outlives the test."""
    write("jobs.py", JOBS)
    started: list[subprocess.Popen[str]] = []

    def start_node(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "cronsensus", "run", *arguments],
            cwd=empty_folder, env=environment(), text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield start_node
    for process in started:
        process.kill()
        process.communicate()


def read_rest(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.read()


def read_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"no {wanted!r} in: {''.join(lines)}")


def test_a_line_of_the_json_log_about_a_run_says_which(start: Any, write: Callable[..., Any]) -> None:
    write("jobs.py", JOBS + "    raise ValueError('no such shop')\n")
    node = start("--log-format", "json")
    line = json.loads(read_until(node, "no such shop")[-1])
    assert (line["level"], line["logger"], line["job"], line["attempt"]) == ("error", "cronsensus.runs", "tick", 1)
    assert line["run"] >= 1
    assert line["key"].startswith("@")


def test_a_node_that_cannot_open_its_store_does_not_look_as_if_it_ran(start: Any, write: Callable[..., Any]) -> None:
    write("jobs.py", JOBS.replace("sqlite:///jobs.db", "sqlite:////no/such/folder/jobs.db"))
    node = start()
    said = node.communicate(timeout=100)[1]
    assert node.returncode == 3
    assert "mkdir -p" in said
    assert "Ctrl-C drains" not in said


def test_a_node_greets_runs_and_drains(start: Any, command: Callable[..., Any]) -> None:
    node = start("--node", "web-1", "--concurrency", "3")
    lines = "".join(read_until(node, "tick"))
    assert "using jobs:scheduler (found in jobs.py)" in lines
    assert f"jobs:scheduler: node web-1, store sqlite:///jobs.db ({Path.cwd()}/jobs.db), new, 1 job\n" in lines
    assert "no other node is alive: start more, anywhere" in lines
    assert "Ctrl-C drains" in lines
    assert re.search(r"shop \[tick \d+ #1\]: tick \\x1b\[31mred", "".join(read_until(node, "shop")))
    health = command("health", "--node", "web-1", "--url", URL)
    assert (health.code, health.out) == (0, "ok: the store answers, 1 live node\n")
    listed = command("nodes", "list", "-o", "json", "--url", URL).data
    assert [(one["node"], one["concurrency"]) for one in listed["nodes"]] == [("web-1", 3)]
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=100)
    assert node.returncode == 0
    assert command("health", "--url", URL).code == 1
    audited = command("audit", "-o", "json", "--url", URL)
    assert audited.code == 0
    assert audited.data["duplicates"] == 0


def test_a_node_whose_port_for_the_dashboard_is_taken_runs_without_it(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        node = start("jobs:scheduler", "--dashboard", port)
        said = "".join(read_until(node, "shop"))
    assert f"no dashboard: cannot listen on 127.0.0.1:{port}; the node runs without it" in said


def test_json_log_lines_carry_the_run(start: Any) -> None:
    node = start("jobs:scheduler", "--log-format", "json", "--log-level", "INFO")
    lines = [json.loads(line) for line in read_until(node, '"logger": "shop"') if line.startswith("{")]
    record = lines[-1]
    assert record["message"] == "tick \x1b[31mred"
    assert record["time"].endswith("Z")
    assert (record["job"], record["attempt"], record["level"]) == ("tick", 1, "info")
    assert {"run", "key", "token", "node"} <= record.keys()


def test_a_node_waits_for_its_store_as_long_as_it_is_told_to(start, empty_folder: Path) -> None:
    away = ("jobs:scheduler", "--url", "sqlite:///later/jobs.db")
    assert start(*away).wait(60) == 3
    assert start(*away, "--wait=300ms").wait(60) == 3

    node = start(*away, "--wait")
    read_until(node, "the store is not there yet")
    (empty_folder / "later").mkdir()
    read_until(node, "taking part")

    stopped = start("jobs:scheduler", "--url", "sqlite:///never/jobs.db", "--wait")
    read_until(stopped, "trying again until it is")
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(60) == 0
    assert "stopped before it took part" in read_rest(stopped)


def test_ctrl_c_drains_a_node(start: Any) -> None:
    node = start()
    read_until(node, "shop")
    node.send_signal(signal.SIGINT)
    _, err = node.communicate(timeout=100)
    assert node.returncode == 0
    assert "Traceback" not in err


def test_an_operator_pauses_a_running_job_and_drains_its_node(start: Any, command: Callable[..., Any]) -> None:
    node = start("--node", "web-1")
    read_until(node, "shop")
    assert command("jobs", "pause", "tick", "--reason", "x", "--app", "jobs:scheduler").code == 0
    listed = command("jobs", "list", "-o", "json", "--url", URL).data
    assert listed["jobs"][0]["paused"]["reason"] == "x"
    assert command("nodes", "drain", "web-1", "--url", URL).code == 0
    node.communicate(timeout=100)
    assert node.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["next", "@daily"], 0),
        (["health", "--url", "memory://"], 1),
        (["nope"], 2),
        (["run", "no_such_module:x"], 2),
        (["jobs", "list", "--url", "sqlite:///none.db"], 3),
    ],
)
def test_exit_codes_reach_the_shell(empty_folder: Path, arguments: list[str], code: int) -> None:
    done = program(*arguments, cwd=empty_folder)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_the_installed_command_is_the_same_program(empty_folder: Path) -> None:
    command = Path(sys.executable).parent / "cronsensus"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == program("--version", cwd=empty_folder).stdout


def test_help_imports_nothing_that_takes_time(empty_folder: Path) -> None:
    """How long it takes is for the bench to say; what it must not wait for is known."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cronsensus", "--help"],
        capture_output=True, text=True, timeout=100, check=True, cwd=empty_folder,
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    heavy = {
        "sqlalchemy",
        "psutil",
        "msgspec",
        "cronsim",
        "asyncio",
        "rich",
        "cronsensus.scheduler",
        "cronsensus.node.node",
    }
    assert imported & heavy == set()


@pytest.mark.parametrize("in_container", [False, True])
def test_sigterm_ends_a_node_that_still_imports_its_application(
    empty_folder: Path, write: Callable[..., Any], in_container: bool
) -> None:
    write("slow.py", "import sys, threading\nprint('importing', flush=True)\nthreading.Event().wait(60)\n")
    command = [sys.executable, "-m", "cronsensus", "run", "slow:scheduler"]
    if in_container:
        command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", *command]
        if subprocess.run([*command[:6], "true"], capture_output=True, check=False).returncode:
            pytest.skip("no namespaces can be made here")
    with subprocess.Popen(command, cwd=empty_folder, env=environment(), text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            first = process.pid
            if in_container:
                first = int(Path(f"/proc/{first}/task/{first}/children").read_text())
            os.kill(first, signal.SIGTERM)
            assert process.wait(30) == (128 + signal.SIGTERM if in_container else -signal.SIGTERM)
        finally:
            process.kill()
