"""A job fails with secrets in its errors, log lines and arguments: none of them gets out, wherever one looks."""

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from queue import Queue
from types import SimpleNamespace
from typing import Any

import psycopg
import pymysql
import pytest

from cronsensus import Alert, Scheduler
from cronsensus.alerts import watching
from cronsensus.alerts.alert import read_alerts
from cronsensus.alerts.sending import send_message
from cronsensus.cli.log import JsonLines, TextLines
from cronsensus.config import Settings
from cronsensus.dashboard import dashboard
from cronsensus.errors import CronsensusError, Retry, RunFailed
from cronsensus.lifecycle.pinging import Pinging
from cronsensus.metrics import metrics_wsgi
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.stores import open_store
from cronsensus.stores.connecting import connecting
from cronsensus.stores.redis import redis_url
from cronsensus.stores.sql.mysql import mysql_url
from cronsensus.stores.sql.mysql.mysql_errors import translate_error as translate_mysql
from cronsensus.stores.sql.postgres import postgres_url
from cronsensus.stores.sql.postgres.postgres_errors import translate_error as translate_postgres
from tests.alerts.receivers import mails, webhooks
from tests.alerts.test_alerts import wait_until
from tests.alerts.test_sending import a_message
from tests.cli.conftest import invoke
from tests.dashboard.browser import Browser

SECRET = "hunter2"
TOLD = f"postgresql://shop:{SECRET}@db/shop refused (PGPASSWORD={SECRET}, Authorization: Bearer {SECRET})"


@dataclass
class Night:
    """What was left behind of a night, and what others were told while it lasted."""

    url: str
    scheduler: Scheduler
    failed: int
    told: dict[str, str]

    def page(self, path: str) -> str:
        answer = Browser(dashboard(self.scheduler)).get(path.format(run=self.failed))
        assert answer.status_code == 200, answer.text
        return answer.text

    def command(self, line: str) -> str:
        answer = invoke(*line.format(run=self.failed).split(), "--url", self.url)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), answer
        return answer.out + answer.err

    def metrics(self) -> str:
        return b"".join(metrics_wsgi(self.scheduler)({"REQUEST_METHOD": "GET"}, lambda *_: None)).decode()

    def texts_of_rows(self) -> str:
        """Return what the store keeps, but for arguments and results."""
        store = self.scheduler.store
        [one] = store.occurrences(OccurrenceFilter(job="export", states=()), limit=1, newest_first=False)
        return repr((one.error, one.reason, store.runs(one.id), store.logs(one.id), store.trail()))


