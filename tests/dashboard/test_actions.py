"""Acting from a page: it is shown first, done once, and written into the trail."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Handle, Run, Scheduler, every
from cronsensus.dashboard import dashboard
from cronsensus.dashboard.actions import ACTIONS, DONE_MESSAGES
from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.dashboard.run_again import run_again
from cronsensus.dashboard.run_now import run_now
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from tests.dashboard.browser import Browser, Form
from tests.hand_cluster import HandCluster

SESSION = "session-of-node-1"


@pytest.fixture
def cluster() -> HandCluster:
    """Return a cluster in which a job succeeded once, failed once, and one run waits."""
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.declare("queue")
    cluster.advance(60)
    cluster.run_once()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.fail(claim, "no route")
    cluster.store.enqueue([Item(job="queue", key="waits")])
    cluster.store.lock("reindex", "web-1", ttl=timedelta(hours=1))
    return cluster


@pytest.fixture
def browser(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store, by="ann@desk"))


def occurrences(cluster: HandCluster) -> list[Occurrence]:
    return cluster.store.occurrences(OccurrenceFilter(), limit=100)


def waiting(cluster: HandCluster) -> int:
    return next(one.id for one in occurrences(cluster) if one.job == "queue")


def failed(cluster: HandCluster) -> int:
    return next(one.id for one in occurrences(cluster) if one.state is State.FAILED)


def test_a_pause_is_shown_done_and_in_the_trail_and_so_is_its_end(browser: Browser, cluster: HandCluster) -> None:
    assert "/do/pause?job=tick" in browser.get("/job?name=tick").text
    text = browser.do("/do/pause?job=tick", reason="move <b>").text
    assert "It is paused." in text
    assert "/do/resume?job=tick" in text
    entry = cluster.store.trail(target="tick")[0]
    assert (entry.action, entry.by, entry.why) == ("pause", "ann@desk", "move <b>")
    page = browser.get("/do/resume?job=tick").text
    assert "move &lt;b&gt;" in page
    assert "It is resumed." in browser.do("/do/resume?job=tick").text
    text = browser.get("/trail").text
    assert text.index("resume") < text.index("pause</b>")
    assert "move &lt;b&gt;" in text


def test_a_pause_without_a_reason_is_not_done(browser: Browser, cluster: HandCluster) -> None:
    answer = browser.fill("/do/pause?job=tick", reason="  ")
    assert answer.status_code == 409
    assert "Say why" in answer.text
    view = cluster.store.job("tick")
    assert view is not None
    assert view.paused_at is None


def test_a_job_runs_now_with_its_own_and_with_other_arguments(browser: Browser, cluster: HandCluster) -> None:
    assert "this is the run" in browser.do("/do/trigger?job=queue", reason="try").text
    (made, *_) = occurrences(cluster)
    assert (made.job, made.origin, made.args) == ("queue", "manual", ())
    browser.do("/do/trigger?job=queue", reason="once more", **{"arg.args": "[42]", "arg.kwargs": '{"copies": 2}'})
    (made, *_) = occurrences(cluster)
    assert (made.args, made.kwargs, made.origin) == ((42,), {"copies": 2}, "manual")
    (act, *_) = cluster.store.trail(target="queue")
    assert (act.action, act.why, act.details["occurrence"]) == ("trigger", "once more", made.id)


def test_a_form_that_a_browser_sends_again_is_one_run(browser: Browser, cluster: HandCluster) -> None:
    """By a second click, a reload, the way back, or through another dashboard on the store."""
    form = Form(browser.get("/do/trigger?job=queue").text)
    before = len(occurrences(cluster))
    others = [
        browser,
        Browser(dashboard(cluster.store), cookie=f"cronsensus_form={browser.cookies['cronsensus_form']}"),
    ]
    with ThreadPoolExecutor(4) as threads:
        answers = list(
            threads.map(lambda number: others[number % 2].ask("POST", str(form.action), form.fields), range(4))
        )
    assert {(answer.status_code, answer.headers["location"]) for answer in answers} == {
        (303, answers[0].headers["location"])
    }
    assert len(occurrences(cluster)) == before + 1
    browser.ask("POST", str(form.action), {**form.fields, "arg.args": "[42]"})  # something else is meant
    browser.do("/do/trigger?job=queue")
    assert len(occurrences(cluster)) == before + 3
    assert len({one.key for one in occurrences(cluster)}) == before + 3
    made = browser.ask("POST", str(form.action), {**form.fields, "form": "order:42"})
    assert made.status_code == 303
    assert all(one.key != "order:42" for one in occurrences(cluster))


def make_chain(scheduler: Scheduler) -> tuple[Handle[Any], Handle[Any]]:
    """Return a cancelled run of ``extract`` and one of ``load``, which comes after it, for the same time."""

    @scheduler.job(every("1h"))
    def extract() -> None: ...

    @scheduler.job(after=[extract])
    def load() -> None: ...

    with scheduler:
        now = scheduler.store.now()
    first, behind = (scheduler.backfill(name, now - timedelta(hours=1), now)[0] for name in ("extract", "load"))
    for one in (first, behind):
        one.cancel(reason="no source")
    return first, behind


def test_what_comes_after_a_job_is_named_with_the_command_that_has_it_follow() -> None:
    scheduler = Scheduler("memory://")
    make_chain(scheduler)
    browser = Browser(dashboard(scheduler))
    text = browser.get("/do/trigger?job=extract").text
    command = "cronsensus jobs trigger extract --downstream"
    assert f"What comes after it does not follow: load. To have it follow: {command}" in text
    assert "它的下游不会随之运行" in browser.get("/do/trigger?job=extract", accept_language="zh").text


def test_a_run_is_run_again_with_what_comes_after_it_if_one_ticks_the_box(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/night.db")
    made, behind = make_chain(scheduler)
    browser = Browser(dashboard(scheduler))
    text = browser.get(f"/do/retry?run={made.id}").text
    assert "After it comes: load. It follows only if you tick the box." in text
    assert f"{behind.id} load" in text
    browser.do(f"/do/retry?run={made.id}", downstream="1")
    again = {
        one.job: one.retry_of for one in scheduler.store.occurrences(OccurrenceFilter()) if one.retry_of is not None
    }
    assert again == {"extract": made.id, "load": behind.id}


def test_arguments_that_are_no_json_are_refused_and_kept_in_the_form(browser: Browser, cluster: HandCluster) -> None:
    before = len(occurrences(cluster))
    answer = browser.fill("/do/trigger?job=queue", **{"arg.args": "{42}"})
    assert answer.status_code == 409
    assert "is no JSON list" in answer.text
    assert ">{42}</textarea>" in answer.text
    assert len(occurrences(cluster)) == before


def test_a_failed_run_is_tried_again_and_a_waiting_one_cancelled(browser: Browser, cluster: HandCluster) -> None:
    number = failed(cluster)
    text = browser.do(f"/do/retry?run={number}").text
    assert "this is the new run" in text
    assert f"try of run {number} again" in text
    number = waiting(cluster)
    assert "It waits, and will not run." in browser.get(f"/do/cancel?run={number}").text
    browser.do(f"/do/cancel?run={number}", reason="wrong month")
    one = cluster.store.occurrence(number)
    assert one is not None
    assert one.state is State.CANCELLED


def test_a_form_whose_target_has_changed_does_nothing(browser: Browser, cluster: HandCluster) -> None:
    number = waiting(cluster)
    form = Form(browser.get(f"/do/cancel?run={number}").text)
    cluster.claim()
    answer = browser.ask("POST", str(form.action), {**form.fields, "reason": "wrong month"})
    assert answer.status_code == 409
    assert "It has changed since this form was opened" in answer.text
    assert "It is asked to stop, and is running until it does." in answer.text
    one = cluster.store.occurrence(number)
    assert one is not None
    assert one.state is State.RUNNING


def test_a_backfill_is_previewed_and_runs_what_was_shown(browser: Browser, cluster: HandCluster) -> None:
    path = "/do/backfill?job=tick&from=2026-11-20T12:00Z&to=2026-11-20T12:02Z"
    text = browser.get(path).text
    assert "2 of 3 times would run." in text
    assert "has succeeded: left alone" in text
    assert "will run" in text
    browser.do(path, reason="mail was down")
    assert sum(one.origin == "backfill" for one in occurrences(cluster)) == 2
    assert "No time is left to run." in browser.get(path).text


@pytest.mark.parametrize(
    ("span", "said"),
    [("", "Say from when"), ("&from=x", "x"), ("&from=1h&to=2h", "is after"), ("&from=1h&to=2030-01-01", "future")],
)
def test_a_backfill_that_makes_no_sense_says_why(browser: Browser, span: str, said: str) -> None:
    text = browser.get(f"/do/backfill?job=tick{span}").text
    assert said in text
    assert Form(text).action is None


def test_a_node_is_drained_and_a_lock_broken(browser: Browser, cluster: HandCluster) -> None:
    assert f"/do/drain?node={SESSION}" in browser.get("/nodes").text
    browser.do(f"/do/drain?node={SESSION}")
    assert [one.state for one in cluster.store.sessions()] == ["draining"]
    assert "/do/break?lock=reindex" in browser.get("/locks").text
    assert "web-1" in browser.get("/do/break?lock=reindex").text
    assert "No lock is held" in browser.do("/do/break?lock=reindex", reason="hangs").text


def test_of_two_who_try_a_run_again_in_one_moment_the_second_is_told(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = failed(cluster)
    app = dashboard(cluster.store)
    browsers = [Browser(app), Browser(app)]
    forms = [Form(browser.get(f"/do/retry?run={number}").text) for browser in browsers]
    real = cluster.store.retry

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(0.1)
        return real(*args, **more)

    monkeypatch.setattr(cluster.store, "retry", slow)
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(
                lambda one: one[0].ask("POST", str(one[1].action), one[1].fields), zip(browsers, forms, strict=True)
            )
        )
    assert sorted(answer.status_code for answer in answers) == [303, 409]
    (made,) = [one for one in occurrences(cluster) if one.retry_of == number]
    late = next(answer for answer in answers if answer.status_code == 409)
    assert f"It was run again already, as run {made.id}." in late.text
    assert Form(late.text).action is None  # it waits: one more would run beside it
    for claim in cluster.claim():
        cluster.fail(claim)
    browsers[0].do(f"/do/retry?run={number}")
    assert [one.retry_of for one in occurrences(cluster)].count(made.id) == 1


@pytest.mark.parametrize(
    "path",
    [
        "pause?job=nobody",
        "cancel?run=4711",
        "cancel?run=x",
        "drain?node=x",
        "break?lock=x",
        "nothing?job=tick",
        "retry",
    ],
)
def test_what_is_not_there_cannot_be_acted_on(browser: Browser, path: str) -> None:
    assert browser.get(f"/do/{path}").status_code == 404


def test_what_cannot_be_done_has_no_button(browser: Browser, cluster: HandCluster) -> None:
    text = browser.get(f"/do/cancel?run={failed(cluster)}").text
    assert "nothing is left to cancel" in text
    assert Form(text).action is None


EVERY = {**ACTIONS, "trigger": run_now(None), "retry": run_again()}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_each_form_has_its_words_in_chinese(cluster: HandCluster, name: str) -> None:
    given = {
        "job": "tick", "run": str(failed(cluster) if name == "retry" else waiting(cluster)), "node": SESSION,
        "lock": "reindex", "from": "1h",
    }  # fmt: skip
    if name == "resume":
        cluster.store.pause("tick", by="ann", why="")
    if name == "retry-failed":
        del given["job"]
    form = EVERY[name].form(cluster.store, given)
    texts = [
        form.title,
        *form.consequences,
        *(then for _, then in form.rows),
        *([form.refused] if form.refused else []),
    ]
    said = {str(text[0]) for text in texts} | {form.button, DONE_MESSAGES[name]}
    said |= {one.label for one in (*form.fields, *form.asks)}
    assert said - set(CHINESE) == set()
    assert re.match(r"cronsensus (jobs|runs|nodes|locks) ", form.command)


@pytest.fixture
def tamper() -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda fields: {**fields, "form_token": "x" * 32}


def test_a_form_that_this_browser_was_not_given_is_refused(
    cluster: HandCluster, browser: Browser, tamper: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    form = Form(browser.get("/do/pause?job=tick").text)
    sent = {**form.fields, "reason": "x"}
    assert form.action is not None
    for asked in (
        browser.ask("POST", form.action, tamper(sent)),
        Browser(dashboard(cluster.store)).ask("POST", form.action, sent),
    ):
        assert asked.status_code == 403
        assert "Open it again" in asked.text
    assert browser.ask("POST", form.action, sent, sec_fetch_site="cross-site").status_code == 403
    assert browser.ask("POST", form.action, sent, origin="https://evil.example").status_code == 403
    assert browser.ask("POST", form.action, {**sent, "reason": "x" * 70_000}).status_code == 413
    assert cluster.store.trail(target="tick") == []
    assert browser.ask("POST", form.action, sent, sec_fetch_site="same-origin").status_code == 303


def test_nothing_changes_by_get(cluster: HandCluster, browser: Browser) -> None:
    before = occurrences(cluster)
    for name in EVERY:
        browser.get(f"/do/{name}?job=tick&run={failed(cluster)}&node={SESSION}&lock=reindex&reason=x&seen=&from=1h")
    assert occurrences(cluster) == before
    assert cluster.store.trail() == []


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


def test_a_declared_job_has_a_field_for_each_parameter(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")

    @scheduler.job()
    def invoice(
        number: int, run: Run, note: str = "none", *, size: Size = Size.SMALL, draft: bool | None = None
    ) -> None:
        """Send it."""

    scheduler.store.migrate()
    scheduler.store.define_jobs([invoice.spec], release="r1")
    browser = Browser(dashboard(scheduler))
    text = browser.get("/do/trigger?job=invoice").text
    assert "arg.run" not in text
    assert "left empty: &#34;none&#34;" in text
    assert [one for one in re.findall("<option>([^<]*)", text) if one] == [
        "&#34;small&#34;",
        "&#34;large&#34;",
        "true",
        "false",
        "null",
    ]
    wrong = browser.fill("/do/trigger?job=invoice", **{"arg.number": "many"})
    assert "&#39;number&#39; takes a number" in wrong.text
    assert "is missing" in browser.fill("/do/trigger?job=invoice", **{"arg.note": "x"}).text
    assert "cannot be called like that" in browser.fill("/do/trigger?job=invoice").text
    browser.do("/do/trigger?job=invoice", **{"arg.number": "42", "arg.note": "4 <b>", "arg.size": '"large"'})
    (one,) = scheduler.store.occurrences(OccurrenceFilter(), limit=9)
    assert one.kwargs == {"number": 42, "note": "4 <b>", "size": "large"}
    scheduler.store.close()


def test_what_is_not_written_into_a_form_is_as_the_job_has_it(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")

    @scheduler.job(every("1h"), args=(1,), kwargs={"who": "x"})
    def sync(day: int, who: str = "me", size: str = "small") -> None:
        """Send it."""

    scheduler.store.migrate()
    scheduler.store.define_jobs([sync.spec], release="r1")
    browser = Browser(dashboard(scheduler))
    text = browser.get("/do/trigger?job=sync").text
    assert "left empty: x" in text
    browser.do("/do/trigger?job=sync", **{"arg.day": "7"})
    browser.do("/do/trigger?job=sync", **{"arg.who": "zoe"})
    two, one = scheduler.store.occurrences(OccurrenceFilter(), limit=9)
    assert (one.kwargs | {"args": one.args}) == {"day": 7, "who": "x", "args": ()}
    assert (two.kwargs | {"args": two.args}) == {"day": 1, "who": "zoe", "args": ()}
    scheduler.store.close()


def test_the_trail_is_found_by_who_did_what_and_when(browser: Browser, cluster: HandCluster) -> None:
    browser.do("/do/pause?job=tick", reason="move")
    cluster.advance(3600)
    cluster.store.resume("tick", by="ben")
    pages = {
        "who=BEN": ("<b>resume</b>", "<b>pause</b>"),
        "action=pause": ("<b>pause</b>", "<b>resume</b>"),
        "until=30m": ("<b>pause</b>", "<b>resume</b>"),
        "since=30m": ("<b>resume</b>", "<b>pause</b>"),
    }
    for query, (there, gone) in pages.items():
        text = browser.get(f"/trail?{query}").text
        assert there in text
        assert gone not in text
    [act] = browser.get("/api/trail?who=ben&action=resume").json()["trail"]
    assert (act["by"], act["action"]) == ("ben", "resume")
    assert browser.get("/trail?since=never").status_code == 400
    assert "Nothing of it is in the trail." in browser.get("/trail?who=nobody").text
