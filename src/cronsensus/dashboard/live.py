"""Pages that stay current: each is made at most once every two seconds, for all viewers.

An open page gets its new content by server-sent events when it has changed; with a server of synchronous workers it
polls instead. All viewers share a page, so twenty open tabs read the store no more often than one. A page without
viewers costs nothing.

A page that has not changed is not sent again: a few bytes say that it is the same, and of which moment the data is.
Growing ages are no change: the page in the browser counts on by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from cronsensus.dashboard.access import App, Message, Scope, permission_of
from cronsensus.dashboard.language import COOKIE
from cronsensus.dashboard.page_zone import CHOSEN, choose_zone
from cronsensus.dashboard.run_filters import FILTERS

STOPPING = "cronsensus.dashboard.stopping"
"""The key in the scope of a request under which a server puts the ``asyncio.Event`` of its stop."""
CURRENT_SECONDS = 2.0
"""Seconds for which a page counts as current."""
_STREAM_SECONDS = 20.0
"""Seconds after which a stream ends, and the browser opens another: a server that stops waits for open streams."""
_MOST_PAGES = 200
PARAMETERS: dict[str, frozenset[str]] = {
    "": frozenset({"by", "all"}),
    "jobs": frozenset({"q", "after", "only"}),
    "job": frozenset({"name", "before"}),
    "ledger": frozenset({"job", "at", "until", "span"}),
    "runs": frozenset({"after", "attempt", "batch", "log", *FILTERS}),
    "queue": frozenset({"after"}),
    "graph": frozenset({"job", "at"}),
    "trail": frozenset({"before", "target"}),
    "failed": frozenset({"job", "since"}),
}
"""The query parameters that pages read, by the first part of their path. Others would only make a page again."""
COMMON_PARAMETERS = frozenset({"lang", "did", "zone"})
TAG, DATA_OF = "x-page-tag", "x-data-of"
"""Headers of a page: the tag of its content, and the moment that it shows."""
_AGE_TEXT = re.compile(r'(<(?:time class="rel|span id="age")[^>]*>)[^<]*')
_NO_STORE = {"cache-control": "no-store"}
_NO_PAGES = ("/live", "/static", "/do/")


@dataclass(slots=True)
class _Page:
    """A page as it was last made. The lock lets one request make it while others wait for it."""

    made_at: float = float("-inf")
    text: str = ""
    tag: str = ""
    data_of: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def page_tag(text: str) -> str:
    """Return the tag of a page's content: pages that differ only in ages of times have the same tag."""
    return hashlib.sha256(_AGE_TEXT.sub(r"\1", text).encode("utf-8", "replace")).hexdigest()[:16]


class Live:
    """Answers with the present content of a page."""

    def __init__(self) -> None:
        self.app: App
        self._pages: OrderedDict[tuple[object, ...], _Page] = OrderedDict()

    async def answer(self, request: Request) -> Response:
        """Answer with the page that ``of`` names: as a stream of its changes, or once.

        ``seen`` is the tag of the browser's content; a stream that it opens again has it in a header.
        """
        address = urlsplit(request.query_params.get("of", ""))
        path = address.path or "/"
        if address.scheme or address.netloc or not path.startswith("/") or path.startswith(_NO_PAGES):
            return PlainTextResponse("of= is the path of a page\n", 400)
        parameters = PARAMETERS.get(path.split("/")[1], frozenset()) | COMMON_PARAMETERS
        query = urlencode([pair for pair in parse_qsl(address.query, keep_blank_values=True) if pair[0] in parameters])
        browser_tag = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        if "text/event-stream" not in request.headers.get("accept", ""):
            page = await self._current(request, path, query)
            headers = {**_NO_STORE, TAG: page.tag, DATA_OF: page.data_of}
            return PlainTextResponse("same" if page.tag == browser_tag else page.text, headers=headers)
        return StreamingResponse(
            self._stream(request, path, query, browser_tag),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no", **_NO_STORE},
        )

    async def _stream(self, request: Request, path: str, query: str, browser_tag: str) -> AsyncIterator[str]:
        yield "retry: 1000\n\n"
        end = _time() + _STREAM_SECONDS
        stopping = request.scope.get(STOPPING) or asyncio.Event()
        while _time() < end and not stopping.is_set():
            page = await self._current(request, path, query)
            # Silence would look like a page whose server is gone.
            if page.tag == browser_tag:
                yield f"event: same\ndata: {page.data_of}\n\n"
            else:
                yield f"id: {page.tag}\ndata: {json.dumps(page.text)}\n\n"
            browser_tag = page.tag
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopping.wait(), CURRENT_SECONDS)

    async def _current(self, request: Request, path: str, query: str) -> _Page:
        """Return a page as it is now, or was less than ``CURRENT_SECONDS`` seconds ago."""
        headers = [pair for pair in request.scope["headers"] if pair[0] in {b"host", b"cookie", b"accept-language"}]
        zone = choose_zone(None, request.cookies)
        language = (request.cookies.get(COOKIE), request.headers.get("accept-language"))
        scope = {**request.scope, "method": "GET", "headers": headers}
        scope["path"] = str(scope.get("root_path", "")) + path
        scope["raw_path"] = scope["path"].encode()
        scope["query_string"] = query.encode()
        key = (scope["path"], query, language, (request.cookies.get(CHOSEN, "")[:9], zone.viewer), permission_of(scope))
        page = self._pages.setdefault(key, _Page())
        self._pages.move_to_end(key)
        while len(self._pages) > _MOST_PAGES:
            self._pages.popitem(last=False)
        async with page.lock:
            if _time() - page.made_at >= CURRENT_SECONDS * 0.9:
                page.text, page_headers = await _made(self.app, scope)
                # Answers that are no page have no tag.
                page.tag, page.data_of = page_headers.get(TAG) or page_tag(page.text), page_headers.get(DATA_OF, "")
                page.made_at = _time()
        return page


def _time() -> float:
    return asyncio.get_running_loop().time()


async def _made(app: App, scope: Scope) -> tuple[str, dict[str, str]]:
    body, headers = bytearray(), dict[str, str]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        headers.update((key.decode("latin-1"), value.decode("latin-1")) for key, value in message.get("headers", ()))
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return body.decode(), headers
