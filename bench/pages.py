"""The dashboard over 10,000 jobs and a million occurrences: how long each page takes, and what a first look loads."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from bench.options import Options
from bench.places import Places, Postgres
from bench.table import Row, Table, milliseconds, quantile, say
from cronsensus import every
from cronsensus.dashboard import dashboard
from cronsensus.model.job import JobSpec
from cronsensus.stores import open_store

JOBS, OCCURRENCES = 10_000, 1_000_000
AT_ONCE = 5_000
WITHIN = 0.100
KILOBYTES = 60
PAGES = (
    "/", "/jobs", "/jobs?q=job-09", "/jobs?q=job-09&only=paused", "/jobs?q=nowhere",
    "/jobs?only=failing", "/jobs?only=missed", "/job?name=job-00007",
    "/ledger?job=job-00007", "/runs", "/runs?text=nowhere", "/runs/{run}", "/failed", "/queue", "/nodes", "/locks",
    "/trail",
)  # fmt: skip

FILL = """
INSERT INTO {schema}cronsensus_occurrences (namespace, job_id, key, origin, state, serial, priority, level,
    scheduled_for, due_at, attempt, crashes, failures, token, session, node, created_at, started_at, finished_at,
    reason, error)
WITH RECURSIVE numbers(i) AS (SELECT CAST(0 AS bigint) UNION ALL SELECT i + 1 FROM numbers WHERE i < {count} - 1),
    job(id, namespace) AS (SELECT min(id), min(namespace) FROM {schema}cronsensus_jobs)
SELECT job.namespace, job.id + i % {jobs}, 'filled:' || i, 'schedule',
    CASE WHEN i % 5000 = 7 THEN 'failed' ELSE 'succeeded' END, 0, 0, 2, {since} + i * {step}, {since} + i * {step},
    1, 0, 0, i + 1, 'session-' || i % 3, 'web-' || i % 3, {since} + i * {step}, {since} + i * {step} + 2000,
    {since} + i * {step} + 1000000 + i % 977 * 3000, NULL,
    CASE WHEN i % 5000 = 7 THEN '{{"type":"OSError","message":"no route","traceback":"OSError: no route"}}' END
FROM numbers CROSS JOIN job;
INSERT INTO {schema}cronsensus_runs (token, occurrence_id, attempt, session, node, started_at, finished_at, "end")
SELECT token, id, 1, session, node, started_at, finished_at, state FROM {schema}cronsensus_occurrences;
"""


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Fill a store straight into its tables, and ask each page in turns."""
    jobs, count = (500, 20_000) if options.quick else (JOBS, OCCURRENCES)
    url = places.fresh()
    store = open_store(url)
    try:
        store.migrate()
        specs = [
            JobSpec(name=f"job-{number:05}", function=f"job-{number:05}", trigger=every("15m"))
            for number in range(jobs)
        ]
        for first in range(0, jobs, AT_ONCE):
            store.define_jobs(specs[first : first + AT_ONCE], release="r1")
        del specs  # a process that serves pages has not got them: each full collection would walk over all of them
        say(f"filling in {count:,} occurrences …")
        now = store.now()
        since = int((now - timedelta(days=1) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
        step = 86_400_000_000 // count
        _run(places, url, FILL, count=count, jobs=jobs, since=since, step=step)
        _run(places, url, "ANALYZE")
        taken, loaded = asyncio.run(_ask(dashboard(store), 5 if options.quick else options.rounds or 40))
    finally:
        store.close()
    lines: list[tuple[str, ...]] = []
    worst = 0.0
    for path, asked in taken.items():
        seconds, worked = [took for took, _ in asked], [work for _, work in asked]
        worst = max(worst, quantile(seconds, 0.95))
        figures = (quantile(seconds, 0.5), quantile(seconds, 0.95), quantile(worked, 0.5))
        lines.append((f"`{path}`", *map(milliseconds, figures)))
    title = f"pages, {jobs:,} jobs and {count:,} occurrences, {places.where()}"
    return [
        Table(title, ("page", "p50", "p95", "of the processor, p50"), lines),
        Row("pages", "the slowest page, p95", milliseconds(worst), f"≤ {WITHIN * 1000:.0f} ms", worst <= WITHIN),
        Row(
            "pages", "first look: page, style, script; gzip", f"{loaded / 1000:.1f} KB",
            f"≤ {KILOBYTES} KB", loaded <= 1000 * KILOBYTES,
        ),
    ]  # fmt: skip


def _run(places: Places, url: str, text: str, **numbers: int) -> None:
    if isinstance(places, Postgres):
        places.run(url, text.format(schema="cronsensus.", **numbers))
        return
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.executescript(text.format(schema="", **numbers))
    connection.close()


async def _ask(app, times: int) -> tuple[dict[str, list[tuple[float, float]]], int]:
    """Return the seconds that each page took, those of our processor time among them, and the bytes of a first look."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(times + 1):
        for path in PAGES:
            begun, worked = time.perf_counter(), time.process_time()
            await _get(app, path.format(run=9_999))
            took = time.perf_counter() - begun, time.process_time() - worked
            found.setdefault(path, []).append(took)
    parts = [await _get(app, path) for path in ("/", "/static/style.css", "/static/dashboard.js")]
    # The first of each fills caches.
    return {path: taken[1:] for path, taken in found.items()}, sum(len(gzip.compress(part)) for part in parts)


async def _get(app, path: str) -> bytes:
    name, _, query = path.partition("?")
    body = bytearray()
    scope = {
        "type": "http", "method": "GET", "path": name, "raw_path": quote(name).encode(), "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "scheme": "http", "root_path": "", "http_version": "1.1",
    }  # fmt: skip

    async def receive() -> dict[str, object]:
        # Who waits here waits for the browser to leave: an answer at once would have it ask for ever.
        await asyncio.Event().wait()
        raise AssertionError(path)

    async def send(message) -> None:
        assert message.get("status", 200) == 200, path
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return bytes(body)
