"""The dashboard in a real browser, of three real nodes: what it shows, does and leaves alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from cronsensus.dashboard import live
from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from tests.chaos.cluster import Cluster
from tests.dashboard.browser_jobs import BAD, BAD_NAME
from tests.dashboard.chromium import NAME, begun, chromium, ended, newest, served, tab, three_nodes

HOSTILE = quote(BAD_NAME)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return three nodes; a run with hostile arguments succeeded, another failed, and a lock is held."""
    with three_nodes(tmp_path_factory.mktemp("nodes")) as cluster:
        store = cluster.store
        (given,) = store.enqueue([Item(job=BAD_NAME, args=(BAD,))])
        failed = store.trigger(BAD_NAME, by=BAD, why=BAD)
        store.lock(BAD_NAME, BAD, ttl=timedelta(hours=1))
        assert ended(cluster, given.id).state == "succeeded"
        assert ended(cluster, failed.id).state == "failed"
        yield cluster


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    with served(cluster) as found:
        yield found


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with tab(browser, url) as found:
        yield found


def pages(cluster: Cluster) -> list[str]:
    """Each page, with what looks like HTML on it where it can be."""
    run = newest(cluster, BAD_NAME).id
    return [
        "/", "/?by=job", "/?by=list", "/runs", f"/runs?text={quote(BAD)}&job={HOSTILE}",
        "/jobs", f"/jobs?q={quote(BAD)}", f"/job?name={HOSTILE}", "/job?name=tick", f"/runs/{run}",
        f"/runs/{run - 1}", f"/ledger?job={HOSTILE}", "/ledger?job=tick", "/nodes", "/locks", "/trail", "/failed",
        "/queue", "/ledger", "/ledger?span=1d", f"/do/pause?job={HOSTILE}", f"/do/trigger?job={HOSTILE}",
        f"/do/retry?run={run}", f"/do/break?lock={HOSTILE}", "/do/backfill?job=tick&from=5m",
    ]  # fmt: skip


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_takeover_appears_on_the_lanes_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster, served(cluster) as url, tab(browser, url) as page:
        one = begun(cluster, cluster.store.trigger("hold", by="ann").id)
        page.goto("/")
        expect(page.locator(f'.lanes a[href="/runs/{one.id}"] .b-run')).to_have_count(1)
        expect(page.locator(".takeover")).to_have_count(0)
        page.evaluate("window.mark = 'the same document'")
        assert one.node is not None
        cluster.kill(one.node)
        expect(page.locator(f'.lanes a[href="/runs/{one.id}"] .takeover')).to_have_count(1)
        expect(page.locator(f'.lanes a[href="/runs/{one.id}"] .b-crash')).to_have_count(1)
        expect(page.locator("#attention")).to_contain_text(f"{one.node} is gone")
        assert page.evaluate("window.mark") == "the same document"
        assert ended(cluster, one.id).node != one.node


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("shown", [("en-GB", 1280), ("zh-CN", 1280), ("en-GB", 390)], ids=["en", "zh", "phone"])
def test_each_page_is_whole_and_without_complaint(
    browser: Browser, cluster: Cluster, url: str, theme: Any, shown: tuple[str, int]
) -> None:
    language, width = shown
    axe = Axe()
    canvas = {"light": "rgb(246, 247, 249)", "dark": "rgb(15, 18, 22)"}[theme]
    faults = list[str]()
    size = {"width": width, "height": 900}
    with tab(browser, url, locale=language, color_scheme=theme, viewport=size) as page:
        for path in pages(cluster):
            page.goto(path)
            expect(page.locator("html")).to_have_css("background-color", canvas)
            expect(page.locator("html")).to_have_attribute("lang", language[:5] if language == "zh-CN" else "en")
            word = CHINESE["Jobs"] if language == "zh-CN" else "Jobs"
            expect(page.locator('.shell .nav a[href="/jobs"]')).to_have_text(word)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                f"{path} is wider than its window"
            )
            # Its script comes from the test, past the policy of the page; the page's own are held to it all the same.
            found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            faults += [
                f"{path}: {one['id']}: {node['html'][:200]}"
                for one in found
                if one["impact"] in {"serious", "critical"}
                for node in one["nodes"]
            ]
    assert faults == []


def test_a_phone_shows_what_time_each_run_was_for(browser: Browser, url: str) -> None:
    with tab(browser, url, viewport={"width": 390, "height": 900}) as page:
        page.goto("/job?name=tick")
        expect(page.locator('.runs td[data-label="For"]').first).to_be_visible()


