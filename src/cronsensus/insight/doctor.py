"""The checks of ``cronsensus doctor``: what is wrong with store, nodes and jobs, and what to type. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, tzinfo

from cronsensus.errors import StoreError
from cronsensus.insight.check import FAIL, WARN, Check
from cronsensus.insight.store_checks import (
    check_clocks,
    check_durability,
    check_failover,
    check_galera,
    check_losses,
    check_space,
    check_speed,
    check_store,
    check_wake_ups,
)
from cronsensus.insight.work_checks import (
    check_alerts,
    check_circles,
    check_connections,
    check_failing,
    check_jobs,
    check_nodes,
    check_retired,
    check_standstills,
    check_unreadable,
    check_waiting,
)
from cronsensus.security.masking import mask
from cronsensus.stores.base import Store


def examine_store(store: Store, zone: tzinfo = UTC) -> Iterator[Check]:
    """Yield the findings; times of jobs without a zone are in ``zone``.

    Raises:
        StoreError: the store cannot be used, so there is nothing to examine.
    """
    store.check()
    described = store.describe()
    yield from check_store(store, described)
    yield from check_losses(store, zone)
    yield check_speed(store)
    yield check_clocks(store)
    yield check_wake_ups(store, described)
    yield from check_durability(described)
    yield from check_failover(described)
    yield from check_galera(described)
    for warning in described.get("warnings", ()):
        text, _, then = warning.partition("; ")
        yield Check("server", WARN, text, then)
    yield from check_space(described)
    yield from check_nodes(store)
    yield from check_connections(store, described)
    yield from check_jobs(store, zone)
    yield from check_circles(store)
    yield from check_standstills(store, zone)
    yield from check_retired(store, zone)
    yield from check_alerts(store)
    yield from check_failing(store)
    yield from check_waiting(store, zone)
    yield from check_unreadable(store)


def unusable_store(error: StoreError) -> Check:
    """Return the finding for a store that cannot be used."""
    what, _, then = str(error).partition("; ")
    return Check("store", FAIL, mask(what), then or "cronsensus config")
