"""Three MariaDB that are one cluster by Galera: each takes writes, and a commit is certified by all."""

from __future__ import annotations

import contextlib
import http.server
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pymysql

from tests.servers.mariadb import MariadbServer
from tests.servers.programs import ServiceMissing, program
from tests.servers.proxy import Proxy
from tests.servers.server import PATIENCE, Server, ServerFailed, free_port

PROVIDERS = ("usr/lib/galera", "usr/lib64/galera-4", "usr/lib/*/galera")
"""Folders in which systems keep Galera."""


def find_provider() -> str:
    """Return the path of Galera's library.

    Raises:
        ServiceMissing: it is not on this machine.
    """
    for pattern in PROVIDERS:
        for found in sorted(Path("/").glob(f"{pattern}/libgalera_smm.so")):
            return str(found)
    raise ServiceMissing(
        "service missing: libgalera_smm.so is not on this machine (Debian's package galera-4); "
        "scripts/servers --ha installs it"
    )


class GaleraMember(MariadbServer):
    """A MariaDB of a cluster. Nodes reach it by its way, the other members at a port of its own.

    Attributes:
        others: the ports at which the other members answer each other; none: it begins a cluster.
    """

    kind = "galera"

    def __init__(self, number: int, *, durable: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self._provider = find_provider()
        super().__init__(settings=settings, durable=durable)
        self.number = number
        self.members_port = free_port()
        self._copies_port, self._misses_port = free_port(), free_port()
        self.others: list[int] = []
        self._position = ""
        self.way = Proxy(self.url)

    @property
    def place(self) -> str:
        """Host and port of its way."""
        return self.way.url.rpartition("@")[2].partition("/")[0]

    def start(self) -> Self:
        """Start it; if it was killed, find out first how far it had come, so that it need not copy everything."""
        if (self.data / "grastate.dat").exists():
            said = self.folder / "recovered.log"
            self._position = ""
            self.run([*self.command(), "--wsrep-recover", f"--log-error={said}"])
            found = re.findall(r"Recovered position: (\S+)", said.read_text())
            said.unlink()
            self._position = found[-1] if found else ""
        return super().start()

    def own_settings(self) -> dict[str, str]:
        provider = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.members_port}",
            "base_port": str(self.members_port),
            "ist.recv_addr": f"tcp://127.0.0.1:{self._misses_port}",
            "gcache.size": "64M",
            "pc.recovery": "false",
        }
        places = ",".join(f"127.0.0.1:{port}" for port in self.others)
        return super().own_settings() | {
            "wsrep-on": "ON",
            "wsrep-provider": self._provider,
            "wsrep-provider-options": ";".join(f"{name}={value}" for name, value in provider.items()),
            "wsrep-cluster-address": f"gcomm://{places}",
            "wsrep-cluster-name": "cronsensus",
            "wsrep-node-name": f"member{self.number}",
            "wsrep-node-address": f"127.0.0.1:{self.members_port}",
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"127.0.0.1:{self._copies_port}",
            "wsrep-slave-threads": "2",
            "binlog-format": "ROW",
            "default-storage-engine": "InnoDB",
            "innodb-autoinc-lock-mode": "2",
            **({"wsrep-start-position": self._position} if self._position else {}),
        }

    def answering(self) -> Path | None:
        # What joins answers before it has caught up; then it may be asked for little.
        return super().answering() if self.status().get("wsrep_ready") == "ON" else None

    def status(self, by: str = "wsrep_%") -> dict[str, str]:
        """Return what it says of itself, asked past its way; nothing if it does not answer."""
        return dict(self.ask(f"SHOW STATUS LIKE '{by}'"))

    def ask(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements past its way; return the rows of the last one, and none if it does not answer."""
        rows: Iterable[tuple[Any, ...]] = ()
        try:
            with pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", connect_timeout=2, read_timeout=2, ssl_disabled=True
            ) as connection:
                cursor = connection.cursor()
                for statement in statements:
                    cursor.execute(statement)
                    rows = cursor.fetchall()
        except (pymysql.MySQLError, OSError):
            return ()
        return tuple(rows)

    def is_primary(self) -> bool:
        """Tell whether it is in the part of the cluster that takes writes."""
        found = self.status()
        return (found.get("wsrep_cluster_status"), found.get("wsrep_ready")) == ("Primary", "ON")

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Let it carry out nothing of what the others commit; it certifies it."""
        with pymysql.connect(host="127.0.0.1", port=self.port, user="root", ssl_disabled=True) as connection:
            connection.cursor().execute("FLUSH TABLES WITH READ LOCK")
            yield

    def split_off(self) -> None:
        """Part it from the other members, and not from nodes."""
        self.ask("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")

    def join_again(self) -> None:
        """Let it and the other members see each other again."""
        self.ask("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")

    def cut_off(self) -> None:
        """Take its network away: nodes and members are told nothing and get nothing."""
        self.split_off()
        self.way.black_hole()

    def let_in(self) -> None:
        """Give it its network back; what was open has ended meanwhile."""
        self.join_again()
        self.way.cut()
        self.way.pass_on()

    def end(self) -> None:
        super().end()
        self.way.close()


class GaleraCluster:
    """So many members, each of which takes writes; a context manager."""

    def __init__(self, *, members: int = 3, durable: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self._open = contextlib.ExitStack()
        self.members = [GaleraMember(number, durable=durable, settings=settings) for number in range(members)]

    def await_whole(self, within: float = 3 * PATIENCE) -> None:
        """Wait until all members are in one cluster and take writes."""
        deadline = time.monotonic() + within
        while not all(self._is_whole(member) for member in self.members):
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {member.number}\n{member.log_end}" for member in self.members)
                raise ServerFailed(f"the cluster is not whole after {within:.0f} s:\n{logs}")
            threading.Event().wait(0.2)

    def _is_whole(self, member: GaleraMember) -> bool:
        found = member.status()
        return (
            found.get("wsrep_local_state_comment") == "Synced"
            and found.get("wsrep_ready") == "ON"
            and found.get("wsrep_cluster_size") == str(len(self.members))
        )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            for member in self.members:
                opening.callback(member.end)
            for member in self.members:  # the first begins the cluster, the others copy it
                member.start()
                for other in self.members:  # from now on whoever starts joins the others
                    if other is not member or member.number:
                        other.others = [one.members_port for one in self.members if one is not other]
            self.await_whole()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class _Health(http.server.ThreadingHTTPServer):
    """Says by HTTP whether a member takes writes, as the clustercheck beside it would."""

    daemon_threads = True

    def __init__(self, member: GaleraMember) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if member.is_primary() else 503)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, name="health", daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing: whoever asked did not wait for the answer."""


class OneWriter(Server):
    """HAProxy before a cluster: it leads everybody to the same member, and to the next when that one is down.

    It stays with a member, also when one before it comes back: two that are written to at a time is what it prevents.
    """

    kind = "haproxy"
    users = ("haproxy",)

    def __init__(self, members: Sequence[GaleraMember]) -> None:
        self.program = program("haproxy", "haproxy")
        super().__init__()
        self._members = members
        self._health = [_Health(member) for member in members]

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def make(self) -> None:
        self.data.mkdir()
        self.data.chmod(0o755)

    def command(self) -> list[str]:
        servers = [
            f"  server member{member.number} {member.place} check port {health.server_port}"
            for member, health in zip(self._members, self._health, strict=True)
        ]
        lines = [
            "global",
            "  nbthread 1",
            "defaults",
            "  mode tcp",
            "  timeout connect 2s",
            "  timeout check 2s",
            "  timeout client 1h",
            "  timeout server 1h",
            "listen writer",
            f"  bind 127.0.0.1:{self.port}",
            "  option httpchk GET /",
            "  balance first",
            "  stick-table type integer size 1",
            "  stick on int(1)",
            "  default-server inter 1s fall 2 rise 2 on-marked-down shutdown-sessions",
            *servers,
            "",
        ]
        file = self.data / "haproxy.cfg"
        file.write_text("\n".join(lines))
        file.chmod(0o644)
        return [self.program, "-db", "-f", str(file)]

    def answering(self) -> Path | None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2):
            return self.data
        return None

    def writer(self) -> GaleraMember | None:
        """Return the member that it leads to; ``None``: nothing answers."""
        try:
            with pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", connect_timeout=2, read_timeout=2, ssl_disabled=True
            ) as connection:
                cursor = connection.cursor()
                cursor.execute("SELECT @@port")
                [port] = cursor.fetchone() or (0,)
        except (pymysql.MySQLError, OSError):
            return None
        return next((member for member in self._members if member.port == port and member.is_primary()), None)

    def end(self) -> None:
        super().end()
        for health in self._health:
            health.shutdown()
            health.server_close()
