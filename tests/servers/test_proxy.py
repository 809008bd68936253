"""The bad network does what it is told."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.servers.proxy import RESET, Proxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(65536):
                self.server.heard += data  # type: ignore[attr-defined]
                self.request.sendall(data.upper())


@pytest.fixture
def server() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.heard = b""  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(server: socketserver.ThreadingTCPServer) -> Iterator[Proxy]:
    with Proxy(f"echo://somebody@127.0.0.1:{server.server_address[1]}/place?with=options") as proxy:
        yield proxy


@contextlib.contextmanager
def connected(proxy: Proxy) -> Iterator[socket.socket]:
    parts = urlsplit(proxy.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as client:
        yield client


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return hear(client, len(text))


def hear(client: socket.socket, number: int) -> bytes:
    answer = b""
    while len(answer) < number and (piece := client.recv(number - len(answer))):
        answer += piece
    return answer


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        return not client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)


def test_it_passes_on_and_keeps_the_rest_of_the_url(proxy: Proxy) -> None:
    assert proxy.url.startswith("echo://somebody@127.0.0.1:")
    assert proxy.url.endswith("/place?with=options")
    with connected(proxy) as client:
        assert ask(client, b"x" * 300_000) == b"X" * 300_000
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert proxy.connections == 1


@pytest.mark.parametrize("end", ["close", "reset"])
def test_in_a_black_hole_the_server_does_not_hear_that_its_client_is_gone(
    server: socketserver.ThreadingTCPServer, proxy: Proxy, end: str
) -> None:
    ended = threading.Event()
    finish = server.shutdown_request
    server.shutdown_request = lambda request: (ended.set(), finish(request))  # type: ignore[method-assign,assignment,func-returns-value]
    with connected(proxy) as client:
        assert ask(client, b"hello") == b"HELLO"
        proxy.black_hole()
        if end == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    assert not ended.wait(0.3)
    assert server.heard == b"hello"  # type: ignore[attr-defined]
    with connected(proxy) as another:
        another.sendall(b"who is there")
        assert is_silent(another)
        proxy.pass_on()
        assert ended.wait(60)
        assert hear(another, 12) == b"WHO IS THERE"


def test_it_holds_every_piece_back(proxy: Proxy) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        proxy.delay(0.1)
        begun = time.monotonic()
        assert ask(client, b"hello") == b"HELLO"
        assert time.monotonic() - begun >= 0.2


def test_a_delay_is_a_distance_which_is_not_the_same_both_ways(proxy: Proxy) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        proxy.delay(0.3, 0.1, jitter=0.01)
        begun = time.monotonic()
        for _ in range(15):  # under way at the same time: one after the other, they would take six seconds
            client.sendall(b"x")
            time.sleep(0.03)
        assert hear(client, 15) == b"X" * 15
        assert 0.4 <= time.monotonic() - begun < 5


def seconds_of(client: socket.socket, text: bytes) -> float:
    begun = time.monotonic()
    assert ask(client, text) == text.upper()
    return time.monotonic() - begun


def test_connections_are_set_up_slowly(proxy: Proxy) -> None:
    proxy.slow_set_up(0.3)
    begun = time.monotonic()
    with connected(proxy) as client:
        assert ask(client, b"hello") == b"HELLO"
        assert time.monotonic() - begun >= 0.3
        assert min(seconds_of(client, b"again") for _ in range(5)) < 0.3


def test_the_first_request_of_a_kind_is_slow_on_each_connection(proxy: Proxy) -> None:
    proxy.slow_first(0.3, b"query")
    for _ in range(2):
        with connected(proxy) as client:
            took = []
            for text in (b"hello", b"query", b"query"):
                begun = time.monotonic()
                ask(client, text)
                took.append(time.monotonic() - begun >= 0.3)
            assert took == [False, True, False]


def test_it_swallows_what_goes_one_way(proxy: Proxy, server: socketserver.ThreadingTCPServer) -> None:
    with connected(proxy) as client:
        proxy.drop("down")
        client.sendall(b"lost")
        assert is_silent(client)
        assert server.heard == b"lost"  # type: ignore[attr-defined]
        proxy.pass_on()
        assert ask(client, b"hello") == b"HELLO"
        proxy.drop("up")
        client.sendall(b"unheard")
        assert is_silent(client)
        assert b"unheard" not in server.heard  # type: ignore[attr-defined]


def test_it_freezes_and_thaws(proxy: Proxy) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        proxy.freeze()
        client.sendall(b"again")
        assert is_silent(client)
        with connected(proxy) as other:
            other.sendall(b"other")
            assert is_silent(other)
            proxy.pass_on()
            assert hear(other, 5) == b"OTHER"
        assert hear(client, 5) == b"AGAIN"


def test_it_cuts_what_there_is_and_lets_new_ones_in(proxy: Proxy) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with connected(proxy) as again:
            assert ask(again, b"hello") == b"HELLO"


def test_it_refuses(proxy: Proxy) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with contextlib.suppress(ConnectionError), connected(proxy) as client:
        assert client.recv(1) == b""
    proxy.pass_on()
    with connected(proxy) as client:
        assert ask(client, b"hello") == b"HELLO"


def test_it_cuts_after_some_bytes(proxy: Proxy, server: socketserver.ThreadingTCPServer) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        proxy.cut_after(3, "up")
        client.sendall(b"again")
        proxy.await_strike()
        with pytest.raises(ConnectionResetError):
            hear(client, 5)
    assert server.heard.removeprefix(b"hello") in {b"", b"aga"}  # type: ignore[attr-defined]
    with connected(proxy) as client:
        assert ask(client, b"hello") == b"HELLO"
        proxy.cut_after(7, "down")
        assert ask(client, b"hello") == b"HELLO"
        with contextlib.suppress(ConnectionResetError):
            assert ask(client, b"hello") == b"HE"
    proxy.await_strike(2)


def test_it_loses_the_answer_and_not_the_question(proxy: Proxy, server: socketserver.ThreadingTCPServer) -> None:
    with connected(proxy) as client, connected(proxy) as other:
        proxy.lose_answer_to(b"commit")
        assert ask(client, b"begin") == b"BEGIN"
        client.sendall(b"please commit now")
        proxy.await_strike()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert server.heard.endswith(b"commit now")  # type: ignore[attr-defined]
        assert ask(other, b"commit") == b"COMMIT"


def test_without_a_server_it_closes(server: socketserver.ThreadingTCPServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Proxy(f"echo://127.0.0.1:{port}") as proxy, connected(proxy) as client:
        assert client.recv(1) == b""


def test_a_connection_that_both_sides_ended_is_closed(proxy: Proxy) -> None:
    for _ in range(20):
        with connected(proxy) as client:
            assert ask(client, b"hello") == b"HELLO"
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    deadline = time.monotonic() + 30
    while proxy._links:
        assert time.monotonic() < deadline, "ended connections are kept"
        threading.Event().wait(0.01)
