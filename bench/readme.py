"""The table of the README, in one run on PostgreSQL: ours, Procrastinate, APScheduler and Celery with three beats.

Each by its defaults. The killed workers of Procrastinate and Celery are watched while APScheduler and the beats are
counted, for five minutes at most.
"""

from __future__ import annotations

import contextlib

from bench import apscheduler, cadence, celery_everywhere
from bench.options import Options
from bench.peers.cadence import measure_peer
from bench.peers.environments import CannotInstall
from bench.peers.field import PEERS, Peer, PeerFailed, Team
from bench.peers.takeover import Case, kill_node, read_fate
from bench.places import Places, open_places, open_server
from bench.table import Row, Table, milliseconds, quantile, say
from bench.takeover import takeovers

PATIENCE = 300
PROCESSES = 3
COLUMNS = (
    "a job on several replicas, defaults",
    "runs of each time",
    "late, p50 / p99",
    "after `kill -9`, again after",
)


def bench(places: Places, options: Options) -> list[Row | Table]:
    """Measure all on PostgreSQL, whatever store was asked for; Celery's broker is a Redis beside it."""
    with contextlib.ExitStack() as opened:
        here = places if places.kind == "postgres" else opened.enter_context(open_places("postgres", 0.0))
        seconds = options.seconds or (10 if options.quick else 60)
        patience = 20 if options.quick else PATIENCE
        procrastinate, celery = (next(peer for peer in PEERS if peer.name == name) for name in
                                 ("Procrastinate", "Celery, processes"))  # fmt: skip
        own, _, wrong = cadence.ours(here, seconds)
        again = takeovers(here, options.rounds or (3 if options.quick else 20), evidence="server")
        theirs = measure_peer(here, procrastinate, seconds)
        broker = opened.enter_context(open_places("redis", 0.0))
        killed = [_kill(opened, at, peer) for at, peer in ((here, procrastinate), (broker, celery))]
        bare = apscheduler.measure(here, seconds, jobs=1, guarded=False, processes=PROCESSES)
        with open_server("redis") as server:
            beats = celery_everywhere.count_bare(
                here, server.url.rpartition("/")[0], [("beat",)] * PROCESSES + [("worker", "-c", "2")]
            )
        fates = [read_fate(*each, patience) if isinstance(each, tuple) else each for each in killed]
    lines: list[tuple[str, ...]] = [
        ("**cronsensus** on PostgreSQL", _runs(own), _late(own.late), _both(again)),
        (procrastinate.title(), _runs(theirs), _late(theirs.late), fates[0]),
        (f"APScheduler, {PROCESSES} processes", f"{sum(bare.ran.values()) / max(1, len(bare.ran)):.1f}", "-", "-"),
        (f"Celery ({celery.title().partition('(')[2]}, {PROCESSES} beats", f"{beats:.1f}", "-", fates[1]),
    ]
    note = f"{seconds} s each; {cadence.NODES} nodes; ours was killed {len(again)} times, p50 / p99."
    return [
        Table("The table of the README", COLUMNS, lines, (note,)),
        Row("readme", "ours: twice / missed / audit", f"{own.twice} / {own.missed} / {wrong or 'clean'}",
            "0 / 0 / clean", own.twice == own.missed == 0 and not wrong),
    ]  # fmt: skip


def _kill(opened: contextlib.ExitStack, places: Places, peer: Peer) -> tuple[Team, float] | str:
    try:
        return kill_node(opened, places, Case(peer, careful=False, dark=False))
    except (CannotInstall, PeerFailed) as error:
        say(f"  {peer.title()}: {error}")
        return str(error)


def _runs(measured: cadence.Cadence) -> str:
    return f"{sum(measured.ran.values()) / max(1, measured.expected):.2f}".removesuffix("0").removesuffix(".0")


def _late(late: list[float]) -> str:
    return f"{milliseconds(quantile(late, 0.5))} / {milliseconds(quantile(late, 0.99))}"


def _both(seconds: list[float]) -> str:
    return f"{quantile(seconds, 0.5):.2f} / {quantile(seconds, 0.99):.2f} s"
