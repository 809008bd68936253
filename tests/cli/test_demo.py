"""``cronsensus demo``: real processes, a real kill, one verdict; and nothing is left behind, however it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from cronsensus.cli.demo.comparison import compare_ledger
from cronsensus.cli.demo.screen import Lanes, Screen
from cronsensus.cli.demo.trace import TRACE, Line, Tail, count_lines, traced
from cronsensus.model.occurrence import scheduled_key
from cronsensus.run import Run
from cronsensus.timing.clock import ManualClock

PATIENCE = 60.0
ENDS = 200.0
"""Seconds that three nodes have to stop in, on a busy machine."""
START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def demo(folder, *options, **more):
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "cronsensus", "demo", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment, **more,
    )  # fmt: skip


def until(happened, what):
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"after {PATIENCE:.0f} s still not: {what}"
        threading.Event().wait(0.02)


# --- the whole ----------------------------------------------------------------------------------------------------


def test_the_demo_kills_a_node_and_ends_with_one_json_object(tmp_path):
    process = demo(tmp_path, "--seconds", "8", "-o", "json")
    out, err = process.communicate(timeout=PATIENCE + 40)
    assert process.returncode == 0, out + err
    assert len(out.splitlines()) == 1
    data = json.loads(out)
    assert data["problems"] == []
    assert (data["duplicates"], data["missed"]) == (0, 0)
    assert data["ran"] == data["expected"] >= 1
    assert data["takeovers"] >= data["runs_cut"] >= 1
    assert data["takeover_seconds"] > 0
    assert data["trace"]["cut"] >= 1
    assert "takes over" in err
    assert "kill -9" in err
    assert list(tmp_path.iterdir()) == []


def test_in_a_pipe_it_prints_a_line_per_event_and_says_what_was_proven(tmp_path):
    process = demo(tmp_path, "--seconds", "8", "--nodes", "2", "--keep")
    out, err = process.communicate(timeout=PATIENCE + 40)
    assert process.returncode == 0, out + err
    assert "node-1 runs tick" in out or "node-2 runs tick" in out
    assert "node-2 finished" in out or "node-1 finished" in out
    assert "takes over" in out
    assert "duplicates     0" in out
    assert "missed         0" in out
    assert "nothing was lost, nothing was recorded twice" in out
    assert "run jobs:scheduler" in out
    (folder,) = tmp_path.iterdir()
    assert str(folder) in err
    look = next(line for line in err.splitlines() if line.startswith("cronsensus --url")).split()
    again = subprocess.run([sys.executable, "-m", *look, "-o", "json"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert json.loads(again.stdout)["missed"] == 0


def test_the_demo_of_a_batch_has_every_picture_shrunk_once_although_a_node_dies(tmp_path):
    process = demo(tmp_path, "--seconds", "8", "--batch", "-o", "json")
    out, err = process.communicate(timeout=PATIENCE + 40)
    assert process.returncode == 0, out + err
    batch = json.loads(out)["batch"]
    assert batch["succeeded"] == 90
    assert len(batch["nodes"]) >= 2
    assert "a batch: 90 pictures to shrink" in err
    assert "the batch: 90 items: 90 succeeded" in err
    assert json.loads(out)["duplicates"] == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
@pytest.mark.timeout(400)
def test_however_it_is_stopped_no_process_stays(tmp_path, how):
    process = demo(tmp_path, "--seconds", "60", stdin=subprocess.DEVNULL)
    me = psutil.Process(process.pid)
    nodes = set()

    def started():
        nodes.update(me.children(recursive=True))
        return len(nodes) >= 3

    until(started, "three nodes are started")
    process.send_signal(how)
    said = process.communicate(timeout=ENDS)
    until(lambda: not any(node.is_running() and node.status() != psutil.STATUS_ZOMBIE for node in nodes), "they end")
    if how is not signal.SIGKILL:
        assert process.returncode == 130, said
        assert list(tmp_path.iterdir()) == []


def test_a_store_that_processes_cannot_share_is_refused(tmp_path):
    process = demo(tmp_path, "--url", "memory://")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "memory:// lives inside of one process" in err
    assert list(tmp_path.glob("**/cronsensus-demo-*")) == []


# --- the count outside of the store ---------------------------------------------------------------------------------


def line(event, second=0, *, node="node-1", job="tick", token=1, attempt=1, at=0.0):
    nominal = START + timedelta(seconds=second)
    return Line(event=event, at=at, job=job, key=scheduled_key(nominal), scheduled_for=nominal, node=node, pid=1,
                attempt=attempt, token=token)  # fmt: skip


def test_a_trace_is_read_as_it_was_written_and_only_whole_lines(tmp_path, cluster, monkeypatch):
    cluster.every("tick", "1m")
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    path, clock = tmp_path / "trace", ManualClock()
    monkeypatch.setenv(TRACE, str(path))
    tail = Tail(path)
    assert tail.read() == []
    with traced(Run(claim), "node-1", clock=clock):
        clock.advance(1.5)
    with pytest.raises(RuntimeError), traced(Run(claim), "node-1", clock=clock):
        raise RuntimeError
    with path.open("a") as file:
        file.write('{"event": "sta')
    first, second, _, broken = tail.read()
    assert (first.event, second.event, broken.event) == ("start", "end", "broken")
    assert second.at - first.at == 1.5
    assert first.scheduled_for == claim.scheduled_for
    assert first.occurrence == ("tick", claim.key)
    assert tail.read() == []


def test_a_run_without_an_end_was_cut():
    cut = line("start", 1, token=2)
    counted = count_lines(
        [line("start", token=1), line("end", token=1), cut, line("start", 2, token=3), line("broken", 2, token=3)]
    )
    assert (counted.started, counted.ended, counted.cut) == (3, 1, (cut,))


def test_ledger_and_trace_are_compared_run_by_run(cluster):
    cluster.every("tick", "1m")
    cluster.join()
    claims = []
    for _ in range(3):
        cluster.advance(60)
        claims.append(cluster.run_once())
    good = [
        Line(event=event, at=0.0, job="tick", key=claim.key, scheduled_for=claim.scheduled_for, node="node-1", pid=1,
             attempt=1, token=claim.token)
        for claim in claims for event in ("start", "end")
    ]  # fmt: skip
    assert compare_ledger(cluster.store, good).problems == ()
    assert compare_ledger(cluster.store, good[:2]).problems == (), "of what the trace leaves out nothing is said"
    never_ended = compare_ledger(cluster.store, [one for one in good if one is not good[1]])
    assert "never ended" in never_ended.problems[0]
    forged = compare_ledger(cluster.store, [*good, line("end", 60, token=99)])
    assert f"{scheduled_key(START + timedelta(seconds=60))} ended under token 99" in forged.problems[0]
    unknown = compare_ledger(cluster.store, [*good, line("start", 1)])
    assert "the ledger does not know it" in unknown.problems[0]
    twice = compare_ledger(cluster.store, [*good, good[1]])
    assert (len(twice.twice), "recorded 2 times" in twice.problems[0]) == (1, True)


def test_work_that_was_done_and_not_recorded_is_no_duplicate(cluster):
    cluster.every("tick", "1m")
    first = cluster.join()
    cluster.advance(60)
    cluster.fire()
    (cut,) = cluster.claim(first)
    cluster.store.reclaim([first])
    (again,) = cluster.claim(cluster.join("node-2"))
    cluster.finish(again)
    lines = [line("end", 60, token=cut.token), line("end", 60, token=again.token, attempt=2)]
    compared = compare_ledger(cluster.store, lines)
    assert (compared.problems, compared.twice) == ((), ())
    assert [one.token for one in compared.unrecorded] == [cut.token]


# --- what one sees ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lanes():
    """Three nodes; the second was killed in the middle of a run, which the third took over."""
    made = Lanes(["node-1", "node-2", "node-3"])
    for lane in made.values():
        lane.state, lane.pid = "alive", 100
    for second in range(25):
        node = f"node-{second % 3 + 1}"
        made.show_start(line("start", second, node=node, token=second))
        if second == 22:
            assert [cut.token for cut in made.show_kill("node-2", at=22.0)] == [22]
            cut = made.show_start(line("start", 22, node="node-3", token=50, attempt=2, at=22.5))
            assert cut is made.cuts["tick", line("start", 22).key]
            assert cut.seconds == 0.5
            made.show_end(line("end", 22, node="node-3", token=50, attempt=2))
        elif second < 24 and node in {"node-1", "node-2", "node-3"} and made[node].state == "alive":
            made.show_end(line("end", second, node=node, token=second))
    return made


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_lanes_fit_into_80_columns_and_have_one_mark_in_each_column(lanes, encoding):
    from rich.console import Console

    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = Console(file=out, width=80, height=40, force_terminal=True, color_system=None)
    screen = Screen(lanes, "3 processes, one SQLite file, no leader", live=True)
    screen.add_event(22.5, "kill -9 100: node-2 dies in the middle of tick 12:00:22", "bold red")
    with console.capture() as capture:
        console.print(screen)
    shown = capture.get()
    assert max(map(len, shown.splitlines())) <= 80
    rows = [row[10:44] for row in shown.splitlines() if row.startswith("  node-")]
    assert len(rows) == 3
    finished, running, killed, taken = "●▸✗◆" if encoding == "utf-8" else "o>xT"
    columns = ["".join(column).strip("·. ") for column in zip(*rows, strict=True)]
    columns = [column for column in columns if column]
    assert len(columns) == 25
    assert columns[22] == killed + taken
    assert columns[24] == running
    assert all(column == finished for column in columns[:22])
    assert "killed (pid 100)" in shown
    assert "kill -9 100" in shown


def test_a_long_demo_shows_the_last_columns(lanes):
    assert lanes.columns(10)[-1] == START + timedelta(seconds=24)
    assert len(lanes.columns(10)) == 10


def test_plain_lines_go_where_data_does_not(lanes, capsys):
    Screen(lanes, "", to_stderr=True).add_event(1.234, "something")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "  1.23 s  something\n")
