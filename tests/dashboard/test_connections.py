"""Connections that are held open, passwords that are guessed, and wrong input: nothing of it harms the node beside."""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from cronsensus.dashboard import connections, dashboard, guesses
from cronsensus.dashboard.connections import AcceptErrors, Connection
from cronsensus.dashboard.passwords import Token
from cronsensus.dashboard.serving import Server
from tests.dashboard.browser import Browser, signed_in
from tests.hand_cluster import HandCluster

WITHIN = 8.0
"""Seconds for what takes two; more on a busy machine."""


@pytest.fixture
def server(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(connections, "BODY_SECONDS", 1.0)
    monkeypatch.setattr("cronsensus.dashboard.serving.most_connections", lambda: 5)
    server = Server(cluster.store, port=0)
    with server.beside():
        yield server


def connect(server: Server, text: bytes = b"") -> socket.socket:
    address = httpx.URL(server.url)
    made = socket.create_connection((address.host, address.port or 80), timeout=WITHIN)
    made.sendall(text)
    return made


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_ended(wire: socket.socket) -> bool:
    """Wait until the server has ended a connection; whatever it sent before is thrown away."""
    try:
        while wire.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /do/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\na=",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_who_does_not_finish_a_request_is_disconnected(server: Server, text: bytes) -> None:
    with connect(server, text) as wire:
        assert is_ended(wire)


def test_who_takes_no_answer_is_disconnected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 1.0)
    known = server._server.server_state
    with connect(server, b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 400):
        wait_until(lambda: any(one.transport.get_write_buffer_size() for one in known.connections))
        wait_until(lambda: not known.connections)


def test_a_browser_that_asks_again_and_again_is_served_at_once(server: Server) -> None:
    took = list[float]()
    with signed_in(server) as client:
        for _ in range(20):
            answer = client.get("/locks")
            assert answer.status_code == 200
            took.append(answer.elapsed.total_seconds())
    # Where head and body of an answer wait for each other, each takes 40 ms or more.
    assert min(took) < 0.035


def test_too_many_connections_are_refused_and_it_says_so_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Connection, "refused", connections.SeldomLog())
    held = [connect(server) for _ in range(5)]
    for _ in range(20):
        with connect(server) as refused:
            assert is_ended(refused)
    assert [one for one in caplog.messages if "5 connections are open" in one][1:] == []
    assert "5 connections are open" in caplog.text
    for wire in held:
        wire.close()
    with signed_in(server):
        pass


def test_when_no_file_can_be_opened_it_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    handler = AcceptErrors()
    loop = asyncio.new_event_loop()
    for _ in range(1_000):
        handler(loop, {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "x")})
    handler(loop, {"message": "something else", "exception": ValueError("seen")})
    loop.close()
    assert caplog.text.count("cannot accept connections") == 1
    assert "seen" in caplog.text


def test_requests_that_are_none_are_not_logged_each(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with connect(server, b"\x16\x03\x01 what\r\n\r\n") as wire:
        assert is_ended(wire)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_pages_are_compressed_but_those_with_a_form(server: Server) -> None:
    with signed_in(server) as client:
        assert client.get("/jobs").headers["content-encoding"] == "gzip"
        assert "content-encoding" not in client.get("/do/pause?job=tick").headers


def test_wrong_passwords_are_logged_and_then_wait(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept = list[float]()
    token = Token("0123456789abcdef")
    browser = Browser(dashboard(cluster.store, auth=token))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("cronsensus.dashboard.access.asyncio.sleep", sleep)
    for number in range(100):
        assert browser.get("/", authorization=f"Bearer hunter{number}").status_code == 401
    assert slept == [guesses.PAUSE_SECONDS] * 80
    assert "from 127.0.0.1: 64 lately" in caplog.text
    assert caplog.text.count("a wrong password") == 7
    assert "hunter" not in caplog.text
    # A right one waits as well: else who gives up after a moment would know that it was wrong.
    assert browser.get("/", authorization="Bearer 0123456789abcdef").status_code == 200
    assert len(slept) == 81


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/ledger?job=tick&at=0001-01-01", 400, "This is no time"),
        ("/ledger?job=tick&at=0001-01-01T00:00%2B14:00", 400, "This is no time"),
        ("/do/backfill?job=tick&from=0001-01-01&to=now", 200, "of 1900 or later"),
        ("/failed?since=abc", 400, "is not a time"),
        ("/do/retry-failed?since=abc", 400, "is not a time"),
        ("/api/why?job=tick&at=0001-01-01", 400, "of 1900 or later"),
        ("/runs/" + "9" * 5000, 404, "There is no such run"),
        ("/runs/x/items", 404, "There is no such run"),
        ("/api/nothing", 404, '"error"'),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_wrong(cluster: HandCluster, path: str, status: int, said: str) -> None:
    answer = Browser(dashboard(cluster.store)).get(path)
    assert answer.status_code == status, answer.text
    assert said in answer.text
    assert "The store does not answer" not in answer.text
