"""PostgreSQL under Patroni: a primary, its standbys, and the etcd by which they choose who is the primary.

::

    node ───▶ member.way ──────────▶ PostgreSQL    each member is reached by its ways alone:
    member ─▶ member.way_of_members ─▶ PostgreSQL   cut_off() lets all of them lead nowhere, as a machine without
    member ─▶ member.way_to_etcd ──▶ etcd          network; split_off() all but that of the nodes
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.servers.postgres import data_behind
from tests.servers.programs import program
from tests.servers.proxy import Proxy
from tests.servers.server import PATIENCE, Server, ServerFailed, free_port

TTL, LOOP, RETRY = 8, 1, 3
"""Seconds: after which a primary that is not heard of is replaced; between two looks; for a look that fails."""


class EtcdServer(Server):
    """One etcd, alone."""

    kind = "etcd"
    users = ("etcd",)

    def __init__(self) -> None:
        self.program = program("etcd-server", "etcd")
        super().__init__(durable=False)
        self._peers = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make(self) -> None:
        self.run(["mkdir", "-m", "700", str(self.data)])

    def command(self) -> list[str]:
        peers = f"http://127.0.0.1:{self._peers}"
        return [
            self.program, "--name", "one", "--data-dir", str(self.data), "--logger", "zap",
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--enable-v2=true",
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"one={peers}",
        ]  # fmt: skip

    def answering(self) -> Path | None:
        return self.data if _answers(f"{self.url}/health") else None


class PatroniMember(Server):
    """One PostgreSQL that its Patroni starts, stops, promotes and rewinds."""

    kind = "patroni"
    users = ("postgres",)

    def __init__(self, number: int, etcd: EtcdServer, *, settings: Mapping[str, Any]) -> None:
        self.program = program("patroni", "patroni")
        self._binaries = Path(program("postgresql", "postgres")).parent
        super().__init__()
        self.name = f"pg{number}"
        self.settings = settings
        self._rest = free_port()
        self.way = Proxy(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        self.way_of_members = Proxy(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        self.way_to_etcd = Proxy(etcd.url)
        self._way_to_rest = Proxy(f"http://127.0.0.1:{self._rest}")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def place(self) -> str:
        """Host and port at which nodes reach it."""
        return _place_of(self.way)

    def make(self) -> None:
        # Patroni makes the data directory: by initdb on the first member, from the primary on the others.
        pass

    def command(self) -> list[str]:
        nobody_asks = {"username": "postgres"}
        settings = {
            "scope": "shop",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self._rest}", "connect_address": _place_of(self._way_to_rest)},
            # Taken for proxies, the addresses of etcd are used as they stand here. Not "etcd3": there a primary of
            # Patroni 3.0.2 that stood still takes the lock back from its successor, and what that acknowledged is gone.
            "etcd": {"hosts": [_place_of(self.way_to_etcd)], "use_proxies": True},
            "bootstrap": {
                "dcs": {"ttl": TTL, "loop_wait": LOOP, "retry_timeout": RETRY, **self.settings},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": _place_of(self.way_of_members),
                "data_dir": str(self.data),
                "bin_dir": str(self._binaries),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": dict.fromkeys(("superuser", "replication", "rewind"), nobody_asks),
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "use_pg_rewind": True,
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "parameters": {
                    "unix_socket_directories": "",
                    "logging_collector": "off",
                    "shared_buffers": "64MB",
                    "max_connections": "100",
                    "wal_sender_timeout": "5s",
                    "wal_receiver_timeout": "5s",
                },
            },
        }
        file = self.folder / "patroni.yml"
        file.write_text(json.dumps(settings))  # JSON is YAML
        file.chmod(0o644)
        return [self.program, str(file)]

    def answering(self) -> Path | None:
        return data_behind(self.url)

    def is_primary(self) -> bool:
        """Tell whether it takes writes, asked past its ways."""
        try:
            with psycopg.connect(self.url, connect_timeout=2, autocommit=True) as connection:
                return bool((connection.execute("SELECT NOT pg_is_in_recovery()").fetchone() or [False])[0])
        except psycopg.Error:
            return False

    def knows_successor(self) -> bool:
        """Tell whether etcd knows which synchronous standby may take over: a little later than the primary itself."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/cluster", timeout=2) as answer:
                return any(one["role"] == "sync_standby" for one in json.load(answer)["members"])
        except OSError:
            return False

    def cut_off(self) -> None:
        """Take its network away: nodes, other members and etcd are told nothing and get nothing."""
        for way in self._ways:
            way.black_hole()

    def split_off(self) -> None:
        """Part it from etcd and the other members, and not from nodes: it acknowledges what nobody else gets."""
        for way in (self.way_of_members, self.way_to_etcd, self._way_to_rest):
            way.black_hole()

    def let_in(self) -> None:
        """Give it its network back; what was open has ended meanwhile."""
        for way in self._ways:
            way.cut()
            way.pass_on()

    @property
    def _ways(self) -> tuple[Proxy, ...]:
        return self.way, self.way_of_members, self.way_to_etcd, self._way_to_rest

    def end(self) -> None:
        super().end()
        for way in self._ways:
            way.close()


class PatroniCluster:
    """An etcd, and so many members of which one is the primary; a context manager.

    Args:
        members: how many.
        synchronous: a commit waits for one standby, which alone may take over.
    """

    def __init__(self, *, members: int = 3, synchronous: bool = False) -> None:
        self.synchronous = synchronous
        settings = {"synchronous_mode": synchronous, "maximum_lag_on_failover": 1 << 24}
        self._open = contextlib.ExitStack()
        self.etcd = EtcdServer()
        self.members = [PatroniMember(number, self.etcd, settings=settings) for number in range(members)]

    @property
    def url(self) -> str:
        """What leads to whichever member is the primary."""
        places = ",".join(member.place for member in self.members)
        return f"postgresql://postgres@{places}/postgres?target_session_attrs=read-write"

    def primary(self) -> PatroniMember | None:
        """Return the member that takes writes; ``None``: there is none, or for a moment two."""
        found = [member for member in self.members if member.is_running and member.is_primary()]
        return found[0] if len(found) == 1 else None

    def await_whole(self, within: float = 3 * PATIENCE) -> PatroniMember:
        """Wait until one member is the primary and the others follow it; return it."""
        deadline = time.monotonic() + within
        while True:
            primary = self.primary()
            if primary is not None and self._is_whole(primary):
                return primary
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {member.name}\n{member.log_end}" for member in self.members)
                raise ServerFailed(f"the cluster is not whole after {within:.0f} s:\n{logs}")
            threading.Event().wait(0.2)

    def _is_whole(self, primary: PatroniMember) -> bool:
        try:
            with psycopg.connect(primary.url, connect_timeout=2, autocommit=True) as connection:
                states = connection.execute("SELECT state, sync_state FROM pg_stat_replication").fetchall()
        except psycopg.Error:
            return False
        streaming = [sync for state, sync in states if state == "streaming"]
        return len(streaming) == len(self.members) - 1 and (
            not self.synchronous or ("sync" in streaming and primary.knows_successor())
        )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            for server in (self.etcd, *self.members):
                opening.callback(server.end)
            self.etcd.start()
            for member in self.members:  # the first becomes the primary, the others copy it
                member.start()
            self.await_whole()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _place_of(way: Proxy) -> str:
    return way.url.rpartition("@")[2].removeprefix("http://").partition("/")[0]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
