"""Every command explains itself, takes the global options, and loads nothing that it does not need."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from cronsensus.alerts.muting import mute_job
from cronsensus.cli import cli
from cronsensus.model.job import JobSpec
from cronsensus.testing.conformance.steps import win_named

CONTRACT = (
    "demo next run consume lint migrate dashboard jobs runs nodes locks alerts trail once graph ledger why audit "
    "db doctor store-check health config"
)
HEAVY = {"sqlalchemy", "rich", "psutil", "msgspec", "asyncio", "cronsim", "zoneinfo", "tomllib", "concurrent.futures"}


def walk(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group, info_name="cronsensus")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))


ALL = dict(walk(cli))
LEAVES = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_a_help_text_with_an_example(path: tuple[str, ...], command: Callable[..., Any]) -> None:
    answer = command(*path, "--help")
    assert answer.code == 0
    first = answer.out.split("\n\n")[1].strip()
    assert first.endswith((".", "?")), first
    assert re.search(r"^    cronsensus ", answer.out, re.MULTILINE), answer.out
    assert "--help" in answer.out


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_the_global_options_after_its_name(
    path: tuple[str, ...], command: Callable[..., Any]
) -> None:
    help_text = command(*path, "--help").out
    for option in ("--app", "--url", "--namespace", "--output", "--debug"):
        assert option in help_text


ARGUMENTS = {
    "next": ["tick"],
    "lint": ["myjobs:scheduler"],
    "migrate apscheduler": ["aps:scheduler"],
    "migrate celery": ["proj:app"],
    "alerts list": ["alerting:scheduler"],
    "alerts test": ["alerting:scheduler"],
    "alerts mute": ["tick", "--for", "2h", "--reason", "x"],
    "alerts unmute": ["tock"],
    "graph": ["alerting:scheduler"],
    "jobs show": ["tick"],
    "jobs pause": ["tick", "--reason", "x"],
    "jobs resume": ["tick"],
    "jobs rewind": ["tick", "--reason", "x"],
    "jobs trigger": ["tick"],
    "jobs enqueue": ["tick"],
    "jobs backfill": ["tick", "--from", "1m", "--yes"],
    "runs show": ["1"],
    "runs retry": ["1"],
    "runs cancel": ["2", "--reason", "x"],
    "runs failed": [],
    "trail": [],
    "runs logs": ["1"],
    "runs watch": ["1"],
    "nodes drain": ["node-1"],
    "locks break": ["reindex", "--reason", "it hangs"],
    "once forget": ["charge", "k"],
    "ledger": ["tick"],
    "why": ["tick", "now"],
}
PRINT_NO_DATA = {"run", "consume", "demo", "dashboard", "store-check"}
"""A node and a consumer log, the dashboard serves; the demo and the check of a store have tests of their own."""


@pytest.mark.parametrize("path", [path for path in LEAVES if path[0] not in PRINT_NO_DATA], ids=" ".join)
def test_every_command_that_prints_data_prints_one_json_document(
    path: tuple[str, ...], cluster: Any, write: Any
) -> None:
    write("myjobs.py", 'from cronsensus import Scheduler\nscheduler = Scheduler("memory://")\n')
    write(
        "alerting.py",
        "from cronsensus import Alert, Scheduler\n"
        'scheduler = Scheduler("memory://", alerts=[Alert(len, name="ops")])\n',
    )
    write(
        "aps.py", "from apscheduler.schedulers.background import BackgroundScheduler as Theirs\nscheduler = Theirs()\n"
    )
    write("proj.py", 'from celery import Celery\napp = Celery("proj", set_as_current=False)\n')
    cluster.every("tick", "1m", overlap="queue")
    cluster.join()
    cluster.advance(60)
    cluster.run_once()
    cluster.advance(60)
    cluster.fire()
    guarded = JobSpec(name="once:charge", function="once:charge", source="runtime")
    cluster.store.define_jobs([guarded], release="r1")
    claim = win_named(cluster.store, "session-of-node-1", guarded.name, key="k", lease=timedelta(hours=1))
    assert claim is not None
    cluster.finish(claim)
    cluster.every("tock", "1h")
    mute_job(cluster.store, "tock", timedelta(hours=1), by="ada", why="new disk")
    cluster.store.lock("reindex", "web-1", ttl=timedelta(hours=1))
    answer = cluster(*path, *ARGUMENTS.get(" ".join(path), []), "-o", "json")
    assert answer.code in {0, 1}, answer
    assert isinstance(json.loads(answer.out), dict)


def test_the_table_names_every_command_of_the_contract() -> None:
    assert list(cli.table) == CONTRACT.split()
    below = {" ".join(path) for path in ALL if len(path) == 2}
    jobs = {f"jobs {name}" for name in ("list", "show", "pause", "resume", "rewind", "trigger", "enqueue", "backfill")}
    runs = {f"runs {name}" for name in ("list", "show", "failed", "retry", "cancel", "logs", "watch")}
    assert below == jobs | runs | {
        "nodes list",
        "nodes drain",
        "locks list",
        "locks break",
        "alerts list",
        "alerts test",
        "alerts mute",
        "alerts unmute",
        "once forget",
        "migrate apscheduler",
        "migrate celery",
        "migrate crontab",
        "db upgrade",
        "db check",
        "db prune",
    }


def test_the_root_help_lists_each_command_with_one_line(command: Callable[..., Any]) -> None:
    answer = command("--help")
    assert answer.code == 0
    for name, text in cli.table.items():
        assert re.search(rf"^  {name} +{re.escape(text.split()[0])}", answer.out, re.MULTILINE)


def test_the_root_without_a_command_shows_the_help_as_a_usage_error(command: Callable[..., Any]) -> None:
    answer = command()
    assert answer.code == 2
    assert "Usage: cronsensus" in answer.err


@pytest.mark.parametrize("arguments", [["--help"], ["jobs", "--help"], ["run", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str], empty_folder: Path) -> None:
    program = (
        "import json, sys\n"
        f"sys.argv = ['cronsensus', *{arguments!r}]\n"
        "from cronsensus.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    loaded = set(json.loads(done.stderr.strip().splitlines()[-1]))
    heavy = HEAVY if arguments == ["--help"] else {"sqlalchemy", "rich", "psutil", "cronsim", "asyncio"}
    assert not loaded & heavy


def test_the_version_is_that_of_the_package(command: Callable[..., Any]) -> None:
    from importlib.metadata import version

    answer = command("--version")
    assert answer.code == 0
    assert answer.out.startswith(f"cronsensus {version('cronsensus')}, Python 3.")


@pytest.mark.parametrize("before", [True, False])
def test_global_options_count_before_and_after_the_command(
    cluster: Any, command: Callable[..., Any], before: bool
) -> None:
    cluster.every("tick")
    given = ["--url", cluster.url, "-o", "json"]
    answer = command(*given, "jobs", "list") if before else command("jobs", "list", *given)
    assert [job["name"] for job in answer.data["jobs"]] == ["tick"]


def test_of_an_option_given_twice_the_one_after_the_command_counts(cluster: Any, command: Callable[..., Any]) -> None:
    cluster.every("tick")
    answer = command("--url", "memory://other", "-o", "table", "jobs", "--url", cluster.url, "list", "-o", "json")
    assert len(answer.data["jobs"]) == 1


@pytest.mark.parametrize("option", ["--url", "--app", "--namespace"])
def test_an_empty_global_option_is_refused_and_not_passed_over(command: Callable[..., Any], option: str) -> None:
    answer = command("db", "prune", option, "")
    assert answer.code == 2
    assert f"'{option}': it is empty; leave it out" in answer.err


def complete(words: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cronsensus"],
        env={"PATH": "/usr/bin:/bin", "_CRONSENSUS_COMPLETE": "bash_complete", "COMP_WORDS": words,
             "COMP_CWORD": str(len(words.split(" ")) - 1), **env},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return [line.split(",", 1)[1] for line in done.stdout.splitlines() if line]


def test_a_shell_completes_commands_and_options() -> None:
    assert complete("cronsensus ru") == ["run", "runs"]
    assert complete("cronsensus jobs pa") == ["pause"]
    assert complete("cronsensus run --conc") == ["--concurrency"]


def test_a_shell_completes_the_names_of_jobs(empty_folder: Path) -> None:
    from cronsensus.model.job import JobSpec
    from cronsensus.stores import open_store

    url = f"sqlite:///{empty_folder}/jobs.db"
    store = open_store(url)
    store.migrate()
    store.define_jobs([JobSpec(name=name, function=name) for name in ("send_digest", "send_mail", "tidy")], release="r")
    store.close()
    assert complete("cronsensus jobs pause send", CRONSENSUS_URL=url) == ["send_digest", "send_mail"]
    assert complete(f"cronsensus --url {url} runs list --job ti") == ["tidy"]


def test_completion_stays_silent_where_there_is_no_store() -> None:
    assert complete("cronsensus jobs pause send") == []
