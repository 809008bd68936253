"""Check whether a server is fit for a store: its version, its role, its eviction policy, its persistence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cronsensus.errors import StoreError, StoreReadOnly, StoreRefused
from cronsensus.process.logger import Logger
from cronsensus.stores.redis.client import Client
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.stores")

OLDEST = (6, 2)
KEEPS_ALL = "noeviction"
LOOKED_AT_EVERY = 600.0
"""Seconds between a node's checks of its server's eviction policy."""
_UNKNOWN = "cannot be checked (the server does not allow CONFIG GET)"


@dataclass(frozen=True, slots=True)
class Health:
    """A server's report about itself. ``None``: it does not report the value.

    Attributes:
        policy: its eviction policy when its memory is full.
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
        """Its persistence across a restart, in words."""
        if self.append_only:
            return f"append-only file, synced {self.fsync or 'at an interval that ' + _UNKNOWN}"
        if self.save is None:
            return f"no append-only file; snapshots: {_UNKNOWN}"
        return f"snapshots ({self.save})" if self.save else "none"

    @property
    def warnings(self) -> list[str]:
        """Problems that are not refused, but worth knowing."""
        warnings_found = []
        if not self.append_only and self.save == "":
            warnings_found.append(
                "nothing is saved to disk: a restart forgets every job, run and verdict; CONFIG SET appendonly yes"
            )
        elif not self.append_only:
            warnings_found.append(
                "only snapshots are saved: a restart may forget the last minutes, and runs repeat; "
                "CONFIG SET appendonly yes"
            )
        elif self.fsync == "no":
            warnings_found.append("the append-only file is never synced by the server; CONFIG SET appendfsync everysec")
        if self.max_memory == 0:
            warnings_found.append("no limit of memory is set (maxmemory 0): the host's own limit would kill the server")
        return warnings_found


class EvictionWatch:
    """Logs on a running node when its server begins to evict keys, which no verb would notice."""

    def __init__(self, client: Client, clock: Clock) -> None:
        """Start as if ``check`` had just checked the server."""
        self._client = client
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._policy = KEEPS_ALL

    def check_policy(self) -> None:
        """Read the policy, if that was long ago; a server that does not answer is ignored here."""
        if self._clock.monotonic() - self._looked_at < LOOKED_AT_EVERY:
            return
        self._looked_at = self._clock.monotonic()
        try:
            policy = _read_info(self._client, "memory").get("maxmemory_policy", KEEPS_ALL)
        except StoreError:
            return
        if policy != self._policy:
            self._policy = policy
            if policy == KEEPS_ALL:
                _log.aside.warning("%s keeps what it was told again (maxmemory-policy %s)", self._client.where, policy)
            else:
                _log.aside.critical(
                    "%s. This node goes on; it would not start again", _throws_away(policy, self._client.where)
                )


def read_server_health(client: Client) -> Health:
    """Read the server's health."""
    info = _read_info(client)
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
        save=_read_setting(client, "save"),
        fsync=_read_setting(client, "appendfsync"),
    )


def require_sound(health: Health, where: str) -> None:
    """Raise unless a store may use such a server.

    Raises:
        StoreRefused: it is too old, or would evict keys.
        StoreReadOnly: it is a replica.
    """
    # Valkey began at 7.2, and reports the compatible version of Redis; any is new enough.
    if health.product == "redis" and _version_numbers(health.version) < OLDEST:
        raise StoreRefused(f"{where} runs Redis {health.version}; 6.2 is the least. Upgrade the server, or use Valkey")
    if health.role != "master":
        raise StoreReadOnly(
            f"{where} is a replica, which can be read but not written; name the master in the URL, or the Sentinels "
            "that know it: redis+sentinel://…/service"
        )
    if health.policy is not None and health.policy != KEEPS_ALL:
        raise StoreRefused(_throws_away(health.policy, where))


def _throws_away(policy: str, where: str) -> str:
    return (
        f"{where} throws keys away when its memory is full (maxmemory-policy {policy}), and with them jobs, "
        "results and locks; type: CONFIG SET maxmemory-policy noeviction (and in redis.conf: maxmemory-policy "
        "noeviction), or use another server"
    )


def _read_info(client: Client, *sections: str) -> dict[str, str]:
    text: bytes = client.run_command("INFO", *sections)
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, separator, value in lines if separator}


def _read_setting(client: Client, name: str) -> str | None:
    """Return a setting; ``None`` if a managed server hides it."""
    try:
        answer: Any = client.run_command("CONFIG", "GET", name)
    except StoreError:
        return None
    return answer[1].decode("utf-8", "replace") if len(answer) == 2 else None


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
