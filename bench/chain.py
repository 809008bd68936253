"""One job after another: how soon the next link begins, and what many cost that sleep behind one."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from bench.nodes import Cluster, cluster, wait_until
from bench.options import Options
from bench.places import Places, Postgres, Redis
from bench.table import Row, milliseconds, quantile, say
from cronsensus.audit import audit
from cronsensus.timing.instants import format_instant

NODES = 2
LINKS = 20
EVERY = 2
BEHIND = 1000


def bench(places: Places, options: Options) -> list[Row]:
    """Measure each in turn."""
    seconds = 15 if options.quick else 30
    return [
        *_chain(places, nights=10 if options.quick else 40),
        *_behind(places, seconds=seconds),
        *_beside(places, seconds=seconds),
    ]


def _chain(places: Places, nights: int) -> list[Row]:
    """Time each link by the jobs' own evidence: from the end of one to the begin of the next."""
    with cluster("chained", places) as nodes:
        for _ in range(NODES):
            nodes.start({"LINKS": str(LINKS), "EVERY": f"{EVERY}s"})
        nodes.wait_for_sessions(NODES)
        time.sleep(5)  # each node has had its first turns: it compiles its statements in them
        if isinstance(places, Postgres):
            places.forget(nodes.url)
        begun = time.time()
        time.sleep(nights * EVERY)
        ended = time.time()
        _most_sent(places, nodes, nights)
        time.sleep(3)
        report = audit(nodes.store, since=_at(begun), until=_at(ended - EVERY))
        lines = [line for line in nodes.lines() if begun < int(line[2]) <= ended - EVERY]
    begins: dict[tuple[str, str], list[float]] = defaultdict(list)
    ends: dict[tuple[str, str], float] = {}
    for event, job, night, _, at, _ in lines:
        if event == "begin":
            begins[night, job].append(float(at))
        else:
            ends[night, job] = float(at)
    links = [
        begins[night, f"link{number:02}"][0] - ends[night, f"link{number - 1:02}"]
        for night in sorted({night for night, _ in begins})
        for number in range(1, LINKS)
        if (night, f"link{number:02}") in begins and (night, f"link{number - 1:02}") in ends
    ]
    whole = [night for night, job in ends if job == f"link{LINKS - 1:02}"]
    p99 = quantile(links, 0.99)
    once = all(len(each) == 1 for each in begins.values())
    return [
        Row("chain", f"nights of {LINKS} links on {NODES} nodes, each link once", str(len(whole)),
            f"≥ {nights - 2}", once and report.ok and len(whole) >= nights - 2),
        Row("chain", "from the end of a link to the begin of the next, p50", milliseconds(quantile(links, 0.5))),
        Row("chain", "the same, p99", milliseconds(p99), "≤ 30 ms", p99 <= 0.030),
        Row("chain", "the same, max", milliseconds(max(links, default=0))),
    ]  # fmt: skip


