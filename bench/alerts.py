"""Being told: how soon after a verdict, once, while the node that sends is killed; and what it costs everybody else."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.nodes import cluster, wait_until
from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State

NODES = 2
MANY = 10_000
KILL_EVERY = 3.0
WITHIN = 5.0
DRAINED = 20_000


def bench(places: Places, options: Options) -> list[Row]:
    """Measure each in turn."""
    seconds = 20 if options.quick else 60
    rounds = options.rounds or (2 if options.quick else 5)
    return [*_killed(places, seconds), *_many(places), *_beside(places, rounds)]


class Receiver:
    """What was posted: bodies, each with the time at which it came."""

    def __init__(self) -> None:
        self.bodies: list[tuple[float, dict[str, Any]]] = []
        self.url = ""


@contextmanager
def _receiver() -> Iterator[Receiver]:
    got = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.bodies.append((time.time(), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    got.url = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()


def _killed(places: Places, seconds: int) -> list[Row]:
    """Something fails each two seconds; each node is killed in turn, and with it whoever sends."""
    with _receiver() as got, cluster("watched", places) as nodes:
        told = {"ALERTS": got.url, "FAILING": "10"}
        for _ in range(NODES):
            nodes.start(told)
        nodes.wait_for_sessions(NODES)
        wait_until(lambda: bool(got.bodies), 60, "the first message")
        begun, killed = time.time(), 0
        while time.time() - begun < seconds:
            time.sleep(KILL_EVERY)
            alive = [one for one in nodes.nodes if one.poll() is None]
            alive[0].kill()
            alive[0].wait()
            killed += 1
            nodes.start(told)
        time.sleep(WITHIN + 5)
        failed = {
            one.id: one.finished_at.timestamp()
            for one in nodes.store.occurrences(OccurrenceFilter(states=(State.FAILED,)), limit=10 * seconds)
            if one.finished_at is not None and begun <= one.finished_at.timestamp() <= begun + seconds
        }
    told_at: dict[int, float] = {}
    told_in: dict[int, set[str]] = {}
    for at, body in got.bodies:
        for event in body["events"]:
            if event["event"] == "failed":
                told_at.setdefault(event["run"], at)
                told_in.setdefault(event["run"], set()).add(body["id"])
    waits = [told_at[run] - at for run, at in failed.items() if run in told_at]
    missing = len(failed) - len(waits)
    twice = sum(len(ids) > 1 for ids in told_in.values())
    again = sum(count - 1 for count in Counter(body["id"] for _, body in got.bodies).values())
    worst = max(waits, default=float("inf"))
    return [
        Row("alerts", f"failures while a node was killed each {KILL_EVERY:.0f} s ({killed} times), told",
            f"{len(waits)} of {len(failed)}", "all", missing == 0),
        Row("alerts", "told in two messages; the same message sent again", f"{twice}; {again}", "0", twice == 0),
        Row("alerts", "from the verdict to the receiver, p50", milliseconds(quantile(waits, 0.5))),
        Row("alerts", "the same, max", milliseconds(worst), f"≤ {WITHIN:.0f} s", worst <= WITHIN),
    ]  # fmt: skip


def _many(places: Places) -> list[Row]:
    """Very many failures at once."""
    with _receiver() as got, cluster("watched", places) as nodes:
        for _ in range(NODES):
            nodes.start({"ALERTS": got.url})
        nodes.wait_for_sessions(NODES)
        time.sleep(3)
        begun = time.time()
        for first in range(0, MANY, 1000):
            nodes.store.enqueue([Item(job="work", args=(-1 - first - number,)) for number in range(1000)])
        nodes.store.notify()
        wait_until(lambda: nodes.store.counts(limit=5).pending <= 1, 60, f"{MANY:,} failures")
        time.sleep(max(0.0, begun + 60 - time.time()))
        within = [body for at, body in got.bodies if at <= begun + 60]
        wait_until(lambda: sum(body["total"] for _, body in got.bodies) >= MANY, 90, "all to be told")
    total = sum(body["total"] for _, body in got.bodies)
    return [
        Row("alerts", f"messages in the minute in which {MANY:,} runs failed", str(len(within)), "≤ 5",
            len(within) <= 5),
        Row("alerts", "events told in all messages", f"{total:,}", f"{MANY:,}", total == MANY),
    ]  # fmt: skip


def _beside(places: Places, rounds: int) -> list[Row]:
    """Cadence and drain without alerts and with one, in turns on the same machine."""
    late: dict[bool, list[float]] = {False: [], True: []}
    rates: dict[bool, list[float]] = {False: [], True: []}
    with _receiver() as got:
        for number in range(2 * rounds):
            told = number % 2 == 1
            with cluster("watched", places) as nodes:
                for _ in range(NODES):
                    nodes.start({"ALERTS": got.url} if told else {})
                nodes.wait_for_sessions(NODES)
                time.sleep(5)  # each node has had its first turns: it compiles its statements in them
                begun = time.time()
                time.sleep(10)
                late[told] += [float(line[2]) for line in nodes.lines() if float(line[1]) > begun]
                nodes.store.enqueue([Item(job="work", args=(one,)) for one in range(DRAINED)])
                began = time.monotonic()
                nodes.store.notify()
                wait_until(lambda: nodes.store.counts(limit=5).pending <= 1, 60, "the drain")
                rates[told].append(DRAINED / (time.monotonic() - began))
    without, beside = (quantile(late[told], 0.5) for told in (False, True))
    ratio = quantile(rates[True], 0.5) / quantile(rates[False], 0.5)
    return [
        Row("alerts", "start lateness without alerts, p50 / p99",
            f"{milliseconds(without)} / {milliseconds(quantile(late[False], 0.99))}"),
        Row("alerts", "the same with one, p50 / p99",
            f"{milliseconds(beside)} / {milliseconds(quantile(late[True], 0.99))}", "p50 + 1 ms",
            beside <= without + 0.001),
        Row("alerts", f"{DRAINED:,} enqueued runs drained: with an alert to without", f"{ratio:.2f}", "≥ 0.95",
            ratio >= 0.95),
    ]  # fmt: skip
