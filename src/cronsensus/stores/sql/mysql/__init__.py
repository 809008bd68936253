"""The MySQL store: MySQL 8.0.17 or newer and MariaDB 10.6 or newer, on any number of hosts.

The server's clock judges due times and leases, in UTC whatever its zone. Transactions that write run at READ COMMITTED
and lock the rows they rest on; what InnoDB undoes because two stood in each other's way is done again. There are no
wake-ups: nodes look by themselves.

Run against MariaDB 10.11 only. Of what MySQL alone does otherwise each place says so, by the words "not run".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronsensus.stores.sql.mysql.mysql_store import MysqlStore

__all__ = ["MysqlStore"]


def __getattr__(name: str) -> Any:
    """Import the store when it is asked for: what only asks the driver, such as a probe, does without the verbs."""
    if name in __all__:
        from cronsensus.stores.sql.mysql.mysql_store import MysqlStore

        return MysqlStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
