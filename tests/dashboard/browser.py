"""A browser without a network: it keeps cookies, and reads and sends forms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx

from cronsensus.dashboard.serving import Server

HERE = ("127.0.0.1", 50000)


class Browser:
    """Asks an application without a network, and keeps its cookies."""

    def __init__(self, app: Any, client: tuple[str, int] = HERE, **headers: str) -> None:
        self._transport = httpx.ASGITransport(app, client=client)
        self._headers = headers
        self.cookies = httpx.Cookies()

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.ask("GET", path, None, **headers)

    def ask(self, method: str, path: str, data: dict[str, str] | None = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): text for name, text in {**self._headers, **headers}.items()}
        return asyncio.run(self._ask(method, path, data, named))

    async def _ask(
        self, method: str, path: str, data: dict[str, str] | None, headers: dict[str, str]
    ) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=self._transport, base_url="http://127.0.0.1:8080", cookies=self.cookies
        ) as client:
            answer = await client.request(method, path, headers=headers, data=data)
        self.cookies.update(answer.cookies)
        return answer

    def fill(self, path: str, **fields: str) -> httpx.Response:
        """Open a page, fill its form in and send it."""
        page = self.get(path)
        assert page.status_code == 200, page.text
        form = Form(page.text)
        assert form.action is not None, page.text
        return self.ask("POST", form.action, {**form.fields, **fields})

    def do(self, path: str, **fields: str) -> httpx.Response:
        """As ``fill``, and look at the page to which it leads."""
        answer = self.fill(path, **fields)
        assert answer.status_code == 303, answer.text
        return self.get(answer.headers["location"])


def words_of(text: str) -> str:
    """Return what of a page is read, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", text)).split())


@contextmanager
def signed_in(server: Server) -> Iterator[httpx.Client]:
    """Open the URL that a dashboard printed; give a client that keeps its cookie."""
    with httpx.Client(base_url=server.url, timeout=10, follow_redirects=True) as client:
        assert client.get(server.link, headers={"accept": "text/html"}).status_code == 200
        yield client


class Form(HTMLParser):
    """The form of a page that is to be posted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = given.get("method") == "post"
            if self._inside:
                self.action = given["action"]
        elif self._inside and tag in {"input", "textarea", "select"}:
            self.fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
