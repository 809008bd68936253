"""Put statements together into packets, so that several cross the network in one trip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from cronsensus.stores.sql.mysql.literals import literal_of
from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection
from cronsensus.stores.sql.queries import ROWS, VALUE, Query, row_maker
from cronsensus.stores.sql.sending import NONE, Moment, Pending

CLOCK = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
"""The server's time in UTC, whatever its zone and the session's: that of this statement, which waits for nothing."""
OUT_OF_RANGE = 1690
MOST_CHARACTERS = 500_000
"""Most characters of a packet; the server refuses larger ones (the smallest usual limit is 16 MB)."""
_LARGEST = 18446744073709551615


class Part(NamedTuple):
    """The text of a statement, and the ``Pending`` that gets its answer.

    Attributes:
        guards: it fails if the statement before it did not touch what ``pending`` expects.
    """

    text: str
    pending: Pending | None = None
    guards: bool = False


def parts_of(driver: BoundedConnection, pending: Pending, *, together: bool) -> Iterator[Part]:
    """Yield a statement with its values filled in and, if it must touch a certain number of rows, its guard.

    The guard overflows the largest integer if another number of rows was touched; the error keeps the server from
    running the rest of the packet. If each statement is sent by itself, the rows are counted here instead.
    """
    yield Part(_fill_values(driver, pending), pending)
    if pending.expect is not None and together:
        yield Part(f"SELECT {_LARGEST} + (ROW_COUNT() <> {pending.expect})", pending, guards=True)


def split_packets(parts: Sequence[Part], *, together: bool) -> Iterator[Sequence[Part]]:
    """Split statements into packets that a server accepts; a statement and its guard stay together."""
    packet: list[Part] = []
    length = 0
    for part in parts:
        full = not together or length + len(part.text) > MOST_CHARACTERS
        if packet and full and not part.guards:
            yield packet
            packet, length = [], 0
        packet.append(part)
        length += len(part.text)
    if packet:
        yield packet


def rows_of(names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the rows of an answer; columns are read by name or by position."""
    return list(map(_maker(names), rows)) if rows else NONE


_maker = cache(row_maker)


def _fill_values(driver: BoundedConnection, pending: Pending) -> str:
    text, row, separator = _templates_of(pending.query)
    values = {
        name: f"({CLOCK} + {value.plus})" if isinstance(value, Moment) else literal_of(driver, value)
        for name, value in pending.values.items()
    }
    if pending.row_values is None:
        return text % values
    names = pending.query.rows
    rows = [
        row % {**values, **dict(zip(names, [literal_of(driver, value) for value in row_values], strict=True))}
        for row_values in pending.row_values
    ]
    before, after = text.split(ROWS)
    return before % values + separator.join(rows) + after % values


@cache
def _templates_of(query: Query) -> tuple[str, str, str]:
    text, row = (VALUE.sub(r"%(\1)s", template.replace("%", "%%")) for template in (query.text, query.row))
    return text, row, " UNION ALL " if query.row.startswith("SELECT") else ", "


def statements_in(text: str) -> list[str]:
    """Return the statements of a text that this package wrote."""
    return [statement for statement in re.split(r"; ?", text) if statement]
