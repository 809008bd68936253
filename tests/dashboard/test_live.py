"""Pages that stay current: one making for all who look, however many tabs are open."""

import asyncio
import json
import logging
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from cronsensus.dashboard import app, dashboard, live
from cronsensus.dashboard.access import Access
from cronsensus.dashboard.serving import Server
from tests.dashboard.browser import HERE, Browser, signed_in
from tests.hand_cluster import HandCluster


def test_twenty_tabs_ask_the_store_no_more_than_one(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    counts = cluster.store.counts

    def counting() -> Any:
        asked.append("counts")
        return counts()

    monkeypatch.setattr(cluster.store, "counts", counting)
    app = dashboard(cluster.store)

    async def tabs(number: int) -> None:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, client=HERE), base_url="http://127.0.0.1"
        ) as client:
            answers = await asyncio.gather(*(client.get("/live?of=/") for _ in range(number)))
        assert {answer.status_code for answer in answers} == {200}
        assert all("cronsensus" in answer.text for answer in answers)

    asyncio.run(tabs(20))
    assert len(asked) == 1


def test_a_stream_tells_what_the_page_has_become(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CURRENT_SECONDS", 0.05)
    monkeypatch.setattr(live, "asyncio", asyncio)
    app = dashboard(cluster.store)
    told = list[str]()

    async def watch() -> None:
        seen = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await seen.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            text = message.get("body", b"").decode().partition("\n")[2]
            if text.startswith('data: "'):
                told.append(json.loads(text[len("data: ") :]))
                if len(told) == 1:
                    cluster.store.pause("tick", by="ann", why="move")
                else:
                    seen.set()

        scope = {
            "type": "http", "method": "GET", "path": "/live", "query_string": b"of=/job%3Fname%3Dtick", "client": HERE,
            "headers": [(b"host", b"127.0.0.1"), (b"accept", b"text/event-stream")], "root_path": "", "scheme": "http",
            "http_version": "1.1", "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await app(scope, receive, send)

    asyncio.run(watch())
    assert len(told) == 2
    assert "paused: move" not in told[0]
    assert "paused: move" in told[1]


def test_a_page_that_has_not_changed_is_not_sent_again(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CURRENT_SECONDS", 0.0)
    browser = Browser(dashboard(cluster.store))
    for path in ("/", "/jobs", "/job%3Fname%3Dtick", "/queue"):
        first = browser.get(f"/live?of={path}")
        assert "<main" in first.text
        cluster.advance(3)
        again = browser.get(f"/live?of={path}&seen={first.headers['x-page-tag']}")
        assert (again.text, again.headers["x-data-of"]) == ("same", cluster.store.now().isoformat()), path
    seen = browser.get("/jobs").headers["x-page-tag"]
    cluster.store.pause("tick", by="ann", why="move")
    assert "paused: move" in browser.get(f"/live?of=/jobs&seen={seen}").text


def test_a_stream_that_is_opened_again_does_not_send_the_page_again(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_STREAM_SECONDS", 0.01)
    stream = {"accept": "text/event-stream"}
    browser = Browser(dashboard(cluster.store))
    first = browser.get("/live?of=/jobs", **stream).text
    (tag,) = re.findall(r"^id: (\w+)$", first, re.MULTILINE)
    again = browser.get("/live?of=/jobs", **stream, last_event_id=tag).text
    assert "event: same" in again
    assert len(again) < 100


def test_a_server_that_stops_ends_the_streams_of_open_pages_in_order(
    cluster: HandCluster, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(cluster.store, port=0)
    with ExitStack() as opened:
        with server.beside():
            client = opened.enter_context(signed_in(server))
            stream = client.send(
                client.build_request("GET", "/live?of=/", headers={"accept": "text/event-stream"}),
                stream=True,
            )
            lines = stream.iter_lines()
            while not next(lines).startswith("data: "):
                pass
        # One that was cut off has no end, and raises.
        list(lines)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_what_a_reader_is_sent_has_no_buttons_although_an_operator_looks_too(cluster: HandCluster) -> None:
    app = Access(
        dashboard(cluster.store)._app,  # type: ignore[attr-defined]
        lambda request: "operate" if "x-ops" in request.headers else "read",
    )
    assert "/do/pause" in Browser(app, x_ops="1").get("/live?of=/job%3Fname%3Dtick").text
    assert "/do/pause" not in Browser(app).get("/live?of=/job%3Fname%3Dtick").text


@pytest.mark.parametrize(
    "of", ["/live", "/do/pause?job=tick", "https://evil.example/", "//evil.example/", "jobs", "/static/style.css"]
)
def test_only_pages_can_be_followed(cluster: HandCluster, of: str) -> None:
    assert Browser(dashboard(cluster.store)).ask("GET", f"/live?of={of.replace('?', '%3F')}").status_code == 400


def test_a_page_is_made_once_whatever_stands_in_the_address_besides(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()
    counts = cluster.store.counts

    def counting() -> Any:
        made.append(1)
        return counts()

    monkeypatch.setattr(cluster.store, "counts", counting)
    app = dashboard(cluster.store)

    async def tabs() -> None:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, client=HERE), base_url="http://127.0.0.1"
        ) as client:
            for number in range(10):
                answer = await client.get(f"/live?of=/jobs%3Fv%3D{number}%26q%3Dtick")
                assert answer.headers["cache-control"] == "no-store"

    asyncio.run(tabs())
    assert made == [1]


def test_what_pages_read_from_their_address_is_what_keeps_them_apart() -> None:
    source = Path(app.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'query_params(?:\.get\(|\[)"(\w+)"', source))
    assert read <= set().union(*live.PARAMETERS.values()) | live.COMMON_PARAMETERS
