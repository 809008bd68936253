"""Of containers with boot ids or clocks of their own only one uses a database: the next is refused while it lives."""

import errno
import fcntl
import logging
import os
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.errors import StoreBusy, StoreFull, StoreRefused, StoreUnavailable
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.stores.boot import boot_id
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.sqlite import epoch as epoch_module
from cronsensus.stores.sql.sqlite.epoch import Epoch
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every
from tests.stores.sql.conftest import Child

LEASE = timedelta(seconds=600)
OpenSqlite = Callable[..., SqliteStore]
RunChild = Callable[..., Child]


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let this process be in a container with another boot id."""

    def is_now(text: str) -> None:
        monkeypatch.setattr(epoch_module, "lease_epoch", lambda: text)

    is_now("boot-b")
    return is_now


def text_of(place: Path) -> str:
    return (place / "jobs.db-epoch").read_text().partition("\n")[0]


def is_held(place: Path) -> bool:
    with (place / "jobs.db-epoch").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


# --- two containers ---------------------------------------------------------------------------------------------------

IN_A = """
from cronsensus.stores.sql.sqlite import epoch
if {boot!r}:
    epoch.lease_epoch = lambda: {boot!r}
store = SqliteStore(url)
store.migrate()
store.define_jobs([JobSpec(name="queue", function="f")], release="r1")
store.open_session(a_session("in a"), lease=LEASE)
lock = store.lock("name", "a", ttl=LEASE, session="in a")
store.enqueue([Item(job="queue", key="k")])
[claim] = store.step("in a", Step(want=Want(limit=1, functions=["f"], lease=LEASE))).claims
say("ready")
hear()
outcome = an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)
say((store.renew("in a", lease=LEASE).alive, store.extend(lock, ttl=LEASE)))
say(store.step("in a", Step(ends=(outcome,))).settled[0].accepted)
hear()
"""


def buried(store: SqliteStore) -> list[str]:
    """Return what a process of another container takes for dead of what one of ``IN_A`` holds."""
    found = [f"session {view.id}" for view in store.sessions() if view.state == "dead"]
    found += [f"run {one.key}" for one in store.reclaim()]
    return found + ["lock"] * (store.lock("name", "b", ttl=LEASE) is not None)


def be_refused(open_sqlite: OpenSqlite, other: Child, shown: str = r"\(boot-a\).*\(boot-b\)") -> None:
    """Be kept out of the database that a process of another container uses, which goes on."""
    assert other.hear() == "ready"
    for _ in range(2):
        with pytest.raises(
            StoreRefused, match=rf"another boot id or monotonic clock {shown}.*fuser -v .*-epoch.*redis://"
        ):
            open_sqlite(migrated=False).now()
    other.say()
    assert [other.hear(), other.hear()] == ["(True, True)", "True"]


def test_process_in_a_container_with_another_boot_id_is_refused_and_the_one_that_is_there_goes_on(
    open_sqlite, run_child, boot
):
    other = run_child(IN_A.format(boot="boot-a"))
    be_refused(open_sqlite, other)
    other.say()
    assert other.process.wait(60) == 0
    assert len(open_sqlite(migrated=False).occurrences(OccurrenceFilter())) == 1, "and is let in when that is over"


def test_by_boot_ids_alone_two_containers_take_each_other_for_dead(open_sqlite, run_child, boot, monkeypatch):
    monkeypatch.setattr(Epoch, "_other_epoch_error", lambda *_: OSError(errno.ENOLCK, "not refused"))
    other = run_child(IN_A.format(boot="boot-a"))
    assert other.hear() == "ready"
    assert buried(open_sqlite(migrated=False)) == ["session in a", "run k", "lock"]


def test_node_in_another_container_does_not_start_and_says_why(url, boot, run_child):
    other = run_child(IN_A.format(boot="boot-a"))
    assert other.hear() == "ready"
    scheduler = Scheduler(url, node="b")
    scheduler.job(name="queue", trigger=every("100ms"))(lambda: None)
    with pytest.raises(StoreRefused, match="another boot id"):
        scheduler.start()


# --- real namespaces --------------------------------------------------------------------------------------------------

CLOCK = ["--time", "--monotonic=1000000", "--boottime=2000000"]
CONTAINER = ["unshare", "--mount", "--fork", "--kill-child", *CLOCK]


@pytest.fixture
def run_in_container(url: str, place: Path) -> Iterator[RunChild]:
    """Start processes in mount and time namespaces of their own, with boot ids of their own, if that may be done."""
    (place / "boot").write_text("11111111-2222-3333-4444-555555555555\n")
    inside = f"mount --bind '{place}/boot' /proc/sys/kernel/random/boot_id && exec \"$@\""
    command = [*CONTAINER, "sh", "-c", inside, "sh"]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=100, check=False)
    except OSError as error:
        pytest.skip(f"no namespaces can be made here: {error}")
    if tried.returncode:
        pytest.skip(f"no namespaces can be made here: {tried.stderr.strip()}")
    children: list[Child] = []

    def run(script: str) -> Child:
        children.append(Child(script, url, command))
        return children[-1]

    yield run
    for child in children:
        child.end()


def test_host_of_a_real_container_that_uses_the_database_is_refused(open_sqlite, run_in_container):
    be_refused(open_sqlite, run_in_container(IN_A.format(boot="")), r"\(11111111-[^ ]*/1000000\.0\)")


# --- the end of an epoch ----------------------------------------------------------------------------------------------


def test_holder_that_is_killed_ends_its_epoch_with_the_next_that_opens(open_sqlite, run_child, boot, place):
    holder = run_child(IN_A.format(boot="boot-a"))
    assert holder.hear() == "ready"
    assert (text_of(place), is_held(place)) == ("boot-a", True)
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait()
    assert not is_held(place)
    store = open_sqlite(migrated=False)
    assert buried(store) == ["session in a", "run k", "lock"]
    assert text_of(place) == "boot-b"


def test_epoch_lasts_while_any_handle_of_any_process_is_open(open_sqlite, run_child, place, boot):
    boot(boot_id())
    first = run_child("store = SqliteStore(url)\nstore.migrate()\nsay('open')\nhear()")
    assert first.hear() == "open"
    one, two = open_sqlite(), open_sqlite()
    first.end()
    one.close()
    boot("boot-c")
    with pytest.raises(StoreRefused):
        open_sqlite()
    two.close()
    assert (text_of(place), is_held(place)) == (boot_id(), False)
    open_sqlite()
    assert (text_of(place), is_held(place)) == ("boot-c", True)


def test_epoch_of_a_host_is_its_boot_id(open_sqlite, place):
    store = open_sqlite()
    store.open_session(a_session("s1"), lease=LEASE)
    assert text_of(place) == boot_id()
    store.close()
    assert open_sqlite().renew("s1", lease=LEASE).alive, "also when all were away for a while"


RACE = """
from cronsensus.errors import StoreRefused
from cronsensus.stores.sql.sqlite import epoch
epoch.lease_epoch = lambda: {boot!r}
say("ready")
for number in range({rounds}):
    hear()
    store = SqliteStore(f"{{url}}.{{number}}")
    try:
        store.now()
        say("open")
    except StoreRefused:
        say("refused")
    hear()
    store.close()
