"""Write values as literals in the text of a statement: PyMySQL has no prepared statements, and its own escapes."""

from __future__ import annotations

from typing import Any

from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection

_NOTHING = "(SELECT 1 FROM DUAL WHERE FALSE)"
"""A list without elements, for IN and NOT IN; with NULL in it, NOT IN would be true for nothing."""


def literal_of(driver: BoundedConnection, value: Any) -> str:
    """Return a value as a literal for the text of a statement."""
    if value is None:
        return "NULL"
    if type(value) is int:
        return str(value)
    if isinstance(value, (list, tuple)):
        return "(" + ",".join([literal_of(driver, item) for item in value]) + ")" if value else _NOTHING
    return driver.escape(value)
