"""The server takes no more connections, or its disk is full."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.faults.conftest import KINDS, Closable, Kind, prepare
from tests.faults.watching import (
    AWAY,
    NAMES,
    SECONDS,
    Fault,
    again_and_again,
    log_of,
    said_once,
    settle_and_judge,
    stopped_by,
    stopped_for,
    until_all_work,
    until_busy,
)
from tests.servers.proxy import Proxy
from tests.servers.server import Server

DISK = 128
"""Megabytes."""


@pytest.fixture
def narrow(kind: Kind) -> Iterator[Server]:
    """Return a server that takes few connections."""
    with prepare(kind, settings=kind.few) as server:
        yield server


def hoard(kind: Kind, server: Server, taken: list[Closable]) -> None:
    """Take every connection that is to be had."""
    while True:
        try:
            taken.append(kind.connect(server.url))
        except kind.refused:
            return


def test_no_connection_is_to_be_had(kind: Kind, narrow: Server, make_cluster):
    taken: list[Closable] = []
    with Proxy(narrow.url) as proxy:
        cluster = make_cluster(narrow.url, dict.fromkeys(NAMES, proxy.url))
        until_all_work(cluster)
        faults: list[Fault] = []
        for _number in again_and_again(lambda: bool(stopped_by(cluster, faults[-1]))):
            until_busy(cluster)
            faults.append(Fault())
            proxy.refuse()
            for _passed in cluster.for_seconds(0.5):  # until the server has noticed that the clients are gone
                hoard(kind, narrow, taken)
            proxy.pass_on()
            for _passed in cluster.for_seconds(AWAY):
                cluster.look()
                hoard(kind, narrow, taken)  # the server may have noticed only now that a client is gone
            faults[-1].end()
            while taken:
                taken.pop().close()
            until_all_work(cluster)
        settle_and_judge(cluster)

    stopped_for(cluster, faults)
    for node in NAMES:
        said_once(cluster, node, len(faults))


@pytest.fixture
def crammed() -> Iterator[Server]:
    """Return a PostgreSQL on a small disk of its own."""
    server = prepare(KINDS["postgres"], settings={"max_wal_size": "32MB", "min_wal_size": "32MB"})
    try:
        server.shrink(DISK)
        yield server.start()
    except PermissionError as refused:
        pytest.skip(f"service missing: root, who may make a small disk ({refused})")
    finally:
        server.end()


def fill(disk: Path) -> None:
    """Leave no room."""
    with (disk / "ballast").open("ab") as ballast:
        room = os.statvfs(disk)
        with contextlib.suppress(OSError):  # the server was faster
            os.posix_fallocate(ballast.fileno(), ballast.tell(), room.f_bavail * room.f_frsize or 1)


def test_the_disk_of_postgresql_is_full(crammed: Server, make_cluster):
    cluster = make_cluster(crammed.url)
    until_all_work(cluster)
    each, orders = (60 if SECONDS else 300), 0  # for minutes, no more than is worked off in the half of the time
    for _number in again_and_again():
        orders += each
        cluster.enqueue(each)
        before = [complaints(cluster, name) for name in NAMES]

        def all_said_so(before: list[int] = before) -> bool:
            fill(crammed.folder)
            cluster.look()
            return all(complaints(cluster, name) > said for name, said in zip(NAMES, before, strict=True))

        cluster.until(all_said_so, "every node met the full disk")
        for _passed in cluster.for_seconds(AWAY):
            fill(crammed.folder)
            cluster.look()
        (crammed.folder / "ballast").unlink()
        if not crammed.is_running:
            crammed.start()  # it may give up where it cannot write its log; then somebody starts it again
        until_all_work(cluster)
    settle_and_judge(cluster)
    log = crammed.log.read_text()
    assert "No space left on device" in log or "wrote only" in log, "the fault did not bite"
    assert cluster.orders == orders


def complaints(cluster: Cluster, node: str) -> int:
    """Return how often a node said that the store cannot be used."""
    return log_of(cluster, node).count("so nothing is started until it can")
