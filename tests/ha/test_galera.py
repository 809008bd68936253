"""Three MariaDB in a Galera cluster: each keeps the rules, and the one that is written to is struck, under load."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cronsensus.insight.doctor import examine_store
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.stores import open_store
from cronsensus.testing.store_check import check_store_at
from tests.ha.weather import LEASE, PATIENCE, SECONDS, nodes_on, weather
from tests.servers.galera import GaleraCluster, GaleraMember, OneWriter
from tests.servers.programs import ServiceMissing


class Galera:
    """As a place for a store: a cluster behind a proxy that leads everybody to the same member."""

    blows: tuple[str, ...] = ("killed", "stopped", "cut off", "split off")
    struck: GaleraMember

    def __init__(self, cluster: GaleraCluster, proxy: OneWriter) -> None:
        self._cluster = cluster
        self._proxy = proxy

    @property
    def url(self) -> str:
        return self._proxy.url

    def prepare_blow(self) -> None:
        self._cluster.await_whole(PATIENCE)
        while (writer := self._proxy.writer()) is None:
            time.sleep(0.05)
        self.struck = writer

    def strike(self, blow: str) -> Callable[[], object]:
        act, undo = {
            "killed": (self.struck.kill9, self.struck.start),
            "stopped": (self.struck.pause, self.struck.resume),
            "cut off": (self.struck.cut_off, self.struck.let_in),
            "split off": (self.struck.split_off, self.struck.join_again),
        }[blow]
        act()
        return undo

    def has_successor(self) -> bool:
        return self._proxy.writer() not in {None, self.struck}


@pytest.fixture(scope="module")
def cluster() -> Iterator[GaleraCluster]:
    try:
        made = GaleraCluster()
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.mark.timeout(SECONDS + 4 * PATIENCE)
def test_what_failovers_lose(cluster: GaleraCluster, tmp_path: Path, dice: random.Random) -> None:
    try:
        proxy = OneWriter(cluster.members)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with proxy:
        place = Galera(cluster, proxy)
        with nodes_on(place, tmp_path) as nodes:
            failover = next(check for check in examine_store(nodes.store) if check.name == "failover")
            assert (failover.level, "3 servers" in failover.text) == ("ok", True)
            outcome = weather(place, nodes, dice)
    print(f"Galera, one member written to, behind HAProxy, lease {LEASE:g} s\n{outcome}")
    outcome.is_as_promised(loses=False)
    cluster.await_whole(PATIENCE)


@pytest.mark.timeout(4 * PATIENCE)
def test_one_member_keeps_each_rule(cluster: GaleraCluster) -> None:
    rules = check_store_at(cluster.members[1].url)
    assert [rule for rule in rules if rule.why] == []


def test_what_one_member_acknowledged_is_seen_by_who_connects_to_the_next(cluster: GaleraCluster) -> None:
    first, second = cluster.members[0], cluster.members[1]
    seen: list[str | None] = []

    def read() -> None:
        with contextlib.closing(open_store(second.url, namespace="behind")) as store:
            seen.extend(one.key for one in store.occurrences(OccurrenceFilter()))

    reading = threading.Thread(target=read)
    with contextlib.closing(open_store(first.url, namespace="behind")) as store:
        store.migrate()
        store.define_jobs([JobSpec(name="job", function="job")], release="r1")
        cluster.await_whole(PATIENCE)
        with second.standing_still():
            store.enqueue([Item(job="job", key="one")])
            reading.start()
            reading.join(1.0)  # what does not wait has read nothing by then
    reading.join(PATIENCE)
    assert seen == ["one"]
