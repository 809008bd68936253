"""Print what a store holds, as ``tests/stores/test_recorded.py`` reads it: ``dump.py FILE.db | redis://…?prefix=…``."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing

from tests.servers.fixtures import redis_client


def of_file(path: str) -> str:
    """Return the statements that make a database like this one."""
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())


def of_redis(url: str) -> str:
    """Return a line of JSON for each key: key without its prefix, type, values; bytes as Latin-1."""
    prefix = url.rpartition("prefix=")[2]
    lines = []
    with redis_client(url.partition("?")[0]) as client:
        for key in sorted(client.scan_iter(match=f"{{{prefix}:*")):
            kind = client.type(key).decode()
            value = {
                "hash": client.hgetall,
                "set": lambda key: sorted(client.smembers(key)),
                "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
                "list": lambda key: client.lrange(key, 0, -1),
                "string": client.get,
            }[kind](key)
            rows = list(value.items()) if isinstance(value, dict) else value
            name = key.decode().removeprefix(f"{{{prefix}:")
            lines.append(json.dumps([name, kind, rows], default=lambda one: one.decode("latin-1")))
    return "\n".join(lines)


if __name__ == "__main__":
    print(of_redis(sys.argv[1]) if sys.argv[1].startswith("redis") else of_file(sys.argv[1]))
