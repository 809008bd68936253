"""Open a session of this process: for a node, for locks, or for guarded calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from cronsensus.membership.lease import SessionLease
from cronsensus.membership.liveness import own_start
from cronsensus.model.ids import new_id
from cronsensus.model.session import SessionSpec
from cronsensus.stores.base import Store
from cronsensus.stores.boot import host_identity
from cronsensus.timing.clock import Clock
from cronsensus.triggers.zone_rules import ZoneRules


def of_this_process(
    name: str,
    *,
    release: str = "",
    concurrency: int = 0,
    functions: int = 0,
    declares: Mapping[str, str] = MappingProxyType({}),
    rules: ZoneRules | None = None,
) -> SessionSpec:
    """Describe a new session of this process; with a concurrency of zero it is not a node's."""
    from importlib.metadata import version

    return SessionSpec(
        id=new_id(),
        node=name,
        host=host_identity(),
        pid=os.getpid(),
        pid_started=own_start(),
        release=release,
        concurrency=concurrency,
        version=version("cronsensus"),
        functions=functions,
        declares=dict(declares),
        tzdata="" if rules is None else rules.version,
        zones={} if rules is None else dict(rules.digests),
    )


def open_session(
    store: Store, clock: Clock, spec: SessionSpec, length: timedelta, on_lease_shortened: Callable[[], None]
) -> tuple[SessionLease, datetime]:
    """Open a session; return its lease, and when it was opened by the store's clock.

    The lease is trusted from before the request was sent.

    Raises:
        StoreError: the store cannot be used now; it may have opened the session all the same.
    """
    lease = SessionLease(spec.id, clock, on_lease_shortened)
    asked = lease.note_request()
    opened_at = store.open_session(spec, lease=length)
    lease.confirm_renewal(asked, length)
    return lease, opened_at