"""


def test_of_processes_that_open_first_at_the_same_instant_those_of_one_epoch_come_in(url, open_sqlite, run_child):
    rounds, boots = 6, ["boot-a", "boot-a", "boot-b", "boot-b"]
    for number in range(rounds):
        open_sqlite(at=f"{url}.{number}", clock=ManualClock()).close()  # tables, and no epoch yet
    children = [run_child(RACE.format(boot=boot, rounds=rounds)) for boot in boots]
    for child in children:
        assert child.hear() == "ready"
    for _ in range(rounds):
        for child in children:
            child.say()
        heard = [child.hear() for child in children]
        assert heard in (["open", "open", "refused", "refused"], ["refused", "refused", "open", "open"])
        for child in children:
            child.say()


DIES = """
import signal
from cronsensus.stores.sql.sqlite import epoch
epoch.lease_epoch = lambda: "boot-a"
calls = 0

def dying(call, step):
    def called(*args):
        global calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return called

step, ended = 0, None
while hear():
    step = 1 if ended == 0 else step + 1
    child = os.fork()
    if not child:
        for name in ("_try_lock", "_read_epoch", "_write_epoch", "share_as"):
            setattr(epoch, name, dying(getattr(epoch, name), step))
        for name in ("rename", "ftruncate"):
            setattr(os, name, dying(getattr(os, name), step))
        SqliteStore(url).now()
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    say(ended)
"""


def test_a_process_that_dies_while_it_begins_an_epoch_blocks_no_other(place, open_sqlite, run_child, boot):
    open_sqlite(clock=ManualClock()).close()
    dying = run_child(DIES)
    for stale in ("", "boot-z\nof an earlier boot\n"):
        ends = [""]
        while ends[-1] != "0":
            with suppress(FileNotFoundError):
                (place / "jobs.db-epoch").unlink()
            if stale:
                (place / "jobs.db-epoch").write_text(stale)
            dying.say()
            ends.append(dying.hear())
            if (place / "jobs.db-epoch").exists():
                assert stat.S_IMODE((place / "jobs.db-epoch").stat().st_mode) == 0o644
            store = open_sqlite(migrated=False)
            store.now()
            assert (text_of(place), is_held(place)) == ("boot-b", True), f"killed before call {len(ends) - 1}"
            store.close()
        assert len(ends) > 6
        assert set(ends[1:-1]) == {"-9"}


def test_a_text_of_unknown_age_is_not_locked_out_of_turn(place, open_sqlite, monkeypatch):
    """Or another process of the same boot took that lock for a sign of life, and was refused."""
    open_sqlite(clock=ManualClock()).close()
    (place / "jobs.db-epoch").write_text("boot-z\n")
    locked: list[int] = []
    lock = fcntl.flock

    def note(file: int, kind: int) -> None:
        locked.append(kind)
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", note)
    before: list[list[int]] = []

    @contextmanager
    def turn() -> Iterator[None]:
        before.append(locked.copy())
        yield

    epoch = Epoch(place / "jobs.db")
    epoch.enter_epoch(turn)
    assert (before, epoch.text) == ([[]], boot_id())
    epoch.leave_epoch()


def test_text_that_changes_just_before_it_is_locked_is_read_again(place, open_sqlite, monkeypatch, boot):
    """Another process found nobody alive, and began an epoch."""
    open_sqlite(clock=ManualClock()).close()
    (place / "jobs.db-epoch").write_text("boot-b\n")
    lock = fcntl.flock
    with (place / "jobs.db-epoch").open() as others:

        def first(file: int, kind: int) -> None:
            monkeypatch.setattr(fcntl, "flock", lock)
            (place / "jobs.db-epoch").write_text("boot-a\n")
            lock(others, fcntl.LOCK_SH)
            lock(file, kind)

        monkeypatch.setattr(fcntl, "flock", first)
        with pytest.raises(StoreRefused, match="boot-a"):
            open_sqlite(migrated=False).now()


def test_while_another_has_its_turn_no_epoch_begins(place, open_sqlite):
    """It may have found nobody alive, and be about to say so."""
    open_sqlite(clock=ManualClock()).close()
    (place / "jobs.db-epoch").write_text("boot-z\n")
    other = sqlite3.connect(place / "jobs.db", isolation_level=None)
    with (place / "jobs.db-epoch").open() as file:
        other.execute("BEGIN IMMEDIATE")
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy):
            open_sqlite("?busy_timeout=50ms", migrated=False).now()
    other.close()
    open_sqlite(migrated=False).now()
    assert text_of(place) == boot_id()


# --- forks ------------------------------------------------------------------------------------------------------------

FORKS = """
store = SqliteStore(url)
store.migrate()