def test_what_looks_like_html_stays_text_and_runs_nothing(page: Page, cluster: Cluster) -> None:
    texts = ""
    for path in pages(cluster):
        page.goto(path)
        assert page.locator("img, main script").count() == 0
        texts += page.locator("main").inner_text()
    assert texts.count(BAD_NAME) > 10
    assert f"ValueError: {BAD}" in texts
    assert f'"{BAD}"' in texts


def test_now_does_not_move_under_the_eyes_of_who_reads_it(browser: Browser, cluster: Cluster, url: str) -> None:
    # A list that is not full grows.
    cluster.until(lambda: len(cluster.store.occurrences(OccurrenceFilter(job="tick"), limit=40)) == 40, "runs enough")
    with tab(browser, url, viewport={"width": 1280, "height": 2400}) as page:
        page.goto("/?by=list")
        seen = set[str]()
        for _ in range(6):
            page.wait_for_timeout(1000)
            seen.add(page.locator("#lately").inner_text())
        assert len(seen) > 2  # it was current
        assert page.evaluate("window.shifted") == 0


def test_a_tab_that_nobody_sees_asks_nothing(page: Page, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    counts = cluster.store.counts

    def counting() -> Any:
        asked.append("counts")
        return counts()

    monkeypatch.setattr(live, "CURRENT_SECONDS", 0.1)
    monkeypatch.setattr(cluster.store, "counts", counting)
    # Headless, each tab counts as seen.
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.unseen === true });")
    page.goto("/")

    def asked_in_two_seconds() -> int:
        before = len(asked)
        page.wait_for_timeout(2000)
        return len(asked) - before

    turn = "window.unseen = {}; document.dispatchEvent(new Event('visibilitychange'))"
    assert asked_in_two_seconds() > 5
    page.evaluate(turn.format("true"))
    page.wait_for_timeout(300)  # what was under way
    assert asked_in_two_seconds() == 0
    page.evaluate(turn.format("false"))
    assert asked_in_two_seconds() > 5


# --- acting -----------------------------------------------------------------------------------------------------------


def act(page: Page, path: str, link: str, button: str, why: str = "") -> None:
    """Click as a person does: the link on a page, the form, and what the next page says."""
    page.goto(path)
    page.get_by_role("link", name=link, exact=True).first.click()
    if why:
        page.get_by_label("Why?").fill(why)
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("status")).to_be_visible()


def test_a_job_is_paused_and_resumed_by_clicking(page: Page, cluster: Cluster) -> None:
    act(page, "/job?name=quiet", "Pause…", "Pause", f"move {BAD}")
    job = cluster.store.job("quiet")
    assert job is not None
    assert (job.paused_by, job.paused_why) == ("ann", f"move {BAD}")
    expect(page.locator("h1")).to_contain_text("paused")
    act(page, "/job?name=quiet", "Resume…", "Resume")
    job = cluster.store.job("quiet")
    assert job is not None
    assert job.paused_at is None


def test_a_run_is_told_cancelled_and_told_again_by_clicking(page: Page, cluster: Cluster) -> None:
    act(page, "/job?name=hold", "Run now…", "Run now")
    one = begun(cluster, newest(cluster, "hold").id)
    expect(page).to_have_url(re.compile(rf"/runs/{one.id}$"))
    act(page, f"/runs/{one.id}", "Cancel…", "Ask it to stop", "no more")
    assert ended(cluster, one.id).state == "cancelled"
    expect(page.locator("h1")).to_contain_text("cancelled")  # without a reload
    act(page, f"/runs/{one.id}", "Run again…", "Run again")
    again = begun(cluster, newest(cluster, "hold").id)
    assert again.retry_of == one.id
    act(page, f"/runs/{again.id}", "Cancel…", "Ask it to stop", "no more")
    assert ended(cluster, again.id).state == "cancelled"


def test_arguments_that_are_written_reach_the_run_as_they_are(page: Page, cluster: Cluster) -> None:
    page.goto(f"/do/trigger?job={HOSTILE}")
    page.get_by_label("by position").fill('["<b>"]')
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_be_visible()
    assert ended(cluster, newest(cluster, BAD_NAME).id).args == ("<b>",)


