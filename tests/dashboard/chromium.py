"""A real browser, and a real dashboard of real nodes for it to look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from cronsensus.dashboard.serving import Server
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from tests.chaos.cluster import Cluster

HERE = Path(__file__).parent
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MILLISECONDS = 30_000
"""For what has to come; a browser that does not answer within it is one that hangs."""
NAME = "cron.example.org"
_SUM_SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shifted += one.value; })
  .observe({ type: "layout-shift", buffered: true });
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser of this machine: none is downloaded, and its profile is a temporary folder."""
    if PROGRAM is None:
        pytest.skip("service missing: chromium is not on PATH; scripts/servers --long installs it")
    with sync_playwright() as playwright:
        # A name that leads here, as that of a proxy does.
        rules = f"--host-resolver-rules=MAP {NAME} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=PROGRAM, timeout=MILLISECONDS, args=[rules])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def tab(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """Open a tab with its own cookies; fail if a page in it complains, opens a dialog, or asks another host."""
    complaints = list[str]()
    # As a person does: by the URL with the token, once.
    link, url = url, url.partition("?")[0]
    context = browser.new_context(
        base_url=url, **{"locale": "en-GB", "viewport": {"width": 1280, "height": 900}} | options
    )
    context.set_default_timeout(MILLISECONDS)
    context.add_init_script(_SUM_SHIFTS)
    page = context.new_page()
    page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(url) else complaints.append(f"asked {asked.url}"))

    def dismiss(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.goto(link)
    try:
        yield page
        assert complaints == []
    finally:
        context.close()


@contextmanager
def three_nodes(folder: Path) -> Iterator[Cluster]:
    """Run three node processes on a file."""
    cluster = Cluster(folder, app="browser_jobs:scheduler", apps=HERE)
    try:
        cluster.start("web-1", "web-2", "web-3")
        cluster.await_all()
        yield cluster
    finally:
        cluster.end_all()


@contextmanager
def served(cluster: Cluster, *, read_only: bool = False) -> Iterator[str]:
    """Serve the dashboard of the nodes; give the URL that opens it."""
    server = Server(cluster.store, port=0, by="ann", read_only=read_only)
    with server.beside():
        yield server.link


def newest(cluster: Cluster, job: str) -> Occurrence:
    return cluster.store.occurrences(OccurrenceFilter(job=job), limit=1)[0]


def ended(cluster: Cluster, number: int) -> Occurrence:
    """Wait until a run has ended."""
    found = list[Occurrence]()

    def over() -> bool:
        one = cluster.store.occurrence(number)
        assert one is not None
        found.append(one)
        return one.state.final

    cluster.until(over, f"run {number} has ended")
    return found[-1]


def begun(cluster: Cluster, number: int) -> Occurrence:
    """Wait until a node runs it."""
    found = list[Occurrence]()

    def running() -> bool:
        one = cluster.store.occurrence(number)
        assert one is not None
        found.append(one)
        return one.state == "running" and one.node is not None

    cluster.until(running, f"run {number} has begun")
    return found[-1]