def fork(name):
    pipe = os.pipe()
    if not os.fork():
        if {uses}:
            store.open_session(a_session(name), lease=LEASE)
        os.write(pipe[1], b".")
        hear()
        say(name)
        os._exit(0)
    os.read(pipe[0], 1)

fork("first")
say("forked")
os.wait()
say("alone")
hear()
fork("second")
say("forked")
os.wait()
"""


@pytest.mark.parametrize("uses", [False, True], ids=["a child that does nothing", "a child that uses the store"])
def test_forked_child_lets_go_of_nothing_of_its_parent_and_holds_only_what_it_uses(uses, run_child, place):
    parent = run_child(FORKS.format(uses=uses))
    assert parent.hear() == "forked"
    parent.say()
    assert [parent.hear(), parent.hear()] == ["first", "alone"]
    assert is_held(place), "after the end of a child"
    parent.say()
    assert parent.hear() == "forked"
    parent.process.kill()
    parent.process.wait()
    assert is_held(place) is uses, "by a child that outlives its parent"
    parent.say()
    assert parent.hear() == "second"


# --- a file that is not as it should be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\0" * 40, b"half a li", b"\n", b"x" * 200 + b"\n"],
    ids=["empty", "zeros", "half", "no text", "too long"],
)
def test_text_that_says_nothing_is_written_anew_without_a_holder(damaged, place, open_sqlite):
    (place / "jobs.db-epoch").write_bytes(damaged)
    store = open_sqlite()
    store.open_session(a_session("s1"), lease=LEASE)
    assert text_of(place) == boot_id()
    assert store.renew("s1", lease=LEASE).alive


def test_text_that_was_damaged_under_its_holders_keeps_others_out(place, open_sqlite, run_child):
    holder = run_child("store = SqliteStore(url)\nstore.migrate()\nsay('open')\nhear()")
    assert holder.hear() == "open"
    (place / "jobs.db-epoch").write_text("half a li")
    with pytest.raises(StoreRefused, match=r"\(unreadable\).*fuser"):
        open_sqlite(migrated=False).now()


def test_file_belongs_to_the_users_of_the_database(place, open_sqlite):
    (place / "jobs.db").touch()
    (place / "jobs.db").chmod(0o660)
    open_sqlite()
    assert stat.S_IMODE((place / "jobs.db-epoch").stat().st_mode) == 0o660


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_file_that_this_user_may_not_use_is_told_with_what_to_type(place, open_sqlite):
    place.chmod(0o777)
    open_sqlite(clock=ManualClock()).close()
    (place / "jobs.db").chmod(0o666)
    (place / "jobs.db-epoch").write_text("boot-z\n")
    (place / "jobs.db-epoch").chmod(0o600)
    os.seteuid(65534)
    try:
        for mode in (0o600, 0o644):  # cannot be read; cannot be written
            os.seteuid(0)
            (place / "jobs.db-epoch").chmod(mode)
            os.seteuid(65534)
            with pytest.raises(StoreUnavailable, match="chmod --reference="):
                open_sqlite(migrated=False).now()
    finally:
        os.seteuid(0)


# --- where it cannot be done ------------------------------------------------------------------------------------------


def test_where_files_cannot_be_locked_nobody_is_refused_and_the_log_says_so_once(open_sqlite, monkeypatch, caplog):
    def refuse(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "cronsensus.stores"):
        for _ in range(2):
            store = open_sqlite()
            store.open_session(a_session("s1"), lease=LEASE) if not store.sessions() else None
            assert store.renew("s1", lease=LEASE).alive
    assert caplog.text.count("locks on files do not work there") == 1
    assert store.describe()["lease_clock"] == (
        f"monotonic, of boot {boot_id()} (locks on files do not work there (No locks available))"
    )


def test_on_a_network_file_system_nobody_is_refused(open_sqlite, monkeypatch, place):
    """Its server may keep a lock over the boot of a host, and so nobody could come in."""
    monkeypatch.setattr(epoch_module, "kind_of", lambda _: "nfs4")
    store = open_sqlite("?allow_network_fs=1")
    store.open_session(a_session("s1"), lease=LEASE)
    assert not (place / "jobs.db-epoch").exists()
    assert "(a network file system (nfs4))" in store.describe()["lease_clock"]


def test_disk_that_is_full_is_told_as_such(open_sqlite, monkeypatch):
    open_sqlite(clock=ManualClock()).close()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(epoch_module, "_write_epoch", refuse)
    with pytest.raises(StoreFull):
        open_sqlite(migrated=False).now()
