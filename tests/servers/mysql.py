"""MySQL of our own, or MariaDB, whichever is here."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Any

from tests.servers.mariadb import MariadbServer
from tests.servers.programs import ServiceMissing, program


class MysqlServer(MariadbServer):
    """One MySQL, by Oracle. ``settings`` go before ours."""

    kind = "mysql"

    def find_program(self) -> str:
        found = program("mysql-server", "mysqld")
        if _is_mariadb(found):
            raise ServiceMissing(
                f"service missing: {found} is MariaDB; scripts/other-servers sid mysql-server-core gets MySQL"
            )
        return found

    def own_settings(self) -> dict[str, str]:
        # Without TLS, as faults are made by a proxy that looks for words.
        own = {
            "tls-version": "",
            "secure-file-priv": "",
            "innodb-redo-log-capacity": "64M",
            "mysqlx": "OFF",
            "disable-log-bin": "ON",
        }
        # There is no word for "do not sync" but this method of flushing.
        return own if self.durable else own | {"innodb-flush-method": "nosync", "innodb-doublewrite": "OFF"}

    def make(self) -> None:
        # Names of hosts are not looked up, and the one user that there is has the name of a host.
        root = self.folder / "root.sql"
        root.write_text("RENAME USER root@localhost TO root@'%';\n")
        self.run(
            [self.program, "--no-defaults", f"--basedir={self.base}", f"--datadir={self.data}", "--initialize-insecure",
             f"--init-file={root}",
             "--innodb-redo-log-capacity=64M", "--innodb-flush-method=nosync", "--innodb-use-native-aio=OFF"],
        )  # fmt: skip


@cache
def _is_mariadb(found: str) -> bool:
    said = subprocess.run([found, "--no-defaults", "--version"], capture_output=True, text=True, check=False).stdout
    return "mariadb" in said.lower()


def mysql_or_mariadb(**options: Any) -> MariadbServer:
    """Prepare a server for the MySQL store: by the first program that is found."""
    found = program("mariadb-server", "mariadbd", "mysqld")
    return (MariadbServer if _is_mariadb(found) else MysqlServer)(**options)