def test_a_backfill_shows_its_times_and_runs_them(page: Page, cluster: Cluster) -> None:
    job = cluster.store.job("quiet")
    assert job is not None
    page.goto("/job?name=quiet")
    page.get_by_role("link", name="Backfill…").click()
    page.get_by_label("From").fill("3h")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("main")).to_contain_text("3 of 3 times would run.")
    page.get_by_role("button", name="Backfill").click()
    expect(page.get_by_role("status")).to_be_visible()
    made = cluster.store.occurrences(OccurrenceFilter(job="quiet"), limit=10)
    assert [ended(cluster, one.id).state for one in made if one.origin == "backfill"] == ["succeeded"] * 3


def test_a_node_is_drained_by_clicking(page: Page, cluster: Cluster) -> None:
    cluster.start("spare")
    cluster.await_all()
    page.goto("/nodes")
    page.locator("tr", has_text="spare").get_by_role("link", name="Drain…").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    expect(page.get_by_role("status")).to_be_visible()
    assert cluster.processes.pop("spare").wait(60) == 0


def test_all_of_one_error_are_run_again_and_a_lock_is_broken_by_clicking(page: Page, cluster: Cluster) -> None:
    failed = cluster.store.occurrences(OccurrenceFilter(job=BAD_NAME, states=(State.FAILED,)), limit=1)[0].id
    act(page, "/failed", "Run again…", "Run again")
    assert ended(cluster, newest(cluster, BAD_NAME).id).retry_of == failed
    cluster.store.lock("reindex", "web-1", ttl=timedelta(hours=1))
    page.goto("/locks")
    page.locator("tr", has_text="reindex").get_by_role("link", name="Break…").click()
    page.get_by_label("Why?").fill("its holder sleeps")
    page.get_by_role("button", name="Break it").click()
    expect(page.get_by_role("status")).to_be_visible()
    assert cluster.store.locks(name="reindex", limit=1) == []


def test_a_reader_has_no_button_and_a_forged_act_is_refused(browser: Browser, cluster: Cluster) -> None:
    with served(cluster, read_only=True) as url, tab(browser, url) as page:
        for path in pages(cluster):
            if not path.startswith("/do/"):
                page.goto(path)
                assert page.locator('a[href*="/do/"], form[method=post]').count() == 0, path
        answer = page.request.post("/do/pause", form={"job": "tick", "reason": "forged", "form_token": "x" * 32})
        assert answer.status == 403
    job = cluster.store.job("tick")
    assert job is not None
    assert job.paused_at is None


def test_a_page_of_another_site_cannot_act(browser: Browser, cluster: Cluster, url: str) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(url)
        home = url.partition("?")[0]
        page.goto(f"{home}do/pause?job=tick")  # the browser has the cookie now
        page.goto("about:blank")
        page.set_content(
            f'<form method="post" action="{home}do/pause"><input name="job" value="tick"><button>win</button></form>'
        )
        with page.expect_response("**/do/pause") as answer:
            page.get_by_role("button").click()
        # The cookie with which it looked is not sent along.
        assert answer.value.status == 401
    finally:
        context.close()
    job = cluster.store.job("tick")
    assert job is not None
    assert job.paused_at is None


def test_by_another_name_without_tls_a_form_is_taken(
    browser: Browser, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONSENSUS_DASHBOARD_TOKEN", "0123456789abcdef")
    with served(cluster) as url, tab(browser, f"{url.replace('127.0.0.1', NAME)}?key=0123456789abcdef") as page:
        page.goto("/do/pause?job=quiet")
        page.locator("[name=reason]").fill("move")
        with page.expect_response("**/do/pause") as answer:
            page.locator("[name=reason]").press("Enter")
        assert answer.value.status == 303
    cluster.store.resume("quiet", by="ann")


def test_a_link_of_another_site_leads_to_a_page_that_opens_it_again(browser: Browser, url: str) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(url)
        home = url.partition("?")[0]
        page.goto(f"{home.replace('127.0.0.1', NAME)}healthz")
        page.evaluate(
            "url => { const a = document.createElement('a'); a.href = url; a.text = 'x'; document.body.append(a) }",
            f"{home}jobs?q=tick",
        )
        with page.expect_response("**/jobs?q=tick") as answer:
            page.locator("a").click()
        assert answer.value.status == 401
        with page.expect_response("**/jobs?q=tick") as answer:
            page.get_by_role("link", name="open it again").click()
        assert answer.value.status == 200
    finally:
        context.close()


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_find_walk_through_rows_and_open_pages(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("quiet")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs\?q=quiet$"))
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"/jobs$"))
    rows = page.locator("tbody tr a:first-of-type")
    names = page.locator("tbody tr td:first-child a")
    assert rows.count() >= names.count() > 2
    for key, row in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        expect(names.nth(row)).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
