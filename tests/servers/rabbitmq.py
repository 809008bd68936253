"""RabbitMQ of our own, with an epmd of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.servers.programs import ServiceMissing, program
from tests.servers.server import Server, free_port

LIBRARIES = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
_GREETING = b"AMQP\0\0\x09\x01"


class RabbitmqServer(Server):
    """One RabbitMQ: ``guest:guest``, no plugins, one scheduler of Erlang's.

    Debian's ``/usr/sbin/rabbitmq-server`` goes to the system's folders whatever it is told, so its own script is run.
    """

    kind = "rabbitmq"
    users = ("rabbitmq",)

    def __init__(
        self,
        *,
        durable: bool = True,
        lives_with: int | None = None,
        folder: Path | None = None,
        settings: Sequence[str] = (),
        advanced: str = "[].",
    ) -> None:
        """Make one with further lines of ``rabbitmq.conf``, and what ``advanced.config`` is to say."""
        program("rabbitmq-server", "rabbitmq-server")
        scripts = sorted(Path("/").glob(LIBRARIES))
        if not scripts:
            raise ServiceMissing(
                f"service missing: there is no /{LIBRARIES} on this machine; scripts/servers installs it"
            )
        self.program = str(scripts[-1])
        self.settings, self.advanced = settings, advanced
        super().__init__(durable=durable, lives_with=lives_with, folder=folder)
        self.distribution, self.mapper = free_port(), free_port()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def make(self) -> None:
        self.run(["mkdir", str(self.data)])
        settings = [
            "vm_memory_high_watermark.absolute = 1GB",
            "disk_free_limit.absolute = 50MB",
            *self.settings,
        ]
        (self.folder / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
        (self.folder / "enabled_plugins").write_text("[].\n")
        (self.folder / "advanced.config").write_text(f"{self.advanced}\n")
        for file in ("rabbitmq.conf", "enabled_plugins", "advanced.config"):
            (self.folder / file).chmod(0o644)

    def command(self) -> list[str]:
        return [self.program]

    def _environment(self) -> dict[str, str]:
        inner = "-kernel inet_dist_use_interface {127,0,0,1}"
        return super()._environment() | {
            "LC_ALL": "C.UTF-8",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "ERL_EPMD_PORT": str(self.mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_LOGS": str(self.folder / "log/rabbit.log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{inner} +S 1:1 +sbwt none",
        }

    def control(self, *arguments: str) -> None:
        """Have ``rabbitmqctl`` do something; takes a second or two."""
        self.run([str(Path(self.program).with_name("rabbitmqctl")), *arguments])

    def answering(self) -> Path | None:
        """Whoever greets at this port: another one got it first only if the node did not start, which ends it."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.settimeout(2)
                client.sendall(_GREETING)
                return self.data if client.recv(1) == b"\x01" else None
        except OSError:
            return None
