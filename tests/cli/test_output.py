"""What goes to stdout: a table, plain or rich, or one JSON document."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cronsensus.cli.output import Output

NASTY = "tick [red]\u202e"


@pytest.fixture
def nasty(cluster: Any) -> Any:
    """A cluster with a job whose name is markup, and a pause whose reason steers terminals."""
    cluster.every("tick [red]", "1m")
    cluster.store.pause("tick [red]", by="eve\x1b]0;title\x07", why="\x1b[2J\u202egone [bold]now[/bold]\x9b31m")
    return cluster


def test_in_a_pipe_a_table_is_plain_text(nasty: Any) -> None:
    answer = nasty("jobs", "list")
    assert answer.code == 0
    assert answer.out.splitlines()[0].split() == ["JOB", "SCHEDULE", "NEXT", "STATE"]
    assert not re.search("[─│┃━┏\x1b]", answer.out)


def test_names_and_reasons_cannot_steer_the_terminal(nasty: Any) -> None:
    answer = nasty("jobs", "list")
    assert "tick [red]" in answer.out
    assert "\\x1b[2J\\u202egone [bold]now[/bold]\\x9b31m (by eve\\x1b]0;title\\x07)" in answer.out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", answer.out)


def test_json_is_one_document_that_holds_no_control_characters(nasty: Any) -> None:
    answer = nasty("jobs", "list", "-o", "json")
    assert answer.data["jobs"][0]["paused"]["reason"] == "\x1b[2J\u202egone [bold]now[/bold]\x9b31m"
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", answer.out)


def test_json_writes_instants_in_utc_and_durations_in_seconds(cluster: Any) -> None:
    cluster.every("tick", "90s", timeout="5m")
    (job,) = cluster("jobs", "list", "-o", "json").data["jobs"]
    assert job["next"] == "2026-11-20T12:01:30Z"
    assert job["policies"]["timeout"] == 300.0
    assert job["trigger"] == {"kind": "every", "interval": "1m30s"}


def test_json_keeps_other_scripts_readable_and_halves_of_characters_valid(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).document({"name": "日本", "half": "\ud800", "unsafe": "\u202e\x9b"})
    shown = capsys.readouterr().out
    assert "日本" in shown
    assert json.loads(shown) == {"name": "日本", "half": "\ud800", "unsafe": "\u202e\x9b"}
    assert shown.isprintable() or "\u202e" not in shown


def test_an_empty_table_says_on_stderr_how_to_fill_it(cluster: Any) -> None:
    answer = cluster("jobs", "list")
    assert answer.out == ""
    assert "run MODULE:ATTR" in answer.err


def test_messages_go_to_stderr(cluster: Any) -> None:
    for number in range(3):
        cluster.every(f"job-{number}")
    answer = cluster("jobs", "list", "--limit", "2")
    assert "there are more" in answer.err
    assert "there are more" not in answer.out


def on_a_terminal(*arguments: str, cwd: Path, **env: str) -> str:
    """Run a command with a terminal of 100 columns as stdout; return what it wrote there."""
    master, slave = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "100", "HOME": str(cwd), **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "cronsensus", *arguments],
        stdin=slave, stdout=slave, stderr=subprocess.PIPE, cwd=cwd, env=environment,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    _, errors = process.communicate(timeout=100)
    os.close(master)
    assert process.returncode == 0, errors.decode()
    return shown.decode()


@pytest.fixture
def url(empty_folder: Path) -> str:
    """A file with a job that has markup in its name."""
    from cronsensus.model.job import JobSpec
    from cronsensus.stores import open_store
    from cronsensus.triggers import every

    url = f"sqlite:///{empty_folder}/jobs.db"
    store = open_store(url)
    store.migrate()
    store.define_jobs([JobSpec(name="[red]tick[/red] :bomb:", function="f", trigger=every("1m"))], release="r")
    store.close()
    return url


def test_in_a_terminal_a_table_has_lines_and_colours(url: str, empty_folder: Path) -> None:
    shown = on_a_terminal("jobs", "list", "--url", url, cwd=empty_folder)
    assert "\x1b[" in shown
    assert "─" in shown
    assert "[red]tick[/red] :bomb:" in re.sub(r"\x1b\[[0-9;]*m", "", shown)


def test_no_color_is_honoured(url: str, empty_folder: Path) -> None:
    shown = on_a_terminal("jobs", "list", "--url", url, cwd=empty_folder, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown)
    assert "[red]tick[/red] :bomb:" in re.sub(r"\x1b\[[0-9;]*m", "", shown)


def test_a_dumb_terminal_gets_plain_text(url: str, empty_folder: Path) -> None:
    shown = on_a_terminal("jobs", "list", "--url", url, cwd=empty_folder, TERM="dumb")
    assert "\x1b" not in shown
    assert shown.startswith("JOB")


def drawn(capsys: pytest.CaptureFixture[str], width: int, **options: Any) -> tuple[list[str], str]:
    """A table as a terminal of some width shows it."""
    from rich.console import Console

    output = Output()
    output.styled = True
    output._console = Console(width=width, highlight=False, markup=False, emoji=False, color_system=None)
    row = ["17", "2026-11-20 12:01:00Z", "node-1:12345", "no route to the mail server, three times in a row"]
    output.table(["id", "for", "node", "reason"], [row], **options)
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


@pytest.mark.parametrize("width", [40, 50, 60, 80, 200])
def test_a_narrow_terminal_breaks_neither_words_nor_times(capsys: pytest.CaptureFixture[str], width: int) -> None:
    lines, _ = drawn(capsys, width, prose=("reason",), spare=("node", "for"))
    words = " ".join(lines).split()
    assert [word for word in words if word in {"mail", "server,", "three", "times", "row"}] == [
        "mail", "server,", "three", "times", "row",
    ]  # fmt: skip
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_columns_for_which_there_is_no_room_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    lines, said = drawn(capsys, 50, prose=("reason",), spare=("node", "for"))
    assert "2026-11-20 12:01:00Z" in "\n".join(lines)
    assert "no room for: node; a wider terminal shows them, and so does -o json" in said
    lines, said = drawn(capsys, 200, prose=("reason",), spare=("node", "for"))
    assert "node-1:12345" in "\n".join(lines)
    assert said == ""


def test_terminal_of_60_columns_cuts_ids_in_the_middle_and_leaves_states_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rich.console import Console

    output = Output()
    output.styled = True
    output._console = Console(width=60, highlight=False, markup=False, emoji=False, color_system=None)
    row = ["17", "sync", "01a20364-7900-7000-8000-0689a2f16476 (enqueue)", "succeeded", "no route to the mail server"]
    output.table(["id", "job", "for", "state", "reason"], [row], prose=("job", "state", "reason"))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 60
    assert "succeeded" in shown
    assert re.search(r"01a\S*…\S*queue\)", shown)
    assert "".join(shown.split()).endswith("mailserver")


@pytest.mark.parametrize("styled", [False, True])
def test_wide_characters_take_two_columns(capsys: pytest.CaptureFixture[str], styled: bool) -> None:
    from rich.cells import cell_len
    from rich.console import Console

    output = Output()
    output.styled = styled
    output._console = Console(width=80, highlight=False, markup=False, emoji=False, color_system=None)
    output.table(["job", "state"], [["每日报告", "active"], ["tick", "active"]])
    lines = [line for line in capsys.readouterr().out.splitlines() if "active" in line]
    assert len({cell_len(line.partition("active")[0]) for line in lines}) == 1
    output.pairs([("名", "x"), ("name", "x")])
    lines = capsys.readouterr().out.splitlines()
    assert len({cell_len(line.rpartition("x")[0]) for line in lines}) == 1


@pytest.mark.parametrize(("value", "coloured"), [("1", True), ("0", False), ("", False)])
def test_force_color_colours_a_pipe(url: str, empty_folder: Path, value: str, coloured: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cronsensus", "jobs", "list", "--url", url],
        env={"PATH": os.environ["PATH"], "FORCE_COLOR": value, "COLUMNS": "100"},
        capture_output=True, text=True, cwd=empty_folder, timeout=100, check=True,
    )  # fmt: skip
    assert ("\x1b[" in done.stdout) == coloured


def test_watching_needs_a_terminal(cluster: Any) -> None:
    answer = cluster("jobs", "list", "--watch")
    assert answer.code == 2
    assert "--watch needs a terminal" in answer.err


def test_a_pipe_that_is_closed_early_ends_the_command_without_a_traceback(url: str, empty_folder: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m cronsensus next '* * * * * *' -n 1000 | head -1",
        shell=True, capture_output=True, text=True, cwd=empty_folder, timeout=100, check=False,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_reader_that_goes_away_ends_the_command_as_shells_expect(empty_folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m cronsensus next '* * * * * *' -n 1000 | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, cwd=empty_folder, timeout=100, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


def test_a_terminal_that_cannot_show_a_name_shows_its_escapes(empty_folder: Path, write: Callable[..., Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cronsensus", "next", "every 1h", "--tz", "Asia/日本"],
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
        capture_output=True, cwd=empty_folder, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"is not a known time zone" in done.stderr
    assert b"Traceback" not in done.stderr


def test_watching_draws_anew_at_each_hint_until_ctrl_c(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from rich.console import Console

    output = Output()
    output.terminal = True
    output._console = Console(file=io.StringIO(), force_terminal=True)
    drawn: list[int] = []

    def wait(_store: Any, _timeout: float) -> bool:
        if len(drawn) == 2:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(type(cluster.store), "wait", wait)
    output.show_live(cluster.store, lambda: drawn.append(1), again=True)
    assert len(drawn) == 2