def _behind(places: Places, seconds: int) -> list[Row]:
    """Count what is sent while very many sleep, and how late another job is beside them."""
    asleep_after = 45
    with cluster("chained", places) as nodes:
        begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20 + seconds)
        told = {"BEHIND": str(BEHIND), "BEGIN": format_instant(begin), "LONG": str(asleep_after + seconds + 15)}
        for _ in range(NODES):
            nodes.start(told)
        nodes.wait_for_sessions(NODES)
        _until(begin - timedelta(seconds=seconds + 1))
        before = _sent(places, nodes, seconds)
        _until(begin)
        wait_until(lambda: len(nodes.store.parked(limit=BEHIND)) == BEHIND, asleep_after, "all to sleep")
        fell_asleep = time.time() - begin.timestamp()
        time.sleep(3)
        watched = time.time()
        meanwhile = _sent(places, nodes, seconds)
        over = time.time()
        _most_sent(places, nodes, seconds)
        asked = time.monotonic()
        wait_until(lambda: sum(line[1].startswith("behind") for line in nodes.lines()) >= BEHIND, 120, "all to run")
        lines = nodes.lines()
        say(f"  fell asleep in {fell_asleep:.1f} s, had run {time.monotonic() - asked:.1f} s after the count")
    ended = next(float(line[4]) for line in lines if line[:2] == ["end", "long"])
    ran = [float(line[4]) for line in lines if line[1].startswith("behind")]
    ticks = [(int(line[2]), float(line[5])) for line in lines if line[1] == "tick"]
    quiet = [late for night, late in ticks if begin.timestamp() - seconds <= night < begin.timestamp()]
    beside = [late for night, late in ticks if watched < night <= over]
    early = min(ran) < ended
    p50, usual = quantile(beside, 0.5), quantile(quiet, 0.5)
    return [
        Row("chain", f"{BEHIND:,} that come after one: run once, none before its end", str(len(ran)), str(BEHIND),
            len(ran) == BEHIND and not early),
        Row("chain", "until all of them have run, from its end", f"{max(ran) - ended:.1f} s"),
        Row("chain", "statements a second before they sleep, all nodes, a job each second", f"{before:.1f}"),
        Row("chain", "the same while they sleep", f"{meanwhile:.1f}", "≤ 40", meanwhile <= 40),
        Row("chain", "that job's start lateness before, p50 / max",
            f"{milliseconds(usual)} / {milliseconds(max(quiet, default=0))}"),
        Row("chain", "the same while they sleep",
            f"{milliseconds(p50)} / {milliseconds(max(beside, default=0))}", "p50 + 2 ms", p50 <= usual + 0.002),
    ]  # fmt: skip


def _beside(places: Places, seconds: int) -> list[Row]:
    """Time ten jobs of each second on one node, beside three pairs that have nothing to do with them."""
    plain, behind = (_lateness(places, seconds, after=after) for after in (False, True))
    p50, p99 = (quantile(behind, q) / quantile(plain, q) for q in (0.5, 0.99))
    return [
        Row("chain", f"ten jobs each second beside three plain pairs, start lateness p50 / p99 ({len(plain)} runs)",
            f"{milliseconds(quantile(plain, 0.5))} / {milliseconds(quantile(plain, 0.99))}"),
        Row("chain", "the same beside three pairs with after=",
            f"{milliseconds(quantile(behind, 0.5))} / {milliseconds(quantile(behind, 0.99))}"),
        Row("chain", "in times of the plain ones, p50 / p99", f"{p50:.2f} / {p99:.2f}", "≤ 1.1 / 1.5",
            p50 <= 1.1 and p99 <= 1.5),
    ]  # fmt: skip


def _lateness(places: Places, seconds: int, *, after: bool) -> list[float]:
    with cluster("beside", places) as nodes:
        nodes.start({"AFTER": str(int(after))})
        nodes.wait_for_sessions(1)
        time.sleep(6)  # it has had its first turns
        begun = time.time()
        time.sleep(seconds)
        ended = time.time()
        time.sleep(2)
        return [float(late) for _, at, late in nodes.lines() if begun < float(at) <= ended]


def _sent(places: Places, nodes: Cluster, seconds: int) -> float:
    """Count for so long what nodes send a second."""
    if isinstance(places, Redis):
        return places.watch(nodes.url, seconds)[0] / seconds
    if places.kind == "sqlite":
        time.sleep(seconds)
        return float("nan")
    if isinstance(places, Postgres):
        places.forget(nodes.url)
    sent = places.sent(nodes.url)
    time.sleep(seconds)
    return (places.sent(nodes.url) - sent) / seconds


def _most_sent(places: Places, nodes: Cluster, times: int) -> None:
    if isinstance(places, Postgres):
        for calls, text in places.most_sent(nodes.url):
            say(f"  {calls / times:.1f} x {text[:110]}")


def _until(moment: datetime) -> None:
    time.sleep(max(0.0, moment.timestamp() - time.time()))


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
