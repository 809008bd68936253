"""A service elsewhere is pinged while the last decisions were on time, and not when they were not."""

import http.server
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.config import load_settings
from cronsensus.errors import InvalidOption
from cronsensus.lifecycle.pinging import Pinging


class Receiver:
    """Counts pings.

    Attributes:
        status: what it answers.
        holds: unset to have each ping wait.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.status = 200
        self.holds = threading.Event()
        self.holds.set()
        self.url = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    got = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.paths.append(self.path)
            got.holds.wait(60)
            self.send_response(got.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    got.url = f"http://127.0.0.1:{server.server_port}/a-secret"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield got
    got.holds.set()
    server.shutdown()
    server.server_close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.02)


def test_a_node_pings_from_its_start_and_holds_up_nothing_for_it(receiver: Receiver) -> None:
    receiver.holds.clear()
    scheduler = Scheduler("memory://", heartbeat_url=receiver.url)
    decided = [scheduler.decides]

    @scheduler.job()
    def work() -> int:
        return 7

    with scheduler:
        until(lambda: receiver.paths == ["/a-secret"])
        assert work.enqueue().result("20s") == 7
        decided.append(scheduler.decides)
        began = time.monotonic()
    assert time.monotonic() - began < 4
    assert [*decided, scheduler.decides] == [False, True, False]


def test_it_is_silent_while_nothing_is_decided(receiver: Receiver) -> None:
    decides, asked = False, 0

    def answer() -> bool:
        nonlocal asked
        asked += 1
        return decides

    pinging = Pinging(receiver.url, answer, every=0.02)
    pinging.start_pinging()
    until(lambda: asked > 5)
    assert receiver.paths == []
    decides = True
    until(lambda: len(receiver.paths) > 2)
    pinging.stop_pinging()


def test_a_ping_that_arrives_nowhere_is_told_once_and_so_is_the_first_that_does(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cronsensus.heartbeat")
    receiver.status = 404
    pinging = Pinging(receiver.url, lambda: True, every=0.02)
    pinging.start_pinging()
    until(lambda: len(receiver.paths) > 3)
    receiver.status = 200
    until(lambda: len(caplog.messages) > 1)
    pinging.stop_pinging()
    assert caplog.messages == [
        "no ping reaches 127.0.0.1 (HTTP Error 404: Not Found); a service that waits for it will say that nothing runs",
        "pings reach 127.0.0.1 again",
    ]


def test_the_url_comes_from_the_environment() -> None:
    settings = load_settings(env={"CRONSENSUS_HEARTBEAT_URL": "https://u:p@hc-ping.com/a-secret"}, start="/")
    assert settings.heartbeat_url == "https://u:p@hc-ping.com/a-secret"
    with pytest.raises(InvalidOption, match="write a URL that takes a ping"):
        Scheduler("memory://", heartbeat_url="hc-ping.com/a-secret")