class _Lines(logging.Handler):
    """Writes as any application does, with tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    url = f"sqlite:///{tmp_path_factory.mktemp('night')}/jobs.db"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        hook, (server, letters) = stack.enter_context(webhooks()), stack.enter_context(mails())
        patch.setattr(watching, "SCAN_EVERY", timedelta(seconds=0.1))
        patch.setenv("CRONSENSUS_SMTP_URL", server)
        scheduler = Scheduler(url, alerts=[Alert(hook.url), Alert("mailto://ops@example.org")])

        @scheduler.job(retries=1, retry_delay="1ms")
        def export(*, password: str) -> None:
            logging.getLogger("shop").warning("connecting: %s", TOLD)
            try:
                raise OSError(TOLD)
            except OSError as error:
                raise ConnectionError(f"cannot export: {TOLD}") from error

        @scheduler.job(retries=1, retry_delay="1ms")
        def later() -> None:
            raise Retry(f"not yet: {TOLD}", after="1h")

        @scheduler.job()
        def rotate() -> dict[str, str]:
            return {"api_key": SECRET, "shop": "north"}

        events: list[Any] = []
        scheduler.on("run.ended", events.append)
        lines = _Lines()
        log = logging.getLogger("cronsensus")
        log.addHandler(lines)
        stack.callback(log.removeHandler, lines)
        with scheduler:
            wait_until(lambda: all(one.note is not None for one in watches(scheduler)))
            rotate.enqueue().result("20s")
            handle = export.enqueue(password=SECRET)
            with pytest.raises(RunFailed) as failure:
                handle.result("20s")
            waits = later.enqueue()
            wait_until(lambda: len(events) == 4 and hook.bodies and letters)
            scheduler.store.cancel(waits.id, by="ada", why=f"token={SECRET}")
            scheduler.store.pause("later", by="ada", why=f"token={SECRET}")
        told = {
            "webhook": repr(hook.bodies),
            "mail": "".join(letters),
            "log": "\n".join(lines.lines),
            "events": repr(events),
            "error": str(failure.value),
        }
        yield Night(url, scheduler, handle.id, told)


def watches(scheduler: Scheduler) -> list[Any]:
    """Return the runs that watch for the two alerts."""
    assert scheduler.alerts is not None
    jobs = [f"cronsensus:alert:{name}" for name in scheduler.alerts.by_name]
    found = [scheduler.store.occurrences(OccurrenceFilter(job=job)) for job in jobs]
    return [one for [one] in found]


TELLS: dict[str, Callable[[Night], str]] = {
    "the rows": Night.texts_of_rows,
    **{
        f"the {what}": (lambda night, what=what: night.told[what])  # type: ignore[misc]
        for what in ("webhook", "mail", "log", "events", "error")
    },
    **{
        f"the page {path}": (lambda night, path=path: night.page(path))  # type: ignore[misc]
        for path in (
            "/", "/failed", "/job?name=export", "/job?name=later", "/runs/{run}", "/trail",
            "/api/runs", "/api/failed", "/api/run?id={run}", "/api/job?name=later", "/api/trail",
        )
    },
    **{
        f"cronsensus {line}": (lambda night, line=line: night.command(line))  # type: ignore[misc]
        for line in (
            "runs list", "runs list -o json", "runs show {run}", "runs show {run} -o json", "runs logs {run}",
            "runs failed", "runs failed -o json", "jobs show later", "jobs show later -o json", "jobs list",
            "trail", "trail -o json",
        )
    },
}  # fmt: skip
QUIET: dict[str, Callable[[Night], str]] = {
    "metrics": Night.metrics,
    "audit": lambda night: night.command("audit"),
    "audit as JSON": lambda night: night.command("audit -o json"),
    "doctor": lambda night: night.command("doctor"),
    "alerts": lambda night: night.command("alerts list"),
}


@pytest.mark.parametrize("exit_", TELLS)
def test_what_tells_of_an_error_or_a_reason_tells_no_secret(night: Night, exit_: str) -> None:
    text = TELLS[exit_](night)
    assert "***" in text  # it is told of, and masked
    assert SECRET not in text


@pytest.mark.parametrize("exit_", QUIET)
def test_what_tells_of_something_else_tells_no_secret(night: Night, exit_: str) -> None:
    text = QUIET[exit_](night)
    assert text
    assert SECRET not in text


def test_the_function_gets_its_arguments_and_the_caller_its_result_as_they_are(night: Night) -> None:
    store = night.scheduler.store
    [failed] = store.occurrences(OccurrenceFilter(job="export"))
    [rotated] = store.occurrences(OccurrenceFilter(job="rotate"))
    assert failed.kwargs == {"password": SECRET}
    assert rotated.result == f'{{"api_key":"{SECRET}","shop":"north"}}'
    for shown in (night.command(f"runs show {rotated.id}"), night.command(f"runs show {rotated.id} -o json")):
        assert "north" in shown
        assert SECRET not in shown
    assert '{"password":"***"}' in night.command(f"runs show {failed.id}")


@pytest.mark.parametrize("lines", [TextLines(), JsonLines("node-1")])
def test_cronsensus_run_prints_no_secret_that_a_job_logs(lines: logging.Formatter) -> None:
    try:
        raise OSError(TOLD)
    except OSError as error:
        about = (type(error), error, error.__traceback__)
    text = lines.format(logging.LogRecord("shop", logging.ERROR, "f.py", 1, "connecting: %s", (TOLD,), about))
    assert text.count("postgresql://shop:***@db") == 2
    assert SECRET not in text


STORE = f"postgresql://shop:{SECRET}@127.0.0.1:1/shop?sslpassword={SECRET}"
HOOK = f"https://ada:{SECRET}@hooks.example/{SECRET}?token={SECRET}"


def refused(call: Callable[..., object], *args: Any, **options: Any) -> str:
    """Return what the refusal says, with all its causes."""
    with pytest.raises((CronsensusError, OSError)) as no:
        call(*args, **options)
    return "".join(traceback.format_exception(no.value))


def slow_answer(url: str) -> str:
    said: Queue[str] = Queue()
    with connecting(url, said.put, after=0.0):
        return said.get(timeout=60)


URLS: dict[str, Callable[[], str]] = {
    "repr of a scheduler": lambda: repr(Scheduler(STORE)),
    "repr of its settings": lambda: repr(Settings(url=STORE, heartbeat_url=HOOK, alerts=f"{HOOK} secret={SECRET}")),
    "repr of settings of other services": lambda: repr(Settings(alerts=f"slack://{SECRET}/{SECRET}; {HOOK} on=failed")),
    "repr of an alert": lambda: repr(Alert(HOOK, secret=SECRET)),
    "repr of an alert by apprise": lambda: repr(Alert(f"slack://{SECRET}/{'B' * 9}/{'C' * 24}")),
    "repr of all alerts": lambda: repr(Scheduler(STORE, alerts=[Alert(HOOK)]).alerts),
    "repr of a MySQL store": lambda: repr(mysql_url.read_url(f"mysql://shop:{SECRET}@db/shop?ssl_key_password={SECRET}")),
    "place of a MySQL store": lambda: mysql_url.read_url(f"mysql://shop:{SECRET}@db/shop").where,
    "repr of a PostgreSQL store": lambda: repr(postgres_url.read_url(STORE)),
    "place of a PostgreSQL store": lambda: postgres_url.read_url(STORE).where,
    "repr of a Redis store": lambda: repr(redis_url.read_url(f"redis://shop:{SECRET}@db/0")),
    "place of a Redis store": lambda: redis_url.read_url(f"redis://shop:{SECRET}@db/0").where,
    "what PostgreSQL repeats": lambda: str(
        translate_postgres(psycopg.OperationalError(f"no {SECRET} here"), postgres_url.read_url(STORE))
    ),
    "what MySQL repeats": lambda: str(
        translate_mysql(
            pymysql.OperationalError(1045, f"no {SECRET} here"), mysql_url.read_url(f"mysql://shop:{SECRET}@db/shop")
        )
    ),
    "a store that cannot be reached": lambda: refused(open_store(STORE).now),
    "a URL of a store that cannot be read": lambda: refused(open_store, f"postgresql://shop:{SECRET}@[db/shop"),
    "a store that does not answer": lambda: slow_answer(STORE),
    "a slow store whose password has a slash": lambda: slow_answer(f"mysql://shop:{SECRET}/{SECRET}@db/shop"),
    "an alert without a scheme": lambda: refused(Alert, f"hooks.example/{SECRET}"),
    "an alert with a port that is none": lambda: refused(Alert, f"https://hooks.example:{SECRET}/x"),
    "an alert with a password that has a slash": lambda: refused(Alert, f"https://ada:{SECRET}/x@hooks.example/ y"),
    "an alert with a space": lambda: refused(Alert, f"{HOOK} {SECRET}"),
    "an alert by mail with a password": lambda: refused(Alert, f"mailto://ada:{SECRET}@mail.example.org"),
    "an alert by mail with a password and no slashes": lambda: refused(Alert, f"mailto:ada:{SECRET}@mail.example.org"),
    "an alert that apprise does not know": lambda: refused(Alert, f"nothing://{SECRET}/{SECRET}"),
    "an option of an alert of the settings": lambda: refused(read_alerts, f"{HOOK} x=1 y"),
    "a message that is not taken": lambda: refused(
        send_message, f"http://ada:{SECRET}@127.0.0.1:1/{SECRET}", a_message(), SECRET
    ),
    "a ping without a scheme": lambda: refused(Scheduler, "memory://", heartbeat_url=f"hc-ping.com/{SECRET}"),
    "cronsensus config": lambda: invoke("config", "--url", STORE).out,
    "cronsensus config as JSON": lambda: invoke("config", "--url", STORE, "-o", "json").out,
    "cronsensus doctor": lambda: invoke("doctor", "--url", STORE).text,
    "cronsensus jobs list": lambda: invoke("jobs", "list", "--url", STORE).text,
}  # fmt: skip


@pytest.mark.parametrize("way", URLS)
def test_no_way_of_a_url_to_people_shows_its_secrets(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apprise = SimpleNamespace(Apprise=lambda: SimpleNamespace(add=lambda url: not url.startswith("nothing:")))
    monkeypatch.setitem(sys.modules, "apprise", apprise)
    text = URLS[way]()
    assert text
    assert SECRET not in text.lower()


def test_a_ping_that_arrives_nowhere_is_logged_without_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    pinging = Pinging(f"http://ada:{SECRET}@127.0.0.1:1/{SECRET}", lambda: True)
    pinging.start_pinging()
    wait_until(lambda: bool(caplog.messages))
    pinging.stop_pinging()
    assert SECRET not in caplog.text
