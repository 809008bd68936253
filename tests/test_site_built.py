"""The site as ``make docs`` builds it: all there, found by search, usable by all, and asking nobody else.

``make docs`` itself fails on a warning of Sphinx, a dead link, and a page that names another host for what it shows.
"""

from __future__ import annotations

import re
import resource
import subprocess
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from filelock import FileLock
from playwright.sync_api import Page

import cronsensus
from tests.dashboard.chromium import chromium, tab

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "site"
SECONDS = 30
"""Of a processor, for building."""
LARGEST = 15_000_000
"""Bytes."""

# The first test of each worker waits for the environment and for the site.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Path:
    """Return the folder of the site, which one worker of a run has built."""
    shared = tmp_path_factory.getbasetemp().parent
    seconds = shared / f"site-{testrun_uid}.txt"
    with FileLock(shared / "site.lock"):
        if not seconds.exists():
            subprocess.run(["scripts/setup", ".venv-docs", "requirements/docs.lock"], cwd=ROOT, check=True)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([".venv-docs/bin/python", "site/build.py"], cwd=ROOT, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.write_text(str(after.ru_utime - before.ru_utime))
    assert float(seconds.read_text()) < SECONDS
    return SITE


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site.parent)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    # Below a folder, as a host of pages has it.
    yield f"http://127.0.0.1:{server.server_port}/{site.name}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_public_name_can_be_linked_to(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(inventory.split(b"zlib.\n", 1)[1]).decode().splitlines()
    known = {line.split(" ")[0] for line in lines if " py:" in line}
    assert {f"cronsensus.{name}" for name in cronsensus.__all__} - known == set()


def test_each_page_is_there_as_markdown_and_on_the_list_for_programs(site: Path) -> None:
    pages = [path.relative_to(site) for path in site.rglob("*.html") if path.stem != "search"]
    assert len(pages) > 90
    assert [page for page in pages if not (site / page.with_suffix(".md")).is_file()] == []
    listed = re.findall(r"\]\((\S+\.md)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert len(listed) > 40
    assert [name for name in listed if not (site / name).is_file()] == []


def test_a_chinese_heading_keeps_its_address_when_another_comes_above_it(site: Path) -> None:
    numbered = [path for path in site.glob("zh/*.html") if re.search(r'id="id\d+"', path.read_text(encoding="utf-8"))]
    assert numbered == []


def test_the_site_is_small(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < LARGEST


@pytest.mark.parametrize(("page", "words"), [("index.html", "takeover"), ("zh/index.html", "账本")])
def test_a_reader_finds_a_heading_by_words_in_both_languages(url: str, page: str, words: str) -> None:
    with chromium() as browser, tab(browser, url) as opened:
        opened.goto(url + page)
        opened.fill("#search input", words)
        opened.wait_for_selector(".pagefind-ui__result-excerpt")
        assert opened.evaluate("""() => {
            const right = (element) => element.getBoundingClientRect().right, box = document.querySelector("#search");
            return Math.max(...[...box.querySelectorAll("*")].map(right)) <= right(box);
        }"""), "results lie over the page"
        assert "::test_" not in opened.inner_text("#search")
        opened.locator(".pagefind-ui__result-link[href*='#']").first.click()
        opened.wait_for_url(re.compile("#"))
        assert words[0] in opened.inner_text("article")
        assert opened.evaluate(
            "/^H[1-6]$/.test(document.getElementById(decodeURIComponent(location.hash.slice(1))).tagName)"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index.html", "zh/guide.html", "reference/api.html"])
def test_a_page_can_be_used_by_all_and_asks_no_other_host(url: str, page: str, scheme: str) -> None:
    with chromium() as browser, tab(browser, url, color_scheme=scheme) as opened:
        opened.goto(url + page)
        opened.wait_for_selector("#search input")
        assert _violations(opened) == []


def _violations(page: Page) -> list[str]:
    # Sphinx lays a long signature out as definitions of nothing.
    options = {"resultTypes": ["violations"], "rules": {"definition-list": {"enabled": False}}}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in {"serious", "critical"}
    ]
