"""Whether a server may be trusted with a store: its version, its role, what it evicts, what it saves. Floor 3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cronsensus.errors import StoreError, StoreReadOnly, StoreUnavailable
from cronsensus.stores.redis.link import Link

OLDEST = (6, 2)
_UNKNOWN = "cannot be checked (the server does not allow CONFIG GET)"


@dataclass(frozen=True, slots=True)
class Health:
    """What a server says of itself. ``None``: it does not say.

    Attributes:
        policy: what it does when its memory is full.
        save: when it writes snapshots; empty: never.
        fsync: how often its log of writes is synced.
    """

    product: str
    version: str
    role: str
    policy: str | None
    max_memory: int
    used_memory: int
    replicas: int
    cluster: bool
    append_only: bool
    save: str | None
    fsync: str | None

    @property
    def persistence(self) -> str:
        """What survives a restart, in words."""
        if self.append_only:
            return f"append-only file, synced {self.fsync or 'at an interval that ' + _UNKNOWN}"
        if self.save is None:
            return f"no append-only file; snapshots: {_UNKNOWN}"
        return f"snapshots ({self.save})" if self.save else "none"

    @property
    def warnings(self) -> list[str]:
        """What is not refused, but ought to be known."""
        found = []
        if not self.append_only and self.save == "":
            found.append(
                "nothing is saved to disk: a restart forgets every job, run and verdict; CONFIG SET appendonly yes"
            )
        elif not self.append_only:
            found.append(
                "only snapshots are saved: a restart may forget the last minutes, and runs repeat; "
                "CONFIG SET appendonly yes"
            )
        elif self.fsync == "no":
            found.append("the append-only file is never synced by the server; CONFIG SET appendfsync everysec")
        if self.max_memory == 0:
            found.append("no limit of memory is set (maxmemory 0): the host's own limit would kill the server")
        return found


def look(link: Link) -> Health:
    """Ask the server."""
    info = _info(link)
    version = info.get("valkey_version") or info.get("redis_version") or "0"
    return Health(
        product="valkey" if "valkey_version" in info else "redis",
        version=version,
        role=info.get("role", "master"),
        policy=info.get("maxmemory_policy"),
        max_memory=int(info.get("maxmemory", 0)),
        used_memory=int(info.get("used_memory", 0)),
        replicas=int(info.get("connected_slaves", 0)),
        cluster=info.get("cluster_enabled") == "1",
        append_only=info.get("aof_enabled") == "1",
        save=_config(link, "save"),
        fsync=_config(link, "appendfsync"),
    )


def require_sound(health: Health, where: str) -> None:
    """Raise unless a store may live on such a server.

    Raises:
        StoreUnavailable: it is too old, or would throw away what it was told.
        StoreReadOnly: it is a replica.
    """
    # Valkey began at 7.2 and tells the version of Redis that it is compatible with; any is new enough.
    if health.product == "redis" and _numbers(health.version) < OLDEST:
        raise StoreUnavailable(
            f"{where} runs Redis {health.version}; 6.2 is the least. Upgrade the server, or use Valkey"
        )
    if health.role != "master":
        raise StoreReadOnly(
            f"{where} is a replica, which can be read but not written; name the master in the URL, or the Sentinels "
            "that know it: redis+sentinel://…/service"
        )
    if health.policy is not None and health.policy != "noeviction":
        raise StoreUnavailable(
            f"{where} throws keys away when its memory is full (maxmemory-policy {health.policy}), and with them jobs, "
            "results and locks; type: CONFIG SET maxmemory-policy noeviction (and in redis.conf: maxmemory-policy "
            "noeviction), or use another server"
        )


def _info(link: Link) -> dict[str, str]:
    text: bytes = link.command("INFO")
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, found, value in lines if found}


def _config(link: Link, name: str) -> str | None:
    """Return a setting; ``None`` where managed servers keep it to themselves."""
    try:
        answer: Any = link.command("CONFIG", "GET", name)
    except StoreError:
        return None
    return answer[1].decode("utf-8", "replace") if len(answer) == 2 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
