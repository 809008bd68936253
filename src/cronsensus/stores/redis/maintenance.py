"""Verbs that check, migrate, prune and describe a store."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import Any

from cronsensus.stores.redis.redis_codec import to_micros_text
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.stores.redis.redis_health import read_server_health, require_sound
from cronsensus.stores.redis.redis_presence import may_ask
from cronsensus.stores.values import Pruned, StoreCapabilities
from cronsensus.timing.instants import from_micros

JOBS_AT_ONCE = 100
DELETED_AT_ONCE = 200
"""Most occurrences and ranges that one script deletes, so that others do not wait long."""

_NO_EVIDENCE = (
    "no evidence of death: this user may not ask PUBSUB NUMSUB, so a dead node on another host is noticed when its "
    "lease ends; ACL SETUSER … +pubsub|numsub"
)
MOST_BATCHES = 50
"""Steps in which one prune deletes ended sessions and old entries of the trail."""


class MaintenanceVerbs(Handle):
    """What keeps a store sound and small."""

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """Return what this store can do."""

    def _migrate(self) -> list[str]:
        """Check the server; there is nothing to migrate: a namespace has its schema from its first write on."""
        self._check()
        return []

    def _check(self) -> None:
        """Raise unless the server is fit for a store, and the namespace was not written by a newer version."""
        require_sound(read_server_health(self._client), self._client.where)
        self._now()

    def _now(self) -> datetime:
        return from_micros(int(self._read_script("now")))

    def _prune(self, before: datetime | None, limit: int) -> Pruned:
        """Delete old rows and raise horizons, a part in each step; a job's deletions and its horizon are one step."""
        jobs: list[str] = self._read_script("prunable", before is not None)
        deleted = needed = position = batches = 0
        while True:
            part_limit = min(DELETED_AT_ONCE, limit - deleted)
            deleted_now, needed_now, jobs_done, position, has_more = self._write_script(
                "prune", jobs[:JOBS_AT_ONCE], to_micros_text(before), part_limit, position
            )
            deleted, needed = deleted + int(deleted_now), needed + int(needed_now)
            jobs = jobs[jobs_done:]
            batches += 1
            if deleted >= limit or not (jobs or (has_more and batches < MOST_BATCHES)):
                return Pruned(deleted, needed)

    def _describe(self) -> dict[str, Any]:
        health = read_server_health(self._client)
        has_evidence = may_ask(self._client, self._keyspace)
        return {
            "store": self.capabilities.name,
            "where": self._client.where,
            "namespace": self.namespace,
            "keys": f"{{{self._keyspace.name}}}:*",
            "schema": 1,
            "server": f"{health.product} {health.version}",
            "cluster": health.cluster,
            "maxmemory_policy": health.policy or "cannot be checked",
            "maxmemory": health.max_memory,
            "used_memory": health.used_memory,
            "persistence": health.persistence,
            "replicas": health.replicas,
            "min_replicas": self._url.min_replicas,
            "evidence_of_death": "a channel that the process listens to" if has_evidence else _NO_EVIDENCE,
            "warnings": [*health.warnings, *([] if has_evidence else [_NO_EVIDENCE])],
        }
