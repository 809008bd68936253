"""Each file of docs/recipes.md in real processes on a SQLite file: what the page promises is counted."""

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import redis

from cronsensus import Scheduler
from cronsensus.audit import audit
from cronsensus.errors import SchemaMismatch, StoreUnavailable
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from tests.scratch import scratch_folder

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.py"))
PATIENCE = 60.0
GUNICORN = ("-m", "gunicorn", "--workers", "4", "--bind", "unix:socket", "--no-control-socket")


class Terminal:
    """A process, and the lines that it has printed so far."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.out = folder / f"out-{len(list(folder.glob('out-*')))}"
        # Unbuffered, print writes the end of its line apart, and another worker's line may come between.
        surroundings = {**os.environ, "PYTHONUNBUFFERED": "", **environment}
        with self.out.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], cwd=folder, env=surroundings, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def lines(self) -> list[str]:
        return self.out.read_text(encoding="utf-8").splitlines()

    def ended(self) -> list[str]:
        """Wait for its end, which must be good."""
        assert self.process.wait(PATIENCE) == 0, self.lines()
        return self.lines()


class Desk:
    """A folder with one recipe in it, and the terminals that were opened there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terminals: list[Terminal] = []

    def start(self, *arguments: str, **environment: str) -> Terminal:
        self.terminals.append(Terminal(self.folder, *arguments, **environment))
        return self.terminals[-1]

    def start_nodes(self, app: str, count: int) -> list[Terminal]:
        nodes = [self.start("-m", "cronsensus", "run", app) for _ in range(count)]
        until(lambda: all(said(node.lines(), "taking part") for node in nodes), "the start of all nodes", self)
        return nodes

    def type(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cronsensus", *command],
            check=False, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    def printed(self) -> list[str]:
        return [line for terminal in self.terminals for line in terminal.lines()]

    def recorded(self, job: str) -> list[Occurrence]:
        """Stop all that runs; give what the store then has of a job, which the audit must find to be in order."""
        for terminal in self.terminals:
            terminal.process.send_signal(signal.SIGTERM)
        for terminal in self.terminals:
            terminal.process.wait(PATIENCE)
        scheduler = Scheduler(f"sqlite:///{self.folder / 'cronsensus.db'}")
        report = audit(scheduler.store)
        found = scheduler.store.occurrences(OccurrenceFilter(job=job), limit=200)
        scheduler.stop()
        assert report.ok, report
        return list(found)

    def live_nodes(self) -> int:
        scheduler = Scheduler(f"sqlite:///{self.folder / 'cronsensus.db'}")
        try:
            return len([one for one in scheduler.store.sessions() if one.ended_at is None])
        except (SchemaMismatch, StoreUnavailable):  # no worker has made it yet, or not its file
            return 0
        finally:
            scheduler.stop()


@contextlib.contextmanager
def desk(recipe: str) -> Iterator[Desk]:
    with scratch_folder() as folder:
        (folder / f"{recipe}.py").write_text((ROOT / "examples" / "recipes" / f"{recipe}.py").read_text("utf-8"))
        here = Desk(folder)
        try:
            yield here
        finally:
            for terminal in here.terminals:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(terminal.process.pid, signal.SIGKILL)
                terminal.process.wait(PATIENCE)


def until(condition: Callable[[], object], what: str, here: Desk) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come:\n" + "\n".join(here.printed())
        time.sleep(0.05)


def said(lines: list[str], words: str) -> list[str]:
    return [line for line in lines if re.search(words, line)]


def client(here: Desk) -> httpx.Client:
    """Ask the server of a desk; uvicorn's workers listen after their lifespan has begun, so the first try may fail."""
    transport = httpx.HTTPTransport(uds=str(here.folder / "socket"), retries=8)
    return httpx.Client(transport=transport, base_url="http://shop", timeout=PATIENCE)


def check_each_time_ran_once(here: Desk, job: str, words: str) -> None:
    """As many runs outside as are on record; what the stop has cut off is begun again."""
    recorded = [one for one in here.recorded(job) if one.attempt]
    printed = said(here.printed(), words)
    assert len({one.scheduled_for for one in recorded}) == len(recorded)
    assert len(recorded) <= len(printed) <= sum(one.attempt for one in recorded)


def test_four_gunicorn_workers_with_an_apscheduler_each_run_a_time_once():
    with desk("gunicorn_apscheduler") as here:
        here.start(*GUNICORN, "gunicorn_apscheduler:app")
        until(lambda: len(said(here.printed(), "Booting worker")) == 4, "four workers", here)
        until(lambda: here.live_nodes() == 4, "four guards", here)
        before = len(said(here.printed(), "report in"))
        until(lambda: len(said(here.printed(), "report in")) >= before + 2, "two reports", here)
        check_each_time_ran_once(here, "apscheduler:report", "report in")


@pytest.mark.parametrize(
    ("recipe", "workers", "server"),
    [
        ("flask_app", 4, (*GUNICORN, "--config", "flask_app.py", "flask_app:app")),
        ("fastapi_app", 2, ("-m", "uvicorn", "--workers", "2", "--uds", "socket", "fastapi_app:app")),
    ],
    ids=["flask", "fastapi"],
)
def test_jobs_in_web_workers_run_once_and_so_does_what_two_requests_order(recipe, workers, server):
    with desk(recipe) as here:
        here.start(*server)
        until(lambda: here.live_nodes() == workers, "all workers", here)
        with client(here) as user:
            for _ in range(2):
                assert user.post("/orders/42").status_code == 200
        before = len(said(here.printed(), "report for"))
        until(lambda: len(said(here.printed(), "report for")) >= before + 1, "a report", here)
        until(lambda: said(here.printed(), "invoice 42"), "the invoice", here)
        check_each_time_ran_once(here, "report", "report for")
        assert len(said(here.printed(), "invoice 42")) == 1


def test_of_four_programs_of_one_deploy_one_migrates_and_the_others_wait_for_it():
    with desk("once_at_start") as here:
        for deploy, programs in (("v41", 4), ("v42", 1)):
            started = [here.start("once_at_start.py", CRONSENSUS_DEPLOY_ID=deploy) for _ in range(programs)]
            lines = [line for terminal in started for line in terminal.ended()]
            assert len(said(lines, "migrating")) == 1
            assert len(said(lines, "serving")) == programs


def test_a_list_is_spread_over_three_nodes_and_each_item_is_done_once():
    with desk("list_over_nodes") as here:
        here.start_nodes("list_over_nodes:scheduler", 3)
        here.type("jobs", "trigger", "close_day")

        def total() -> list[Occurrence]:
            scheduler = Scheduler(f"sqlite:///{here.folder / 'cronsensus.db'}")
            found = scheduler.store.occurrences(OccurrenceFilter(job="close_day"), limit=50)
            scheduler.stop()
            return [one for one in found if one.result == "1200"]

        until(total, "the total", here)
        done = [line.split(" in ") for line in said(here.printed(), r"^shop-\d+ in")]
        assert sorted(shop for shop, _ in done) == sorted(f"shop-{number}" for number in range(1, 13))
        assert len({process for _, process in done}) > 1


def test_a_message_that_three_consumers_get_at_once_is_charged_once_and_all_have_the_receipt():
    with desk("each_message_once") as here:
        started = [here.start("each_message_once.py", message, "9.99") for message in ("m-1", "m-1", "m-1", "m-2")]
        lines = [line for terminal in started for line in terminal.ended()]
        assert len(said(lines, "charging")) == 2
        assert Counter(said(lines, "receipt")) == {"receipt of m-1": 3, "receipt of m-2": 1}
        other_amount = here.start("each_message_once.py", "m-1", "500")
        assert other_amount.process.wait(PATIENCE) == 1
        assert said(other_amount.lines(), "PayloadMismatch.*amount differs")


def test_an_invoice_is_sent_for_each_order_that_was_committed_and_for_no_other():
    with desk("order_and_invoice") as here:
        here.start_nodes("order_and_invoice:scheduler", 2)
        for item in ("book", "lamp"):
            assert here.start("order_and_invoice.py", item).ended() == []
        nothing = here.start("order_and_invoice.py", "nothing")
        assert nothing.process.wait(PATIENCE) == 1
        assert here.start("order_and_invoice.py", "chair").ended() == []
        until(lambda: len(said(here.printed(), "invoice of order")) == 3, "three invoices", here)
        assert sorted(said(here.printed(), "invoice of order")) == [f"invoice of order {n}" for n in (1, 2, 3)]


def test_a_run_of_days_ago_is_told_its_own_day():
    with desk("which_day") as here:
        here.start_nodes("which_day:scheduler", 2)
        here.type("jobs", "backfill", "export", "--from", "2026-10-24 02:00", "--to", "2026-10-26 02:00", "--yes")
        until(lambda: len(said(here.printed(), "exporting")) == 3, "three days", here)
        assert sorted(said(here.printed(), "exporting")) == [f"exporting 2026-10-{day}" for day in (23, 24, 25)]


@contextlib.contextmanager
def celery_desk(recipe: str, redis_server_url: str, number: int) -> Iterator[tuple[Desk, dict[str, str]]]:
    """Open a desk with a broker of its own: no other test has this database."""
    broker = f"{redis_server_url.partition('?')[0].rpartition('/')[0]}/{number}"
    with desk(recipe) as here:
        yield here, {"BROKER": broker, "C_FORCE_ROOT": "1", "PYTHONPATH": str(here.folder)}
    with redis.Redis.from_url(broker) as client:
        client.flushdb()


def test_beat_with_each_worker_sends_each_time_once_and_goes_on_when_one_is_killed(redis_server_url):
    with celery_desk("celery_beat", redis_server_url, 2) as (here, environment):
        workers = [
            here.start(
                "-m", "celery", "-A", "celery_beat", "worker", "-B", "-c", "1", "-n", f"w{number}@h", **environment
            )
            for number in range(2)
        ]
        until(lambda: len(said(here.printed(), "report for")) >= 2, "two reports", here)
        os.killpg(workers[0].process.pid, signal.SIGKILL)
        before = len(said(here.printed(), "report for"))
        until(lambda: len(said(here.printed(), "report for")) >= before + 3, "further reports", here)
        times = [line.split()[-4] for line in said(here.printed(), "report for")]
        assert max(Counter(times).values()) == 1


def test_a_task_longer_than_the_visibility_timeout_runs_once_and_is_run_again_when_its_worker_dies(redis_server_url):
    with celery_desk("long_celery_task", redis_server_url, 3) as (here, environment):
        workers = [
            here.start(
                "-m", "celery", "-A", "long_celery_task", "worker", "-c", "1", "-n", f"w{number}@h", **environment
            )
            for number in range(2)
        ]
        until(lambda: all(said(worker.lines(), "key=celery") for worker in workers), "two workers", here)
        assert here.start("long_celery_task.py", **environment).ended() == []
        until(lambda: said(here.printed(), "exporting"), "a run", here)
        (busy,) = [worker for worker in workers if said(worker.lines(), "exporting")]
        os.killpg(busy.process.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        until(lambda: len(said(here.printed(), "exporting")) == 2, "a takeover", here)
        assert time.monotonic() - killed_at < 3.0
        scheduler = Scheduler(f"sqlite:///{here.folder / 'cronsensus.db'}")
        exports = OccurrenceFilter(job="celery:long_celery_task.export")
        until(lambda: scheduler.store.occurrences(exports, limit=9)[0].state.final, "its end", here)
        scheduler.stop()
        assert len(said(here.printed(), "exporting")) == 2


def test_of_three_hosts_with_the_same_crontab_one_works():
    with desk("crontab_on_every_host") as here:
        started = [here.start("crontab_on_every_host.py") for _ in range(3)]
        lines = [line for terminal in started for line in terminal.ended()]
        assert len(said(lines, "working")) == 1
        # Whoever comes while it works is not kept waiting.
        assert len(said(lines, "done")) + len(said(lines, "None")) == 3


def test_times_that_nobody_ran_are_told_once():
    with desk("told_when_it_did_not_run") as here:
        (before,) = here.start_nodes("told_when_it_did_not_run:scheduler", 1)
        until(lambda: said(here.printed(), "backup done"), "a backup", here)
        before.process.send_signal(signal.SIGTERM)
        before.ended()
        time.sleep(2.5)  # what is to be missed is real time
        here.start_nodes("told_when_it_did_not_run:scheduler", 2)

        def told() -> int:
            return sum(int(line.split()[1]) for line in said(here.printed(), "^backup: .* missed, since"))

        # The last second before the start may be run, late. What is missed may be told in several messages.
        until(told, "the messages", here)
        here.recorded("backup")
        count = told()
        ledger = json.loads(here.type("ledger", "backup", "-o", "json"))["lines"]
        assert count <= sum(line["count"] for line in ledger if line["verdict"] == "missed")


def test_a_job_after_another_begins_when_that_has_ended():
    with desk("one_after_another") as here:
        here.start_nodes("one_after_another:scheduler", 2)
        until(lambda: len(said(here.printed(), "load has succeeded")) >= 2, "two nights", here)
        ran = {job: here.recorded(job) for job in ("extract", "load", "notify")}
        begun = {(job, one.scheduled_for): one.started_at for job, all_ in ran.items() for one in all_}
        for upstream, job in (("extract", "load"), ("load", "notify")):
            ends = {one.scheduled_for: one.finished_at for one in ran[upstream] if one.state == "succeeded"}
            pairs = [(ended, begun.get((job, at))) for at, ended in ends.items()]
            checked = [ended <= began for ended, began in pairs if ended is not None and began is not None]
            assert len(checked) >= 2
            assert all(checked)


def test_a_job_that_waits_for_a_file_looks_again_until_it_is_there_and_uses_no_attempt():
    with desk("wait_for_file") as here:
        here.start_nodes("wait_for_file:scheduler", 2)
        here.type("jobs", "trigger", "import_orders")
        until(lambda: len(said(here.printed(), "no orders.csv yet; it looks again")) >= 2, "two looks", here)
        (here.folder / "new").write_text("a\nb\n")
        (here.folder / "new").rename(here.folder / "orders.csv")
        until(lambda: said(here.printed(), "^imported 2 orders"), "the import", here)
        (one,) = here.recorded("import_orders")
        assert (one.state, one.attempt) == ("succeeded", 1)


def test_three_holders_of_the_lock_are_in_it_one_after_the_other_with_growing_tokens():
    with desk("one_at_a_time") as here:
        # All write into one file, so that its lines are in the order of what happened.
        for _ in range(3):
            here.start("-c", "import os, runpy; os.dup2(os.open('all', os.O_CREAT | os.O_APPEND | os.O_WRONLY), 1); "
                       "runpy.run_path('one_at_a_time.py', run_name='__main__')")  # fmt: skip
        for terminal in here.terminals:
            terminal.ended()
        lines = (here.folder / "all").read_text(encoding="utf-8").splitlines()
        pairs = list(zip(lines[::2], lines[1::2], strict=True))
        assert len(pairs) == 3
        assert all(begin.split()[:2] == ["begin", end.removeprefix("end ")] for begin, end in pairs)
        tokens = [int(begin.split()[-1]) for begin, _ in pairs]
        assert tokens == sorted(set(tokens))


def test_a_job_that_takes_longer_than_its_interval_never_runs_beside_itself_and_the_ledger_says_so():
    with desk("longer_than_its_interval") as here:
        here.start_nodes("longer_than_its_interval:scheduler", 2)
        until(lambda: len(said(here.printed(), "^end")) >= 2, "two runs", here)
        ran = [one for one in here.recorded("sync") if one.started_at is not None]
        spans = sorted((one.started_at, one.finished_at) for one in ran if one.started_at and one.finished_at)
        assert len(spans) >= 2
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        ledger = json.loads(here.type("ledger", "sync", "-o", "json"))["lines"]
        assert {line["reason"] for line in ledger if line["verdict"] == "skipped"} == {"overlap"}


def test_a_job_that_a_customer_adds_runs_on_a_node_that_was_there_before_and_adding_it_again_changes_nothing():
    with desk("one_job_per_customer") as here:
        here.start_nodes("one_job_per_customer:scheduler", 2)
        for _ in range(2):
            here.start("one_job_per_customer.py", "42", "* * * * * *", "Europe/Paris").ended()
        until(lambda: len(said(here.printed(), "^report for customer 42")) >= 2, "two reports", here)
        check_each_time_ran_once(here, "report:42", "^report for customer 42")


def test_the_web_page_shows_the_jobs_to_those_who_know_the_token():
    token = "a token of the test"
    with desk("web_page") as here:
        here.start("-m", "uvicorn", "--uds", "socket", "web_page:app", CRONSENSUS_DASHBOARD_TOKEN=token)
        until(lambda: said(here.printed(), "startup complete"), "the server", here)
        with client(here) as user:
            assert user.get("/cron/jobs").status_code == 401
            page = user.get("/cron/jobs", headers={"Authorization": f"Bearer {token}"})
        assert page.status_code == 200
        assert "every minute" in page.text


def code_of(recipe: Path) -> str:
    """A file without its docstring."""
    text = recipe.read_text(encoding="utf-8")
    docstring = ast.parse(text).body[0]
    assert docstring.end_lineno is not None
    return "".join(text.splitlines(keepends=True)[docstring.end_lineno :]).strip()


def shown_in(page: Path, recipe: Path) -> str:
    """What a page shows of a file; it also leads there."""
    text = page.read_text(encoding="utf-8")
    shown = re.search(rf"<!-- snippet file: {recipe.name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    assert f"../examples/recipes/{recipe.name}" in text
    return shown[1].strip()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_the_page_shows_the_file_that_is_run(recipe: Path):
    assert shown_in(ROOT / "docs" / "recipes.md", recipe) == code_of(recipe)
    assert f'"{recipe.stem}"' in Path(__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_the_chinese_page_shows_the_same_file_but_for_comments_and_the_zone(recipe: Path):
    code = code_of(recipe).replace("Europe/Paris", "Asia/Shanghai").replace("PARIS", "SHANGHAI")
    shown = shown_in(ROOT / "docs" / "zh" / "recipes.md", recipe)
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(code))
