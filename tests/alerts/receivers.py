"""A real receiver of webhooks, and one of mail, on ports of their own."""

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Webhooks:
    """What came: bodies and headers, in order.

    Attributes:
        answers: status codes to give, the last of them again and again.
        retry_after: what goes with a 429, unless it is empty.
        hangs: set to have each request wait for ``go_on``.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        self.answers = [200]
        self.retry_after = ""
        self.hangs = False
        self.go_on = threading.Event()
        self.asked = threading.Event()
        self.url = ""

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for body in self.bodies for event in body["events"]]


@contextmanager
def webhooks() -> Iterator[Webhooks]:
    got = Webhooks()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.asked.set()
            if got.hangs:
                got.go_on.wait(60)
            status = got.answers.pop(0) if len(got.answers) > 1 else got.answers[0]
            if status == 200:
                got.raw.append(body)
                got.bodies.append(json.loads(body))
                got.headers.append(dict(self.headers))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", got.url)
            if status == 429 and got.retry_after:
                self.send_header("Retry-After", got.retry_after)
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    got.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield got
    finally:
        got.go_on.set()
        server.shutdown()
        server.server_close()


@contextmanager
def mails(
    *, heard: list[str] | None = None, offers: str = "ok", bye: str = "221 bye"
) -> Iterator[tuple[str, list[str]]]:
    """Give the URL of a server of mail, and what it got; ``heard`` is told each verb.

    It offers an extension, and has none; of recipients it refuses those that are called nobody.
    """
    got: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                verb = line.split()[0].upper() if line.split() else b""
                if heard is not None:
                    heard.append(verb.decode())
                if verb == b"EHLO":
                    self.wfile.write(f"250-here\r\n250 {offers}\r\n".encode())
                    continue
                if b"nobody@" in line:
                    self.wfile.write(b"550 no such\r\n")
                    continue
                if verb == b"STARTTLS":
                    self.wfile.write(b"454 not now\r\n")
                    continue
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = []
                    while (text := self.rfile.readline()) != b".\r\n":
                        lines.append(text.decode())
                    got.append("".join(lines))
                self.wfile.write(f"{bye}\r\n".encode() if verb == b"QUIT" else b"250 ok\r\n")
                if verb == b"QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"smtp://127.0.0.1:{server.server_address[1]}?from=jobs@example.org", got
        finally:
            server.shutdown()
