import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "snippets"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("snippets", str(SCRIPT))
    spec = importlib.util.spec_from_loader("snippets", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules["snippets"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


@pytest.fixture
def run_page(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run one page; give back the exit code and the output."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *options: str) -> tuple[int, str]:
        Path("page.md").write_text(text)
        code = script.main(["page.md", *options])
        return code, capsys.readouterr().out

    return run


def python(code: str) -> str:
    return f"```python\n{code}\n```\n"


def console(text: str) -> str:
    return f"```console\n{text}\n```\n"


def test_python_blocks_of_a_page_are_one_program(run_page) -> None:
    code, output = run_page(python("x = 6") + "and then\n" + python("assert x * 7 == 42"))
    assert (code, output.splitlines()[0]) == (0, "page.md: 2 python, 0 shell")


def test_a_failure_names_the_line_of_the_page_and_quotes_it(run_page) -> None:
    code, output = run_page(
        "# Title\n\n" + python("x = 1") + "\ntext\n\n  " + python("y = x / 0").replace("\n", "\n  ")
    )
    assert code == 1
    assert "page.md:4: exit code 1, not 0" in output
    assert 'page_snippets.py", line 10, in <module>' in output
    assert "ZeroDivisionError" in output


def test_a_warning_in_a_python_block_is_a_failure(run_page) -> None:
    code, output = run_page(python("import warnings\nwarnings.warn('old', DeprecationWarning)"))
    assert code == 1
    assert "DeprecationWarning: old" in output


@pytest.mark.parametrize(
    "block",
    [
        console("$ test 1 = 1\nthis is output\n$ echo a \\\n> b | grep 'a b'"),
        "```bash\nx=1\ntest $x = 1  # no prompt: the whole block is a script\n```\n",
        console("$ export COLOUR=red\n$ test $COLOUR = red"),
        console("$ cd /\n$ test $PWD = /"),
        console(f"$ test $(python -c 'import sys; print(sys.prefix)') = {sys.prefix}"),
    ],
    ids=["prompt and continuation", "script", "variable", "folder", "this environment's programs first"],
)
def test_shell_block_runs(run_page, block: str) -> None:
    assert run_page(block)[0] == 0


@pytest.mark.parametrize("commands", ["$ false\n$ true", "$ false | true"], ids=["in the middle", "in a pipe"])
def test_a_command_that_fails_fails_its_block(run_page, commands: str) -> None:
    code, output = run_page(console(commands))
    assert code == 1
    assert "page.md:2: exit code 1, not 0" in output


def test_blocks_share_the_folder_of_their_page_and_python_comes_first(run_page) -> None:
    page = console("$ cat made.txt") + python("from pathlib import Path\nPath('made.txt').write_text('here')")
    assert run_page(page)[0] == 0
    assert not Path("made.txt").exists()


def test_a_file_block_is_saved_and_not_run(run_page) -> None:
    page = "<!-- snippet file: app.py -->\n" + python("answer = 42\nif __name__ == '__main__': raise SystemExit(9)")
    assert run_page(page + console("$ python -c 'from app import answer; assert answer == 42'"))[0] == 0


def test_a_skipped_block_is_printed_with_its_reason(run_page) -> None:
    code, output = run_page("<!-- snippet skip: needs the moon -->\n" + python("raise SystemExit(1)"))
    assert code == 0
    assert "page.md:3: skipped: needs the moon" in output


@pytest.mark.parametrize(("command", "expected"), [("$ exit 3", 0), ("$ exit 1", 1), ("$ exit 0", 1)])
def test_an_expected_exit_code_must_come(run_page, command: str, expected: int) -> None:
    assert run_page("<!-- snippet exit 3: the store is down -->\n" + console(command))[0] == expected


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("```python\nx = 1\n", "line 1: this block is never closed"),
        ("<!-- snippet skip -->\n" + python("x"), "line 1: write"),
        ("<!-- snippet skip: -->\n" + python("x"), "line 1: write"),
        ("<!-- snippet skipp: typo -->\n" + python("x"), "line 1: write"),
        ("<!-- snippet skip: reason -->\n\n" + python("x"), "line 2: a snippet comment stands right above"),
        ("<!-- snippet skip: reason -->\n", "no block below"),
        ("<!-- snippet exit 3: reason -->\n" + python("x"), "line 2: only a shell block"),
    ],
)
def test_a_page_that_says_something_unclear_is_refused(run_page, page: str, fault: str) -> None:
    code, output = run_page(page)
    assert code == 1
    assert fault in output


def test_a_missing_page_is_a_failure(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["nowhere.md"]) == 1
    assert "nowhere.md: no such page" in capsys.readouterr().out


def test_blocks_in_other_languages_and_fences_inside_fences_are_left_alone(run_page) -> None:
    page = "```toml\n[tool\n```\n~~~~text\n```python\nraise SystemExit(1)\n```\n~~~~\n```\nplain\n```\n"
    assert run_page(page) == (0, "page.md: 0 python, 0 shell\nsnippets: 1 pages, 0 faults\n")


def test_a_snippet_that_never_ends_is_ended(run_page) -> None:
    code, output = run_page(console("$ echo started\n$ sleep 100"), "--seconds", "0.5")
    assert code == 1
    assert "page.md:2: not done after 0.5 s" in output
    assert "started" in output


def test_what_a_block_leaves_running_is_ended(run_page, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    assert run_page(console(f"$ exec 9> {pipe}\n$ sleep 1000 &"))[0] == 0

    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "the end of the pipe comes only when its last writer is gone"
    os.close(reader)
