"""MariaDB of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pymysql

from tests.servers.programs import program
from tests.servers.server import Server


class MariadbServer(Server):
    """One MariaDB. ``settings`` go before ours: ``{"max-connections": "20"}``."""

    kind = "mariadb"
    users = ("mysql",)

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
        lives_with: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self.program = self.find_program()
        super().__init__(durable=durable, lives_with=lives_with, folder=folder)

    def find_program(self) -> str:
        """Return the path of what runs."""
        return program("mariadb-server", "mariadbd", "mysqld")

    @property
    def base(self) -> str:
        """Return the folder that the program was unpacked to, where it looks for what it needs."""
        return str(Path(self.program).parent.parent)

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def make(self) -> None:
        self.run(
            [program("mariadb-server", "mariadb-install-db", "mysql_install_db"), "--no-defaults",
             f"--basedir={self.base}", f"--datadir={self.data}", "--auth-root-authentication-method=normal",
             "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=32M", "--debug-no-sync"],
        )  # fmt: skip

    def own_settings(self) -> dict[str, str]:
        """Return the settings that only this kind of server has."""
        own = {"innodb-log-file-size": "32M"}
        return own if self.durable else own | {"debug-no-sync": "ON"}

    def command(self) -> list[str]:
        settings = {
            "bind-address": "127.0.0.1",
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "default-time-zone": "+05:45",  # who forgets to ask for UTC is found out
            "max-connections": "300",
            "innodb-buffer-pool-size": "128M",
            "innodb-buffer-pool-dump-at-shutdown": "OFF",
            "innodb-buffer-pool-load-at-startup": "OFF",
            # Where the kernel's ring buffers are limited or forbidden (containers) it would not start.
            "innodb-use-native-aio": "OFF",
        }
        if not self.durable:
            settings |= {"innodb-flush-log-at-trx-commit": "2"}
        settings |= self.own_settings() | self.settings
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self.program, "--no-defaults", f"--basedir={self.base}", f"--datadir={self.data}",
                f"--port={self.port}", "--skip-name-resolve", *options]  # fmt: skip

    def answering(self) -> Path | None:
        try:
            with pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", connect_timeout=2, ssl_disabled=True
            ) as connection:
                cursor = connection.cursor()
                cursor.execute("CREATE DATABASE IF NOT EXISTS test")
                cursor.execute("SELECT @@datadir")
                row = cursor.fetchone()
        except pymysql.MySQLError:
            return None
        return Path(row[0]) if row else None
