"""docs/tutorial.md: what it has a reader type is typed, in three terminals, and prints what the page shows."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest

ROOT = Path(__file__).parent.parent
SECONDS = 75
"""For what a page shows: half a minute until the next time, twenty seconds of work, and a busy machine."""
IN_TERMINAL = re.compile(r" *# (?:terminal|终端) (\d)$", re.MULTILINE)
VARYING = re.compile(
    r"(?P<same>\b\d\d:\d\d:\d\d(?=Z|,)|\b471\d\b)|(?P<any>(?:\bin )?[\d.]+m?s\b|\d{4}-\d\d-\d\d|\b\d{4}\b|\b\d{16}\b|…)"
)
"""What a page shows and is another each time: a time or a process, which stays the same on the page, or anything."""


def load_snippets() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("snippets_of_tutorial", str(ROOT / "scripts" / "snippets"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


class Terminal:
    """A shell in a folder, and what it and its programs have printed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.screen = folder / f"screen-{name}.txt"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        with self.screen.open("w") as screen:
            self._shell = subprocess.Popen(
                ["bash"],
                cwd=folder,
                env=environment | {"COLUMNS": "200"},
                stdin=subprocess.PIPE,
                stdout=screen,
                stderr=screen,
                start_new_session=True,
                text=True,
            )

    def type(self, command: str) -> None:
        assert self._shell.stdin
        print(command, file=self._shell.stdin, flush=True)

    def close(self) -> None:
        assert self._shell.stdin
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        self._shell.stdin.close()


class Reader:
    """Who types what a page says, and waits for what it shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terminals = dict[str, Terminal]()
        self.known = dict[str, str]()
        """By what stands on the page: what was printed here instead."""

    def do(self, block: str) -> None:
        which = IN_TERMINAL.search(block)
        assert which, block
        lines = IN_TERMINAL.sub("", block).splitlines()
        if which[1] not in self.terminals:
            self.terminals[which[1]] = Terminal(self.folder, which[1])
        terminal = self.terminals[which[1]]
        command = lines.pop(0).removeprefix("$ ") if block.startswith("$ ") else ""
        for shown, printed in self.known.items():
            command = command.replace(shown, printed)
        serves = re.search(r"cronsensus (run|dashboard)\b", command)
        if command:
            terminal.type(command)
        for line in lines:
            self.await_line(terminal, line, again=None if serves or not command else command)

    def await_line(self, terminal: Terminal, line: str, again: str | None) -> None:
        """Wait until the terminal shows the line; a command that ends is typed again now and then, as one would."""
        pattern, names = self.pattern_of(line)
        until, retyped = time.monotonic() + SECONDS, time.monotonic()
        while not (found := re.search(pattern, terminal.screen.read_text())):
            assert time.monotonic() < until, f"{line!r} never came: {pattern}\n{terminal.screen.read_text()}"
            time.sleep(0.1)
            if again and time.monotonic() > retyped + 3:
                terminal.type(again)
                retyped = time.monotonic()
        self.known |= {shown: found[name] for name, shown in names.items()}

    def pattern_of(self, line: str) -> tuple[str, dict[str, str]]:
        names = dict[str, str]()

        def vary(found: re.Match[str]) -> str:
            if found["any"]:
                if found[0].startswith("in "):
                    return r"(?:in [\d.]+m?s|now)"
                return ".*" if found[0] == "…" else r"[\d.-]+(?:m?s)?"
            if found[0] in self.known:
                return re.escape(self.known[found[0]])
            name = f"v{len(names)}"
            names[name] = found[0]
            return rf"(?P<{name}>\d+(?::\d+)*)"

        words, at = [""], 0
        for found in VARYING.finditer(line):
            words += [re.escape(line[at : found.start()]), vary(found)]
            at = found.end()
        return re.sub(r"(?:\\ )+", r"\\s+", "".join([*words, re.escape(line[at:])])), names


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    for terminal in made.terminals.values():
        terminal.close()


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/zh/tutorial.md"])
def test_a_reader_of_the_tutorial_sees_what_it_shows(reader: Reader, page: str) -> None:
    for snippet in load_snippets().read_snippets((ROOT / page).read_text(encoding="utf-8")):
        if snippet.directive.verb == "file":
            (reader.folder / snippet.directive.text).write_text(snippet.code + "\n", encoding="utf-8")
        elif IN_TERMINAL.search(snippet.code):
            reader.do(snippet.code)

    link = re.search(r"(http://\S+/)\?key=(\S+)", reader.terminals["1"].screen.read_text())
    assert link
    run = httpx.get(f"{link[1]}runs/1", headers={"authorization": f"Bearer {link[2]}"}).raise_for_status().text
    assert all(word in run for word in ("left", "right", "crashed"))
