"""Checks of a store: whether it can be trusted, how fast it is, whether its clock and its notifications are right."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, timedelta, tzinfo
from pathlib import Path
from typing import Any

from cronsensus.audit.losses import losses
from cronsensus.errors import StoreError
from cronsensus.insight.check import FAIL, OK_LEVEL, WARN, Check
from cronsensus.insight.time_words import brief_duration, exact_time, relative_time
from cronsensus.security.masking import mask
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

MOST_SKEW = timedelta(seconds=2)
SLOW_LOOK = 0.1
WAKE_UP_SECONDS = 2.0
LOW_AND_LITTLE_SPACE = (50 * 2**20, 500 * 2**20)
"""Free bytes below which it fails, and below which it is worth a look."""
MAX_LOSSES = 5
_SHARED_FILE_SYSTEMS = re.compile("nfs|cifs|smb|ceph|gluster|lustre|sshfs|s3|9p")
"""File systems that several hosts may have mounted. The store refuses them unless its URL allows it."""
_LOSS_BY_SYNCHRONOUS = {
    "off": "a power failure loses committed results, and runs repeat",
    "normal": "a power failure may lose the last commits",
}
_IN_OTHER_CHECKS = {
    "store", "namespace", "schema", "clock", "lease_clock", "busy_timeout", "wake_ups", "synchronous", "bytes",
    "max_connections", "synchronous_commit", "synchronous_standbys", "standbys", "standby_behind_bytes",
    "galera_servers", "galera_state", "galera_refused",
}  # fmt: skip


def check_store(store: Store, described: dict[str, Any]) -> Iterator[Check]:
    """Show which store this is, and whether other nodes can see it."""
    shown = ", ".join(
        f"{key.replace('_', ' ')} {mask(str(value))}"
        for key, value in described.items()
        if key not in _IN_OTHER_CHECKS and not isinstance(value, (dict, list))
    )
    name = store.capabilities.name
    yield Check("store", OK_LEVEL, f"{name}, namespace {store.namespace}" + (f": {shown}" if shown else ""))
    schema = described.get("schema")
    yield Check("schema", OK_LEVEL, "as this version wants it" + ("" if schema is None else f" (version {schema})"))
    if store.capabilities.clock == "process":
        yield Check(
            "store", WARN, "memory:// ends with its process, and no other node sees it", "--url sqlite:///cronsensus.db"
        )


def check_losses(store: Store, zone: tzinfo = UTC) -> Iterator[Check]:
    """Show which store this is, and what it lost, as far as nodes noticed."""
    identity = store.identity()
    if identity is not None:
        made_text = "" if identity.since is None else f", made {exact_time(identity.since, zone)}"
        yield Check("identity", OK_LEVEL, f"{identity.id}{made_text}")
    for loss in losses(store)[:MAX_LOSSES]:
        text = f"{loss.action}: noticed {relative_time(loss.at, store.now())} by {loss.by} ({loss.why})"
        if begin := loss.details.get("from"):
            text += f"; what came between {begin} and {loss.details['until']} may be gone"
        yield Check("loss", WARN, text, "see that replication or the disk is as safe as you need: docs/stores.md")


def check_speed(store: Store) -> Check:
    """Measure how long a look takes."""
    clock = SystemClock()
    times = []
    for _ in range(3):
        began = clock.monotonic()
        store.look(limit=1)
        times.append(clock.monotonic() - began)
    middle = sorted(times)[1]
    text = f"a look takes {middle * 1000:.1f} ms"
    if middle > SLOW_LOOK:
        return Check(
            "speed", WARN, text, "see what else uses the store, and how far away it is; runs start later by this"
        )
    return Check("speed", OK_LEVEL, text)


def check_clocks(store: Store) -> Check:
    """Compare this machine's clock with the store's."""
    clock = SystemClock()
    before = clock.now()
    store_time = store.now()
    after = clock.now()
    skew = store_time - (before + (after - before) / 2)
    text = (
        f"this machine's clock is {brief_duration(abs(skew))} "
        f"{'behind' if skew > timedelta(0) else 'ahead of'} the store's"
    )
    if abs(skew) <= MOST_SKEW:
        return Check("clocks", OK_LEVEL, f"this machine and the store agree within {brief_duration(abs(skew))}")
    return Check(
        "clocks", WARN, f"{text}; due times follow the store's, so nothing is lost or doubled", "chronyc tracking"
    )


def check_wake_ups(store: Store, described: dict[str, Any]) -> Check:
    """Send a notification until a sibling receives it: the first may be sent before it listens."""
    if str(described.get("pooler", "none")) != "none" and not store.capabilities.notify:
        return Check(
            "wake-ups",
            WARN,
            "a connection pooler is between: nodes find work by looking, and a dead one by its lease alone",
            "give nodes a URL that leads to the server itself; or ?pooler=session if each client keeps its connection",
        )
    if not store.capabilities.notify and store.capabilities.clock == "server":
        return Check("wake-ups", OK_LEVEL, "this store has none: what is enqueued may wait two seconds for a look")
    clock, is_notified = SystemClock(), threading.Event()
    listener = store.sibling()
    began = clock.monotonic()

    def listen() -> None:
        try:
            if listener.wait(WAKE_UP_SECONDS):
                is_notified.set()
        except StoreError:
            pass

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        while not is_notified.wait(0.02) and thread.is_alive():
            store.notify()
    finally:
        listener.close()
        thread.join(WAKE_UP_SECONDS)
    if is_notified.is_set():
        return Check("wake-ups", OK_LEVEL, f"a notification arrives within {(clock.monotonic() - began) * 1000:.0f} ms")
    return Check(
        "wake-ups",
        WARN,
        (
            f"no hint arrived within {brief_duration(timedelta(seconds=WAKE_UP_SECONDS))}: work is found by "
            f"looking, so it starts later"
        ),
        "see that nodes may write to the folder of the store, and that no firewall cuts idle connections",
    )


def check_durability(described: dict[str, Any]) -> Iterator[Check]:
    """Judge the settings by which a power failure, or another machine, could lose or spoil what is committed."""
    journal = str(described.get("journal_mode", "")).lower()
    if journal and journal != "wal":
        yield Check(
            "journal", WARN, f"journal_mode is {journal}: readers and writers block each other", "cronsensus db upgrade"
        )
    synchronous = str(described.get("synchronous", "")).lower()
    synchronous = {"0": "off", "1": "normal"}.get(synchronous, synchronous)
    if synchronous:
        loses = _LOSS_BY_SYNCHRONOUS.get(synchronous)
        consequence = loses or "what is committed survives a power failure"
        level = OK_LEVEL if loses is None else FAIL if synchronous == "off" else WARN
        advice = "" if loses is None else "add ?synchronous=FULL to the URL"
        yield Check("durability", level, f"synchronous is {synchronous}: {consequence}", advice)
    file_system = described.get("file_system")
    if isinstance(file_system, str) and _SHARED_FILE_SYSTEMS.search(file_system):
        yield Check(
            "file system",
            WARN,
            f"the file lies on {file_system}, where SQLite's locks do not hold between machines",
            "use it from this host only, or put it on a local disk",
        )


def check_failover(described: dict[str, Any]) -> Iterator[Check]:
    """Report what acknowledged writes a failover of PostgreSQL may lose, by its present standbys."""
    if (standbys := described.get("standbys")) is None:
        return
    names, commit = described["synchronous_standbys"], described["synchronous_commit"]
    standby_count = f"{standbys} standby{'' if standbys == 1 else 's'}"
    if names != "none" and commit != "local":
        text = (
            f"{standby_count}, and each commit waits for {names}: a failover to one that was waited for loses nothing"
        )
        if standbys:
            yield Check("failover", OK_LEVEL, text)
        else:
            yield Check("failover", WARN, text, "see why no standby is connected: commits may wait for one")
    elif standbys:
        behind = described["standby_behind_bytes"]
        lag = "" if behind is None else f", now {behind:,} bytes"
        text = (
            f"{standby_count}, and no commit waits for one: a failover loses what the next primary did not have "
            f"yet{lag}"
        )
        yield Check(
            "failover", WARN, text, "set synchronous_standby_names (Patroni: synchronous_mode), and none is lost"
        )
    else:
        text = "no standby is seen: nothing can take over but what is replicated beneath PostgreSQL"
        yield Check("failover", OK_LEVEL, text)


def check_galera(described: dict[str, Any]) -> Iterator[Check]:
    """Report what a failover of a Galera cluster loses, and whether other servers seem to be written to, too."""
    if (servers := described.get("galera_servers")) is None:
        return
    state, refused = described["galera_state"], described["galera_refused"]
    if state != "Synced":
        text = f"this server of a Galera cluster is {state}, not Synced: it may be behind, or be parted from the others"
        yield Check("failover", WARN, text, "have the proxy lead to a server that is Synced")
    elif refused:
        text = (
            f"Galera, {servers} servers, and {refused} transactions were refused here since the start because another "
            "server was written to: if nodes did, a job may run more often at a time than its concurrency says"
        )
        yield Check("failover", WARN, text, "lead all nodes to one server, the others stand by: docs/stores.md")
    elif servers < 3:
        text = f"Galera, {servers} server{'' if servers == 1 else 's'}: when one is gone, what is left takes no writes"
        yield Check("failover", WARN, text, "see why servers are missing; a cluster has three or more")
    else:
        text = f"Galera, {servers} servers: a failover loses nothing, while all nodes are led to one of them at a time"
        yield Check("failover", OK_LEVEL, text)


def check_space(described: dict[str, Any]) -> Iterator[Check]:
    """Check how much space the disk of a store in a file has left."""
    store_file = described.get("file")
    if not isinstance(store_file, str):
        return
    try:
        free = shutil.disk_usage(Path(store_file).parent).free
    except OSError:
        return
    text = f"{free / 2**30:.1f} GiB free beside the store"
    low, little = LOW_AND_LITTLE_SPACE
    if free < low:
        yield Check(
            "disk", FAIL, text, "cronsensus db prune --before 7d, and free some space: a full store runs nothing"
        )
    elif free < little:
        yield Check("disk", WARN, text, "free some space before it is full: cronsensus db prune")
    else:
        yield Check("disk", OK_LEVEL, text)
