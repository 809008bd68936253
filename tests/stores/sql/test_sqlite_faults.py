"""What a user is told when the file cannot be used, and that nothing is lost or half written when it could not."""

import logging
import os
import signal
import sqlite3
import subprocess
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from cronsensus.errors import (
    ConfigurationError,
    InvalidOption,
    InvalidPayload,
    LeaseLost,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter, RunError
from cronsensus.model.states import State
from cronsensus.stores import open_store
from cronsensus.stores.filesystems import is_network, kind_of
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.sqlite import epoch as epoch_module
from cronsensus.stores.sql.sqlite import sqlite_store as store_module
from cronsensus.stores.sql.sqlite.sqlite_url import read_url
from cronsensus.stores.sql.version import VERSION
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every

LEASE = timedelta(seconds=60)
NOBODY = 65534


def queue(store: SqliteStore) -> None:
    store.define_jobs([JobSpec(name="queue", function="f")], release="r1")


def count(store: SqliteStore) -> int:
    return len(store.occurrences(OccurrenceFilter(), limit=10_000))


def complaint(verb) -> StoreError:
    with pytest.raises(StoreError) as caught:
        verb()
    return caught.value


# --- the URL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:", "sqlite:///?synchronous=full"]
)
def test_a_database_in_memory_is_refused_with_a_better_idea(url):
    with pytest.raises(InvalidOption, match="memory://"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("sqlite:jobs.db", "sqlite:///jobs.db"),
        ("sqlite:/var/jobs.db", "sqlite:////var/jobs.db"),
        ("sqlite://jobs.db", "sqlite:///jobs.db"),
        ("sqlite:///jobs.db?busy_timout=3", "did you mean 'busy_timeout'"),
        ("sqlite:///jobs.db?synchronous=off", "'full', 'normal'"),
        ("sqlite:///jobs.db?busy_timeout=soon", "cannot be read"),
        ("sqlite:///jobs\0.db", "NUL"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_the_right_one(url, hint):
    with pytest.raises(ConfigurationError, match=hint):
        open_store(url)


def test_a_relative_path_is_the_same_file_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = read_url("sqlite:///jobs.db?busy_timeout=1500ms&synchronous=normal&allow_network_fs=1")
    assert url.path == tmp_path / "jobs.db"
    assert (url.busy_timeout, url.synchronous, url.allow_network_fs) == (1.5, "normal", True)
    assert read_url(f"sqlite:///{tmp_path}/jobs.db").path == url.path


def test_opening_a_store_writes_nothing(place, url):
    open_store(url).close()
    assert list(place.iterdir()) == []


# --- a path that leads nowhere ----------------------------------------------------------------------------------------


def test_a_missing_directory(place, open_sqlite):
    store = open_sqlite(at=f"sqlite:///{place}/not/there/jobs.db", migrated=False)
    for verb in (store.migrate, store.check, store.look):
        error = complaint(verb)
        assert isinstance(error, StoreUnavailable)
        assert f"mkdir -p '{place}/not/there'" in str(error)


def test_a_directory_in_place_of_the_file(place, open_sqlite):
    (place / "folder").mkdir()
    store = open_sqlite(at=f"sqlite:///{place}/folder", migrated=False)
    for verb in (store.migrate, store.check):
        error = complaint(verb)
        assert isinstance(error, StoreUnavailable)
        assert "is a directory" in str(error)
        assert "folder/jobs.db" in str(error)


def test_a_file_in_place_of_the_directory(place, open_sqlite):
    (place / "file").touch()
    error = complaint(open_sqlite(at=f"sqlite:///{place}/file/jobs.db", migrated=False).migrate)
    assert isinstance(error, StoreUnavailable)
    assert "is not a directory" in str(error)


def test_a_file_that_is_no_database(place, open_sqlite):
    (place / "jobs.db").write_text("Dear diary, today nothing was due. " * 200)
    store = open_sqlite(migrated=False)
    for verb in (store.migrate, store.check, store.look):
        error = complaint(verb)
        assert isinstance(error, StoreCorrupt)
        assert "is not an SQLite database" in str(error)
    assert (place / "jobs.db").read_text().startswith("Dear diary")


def test_a_damaged_file(place, open_sqlite):
    store = open_sqlite()
    queue(store)
    store.enqueue([Item(job="queue") for _ in range(2000)])
    store.close()
    with (place / "jobs.db").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(2, size // 4096):  # what says where the tables are stays
            file.seek(page * 4096)
            file.write(b"\xde\xad\xbe\xef" * 1024)
    damaged = open_sqlite(migrated=False)
    error = complaint(lambda: damaged.enqueue([Item(job="queue")]))
    assert isinstance(error, StoreCorrupt)
    assert ".recover" in str(error)
    assert not error.retryable


def test_a_file_that_is_deleted_while_in_use(place, open_sqlite):
    """What is written into a nameless file is lost with its last user; and a new file would begin tokens at one."""
    store = open_sqlite()
    queue(store)
    (place / "jobs.db").unlink()
    for verb in (store.look, lambda: store.enqueue([Item(job="queue")])):
        error = complaint(verb)
        assert isinstance(error, StoreUnavailable)
        assert "deleted or replaced" in str(error)
    open_sqlite()
    assert "deleted or replaced" in str(complaint(store.look))


def test_a_closed_handle(open_sqlite):
    store = open_sqlite()
    store.close()
    store.close()
    assert "was closed" in str(complaint(store.look))


# --- what may not be written ------------------------------------------------------------------------------------------


@contextmanager
def as_nobody():
    """Go on without root's rights, where there are any: root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def own_place(place):
    place.chmod(0o755)
    return place


def test_a_read_only_file(own_place, open_sqlite):
    store = open_sqlite()
    queue(store)
    store.close()
    (own_place / "jobs.db").chmod(0o444)
    with as_nobody():
        error = complaint(open_sqlite(migrated=False).check)
        assert isinstance(error, StoreReadOnly)
        assert "chmod u+w" in str(error)
        assert isinstance(complaint(lambda: open_sqlite(migrated=False).enqueue([Item(job="queue")])), StoreReadOnly)
    (own_place / "jobs.db").chmod(0o644)
    open_sqlite(migrated=False).check()


def test_a_read_only_directory(own_place, open_sqlite):
    own_place.chmod(0o555)
    try:
        with as_nobody():
            error = complaint(open_sqlite(migrated=False).migrate)
        assert isinstance(error, StoreReadOnly)
        assert "read-only for this user" in str(error)
    finally:
        own_place.chmod(0o755)


def test_a_copy_in_a_read_only_directory_can_be_looked_at(own_place, open_sqlite):
    store = open_sqlite()
    queue(store)
    store.enqueue([Item(job="queue")])
    store.close()
    (own_place / "jobs.db").chmod(0o444)
    own_place.chmod(0o555)
    try:
        with as_nobody():
            copy = open_sqlite(migrated=False)
            assert [one.job for one in copy.occurrences(OccurrenceFilter())] == ["queue"]
            assert isinstance(complaint(copy.check), StoreReadOnly)
            assert isinstance(complaint(lambda: copy.enqueue([Item(job="queue")])), StoreReadOnly)
            assert copy.describe()["lease_clock"].endswith("(this process may only read)")
    finally:
        own_place.chmod(0o755)


# --- no space ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["small file system", "small file"])
def tight(request, place, open_sqlite, monkeypatch):
    """A store that soon has no space left, and what gives it more."""
    if request.param == "small file":
        room = [120]
        real_open = SqliteStore._open_driver

        def open_small(self: SqliteStore) -> sqlite3.Connection:
            driver = real_open(self)
            driver.execute(f"PRAGMA max_page_count={room[0]}")
            return driver

        monkeypatch.setattr(SqliteStore, "_open_driver", open_small)
        store = open_sqlite()

        def more() -> None:
            room[0] = 100_000
            store._connections.forget_idle()

        yield store, more
        return
    folder = place / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("service missing: root, who may mount a small file system")
    store = open_sqlite(at=f"sqlite:///{folder}/jobs.db")
    try:
        yield store, lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
    finally:
        store.close()
        subprocess.run(["umount", "-l", folder], check=True)


def test_no_space_left(tight):
    """Nothing is half written, what could be answered still is, and work goes on as soon as there is room."""
    store, more = tight
    queue(store)
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="queue", key="first")])

    def flood() -> None:
        for _ in range(500):
            store.enqueue([Item(job="queue", args=("x" * 500,)) for _ in range(100)])

    error = complaint(flood)
    assert isinstance(error, StoreFull)
    assert error.retryable
    assert "df -h" in str(error)
    assert count(store) % 100 == 1, "all or none of a hundred"
    more()
    assert store.enqueue([Item(job="queue", key="first")])[0].created is False
    assert len(take(store, "s1", 10, {"f"}, lease=LEASE)) == 10


# --- locked by others -------------------------------------------------------------------------------------------------

HOLD = """
store = SqliteStore(url)
with store._write_transaction() as tx:
    tx.connection.execute_text("INSERT INTO cronsensus_counters VALUES ('unfinished', 1)")
    say("holding")
    hear()
say("done")
store.close()
"""


def test_a_lock_that_is_held_for_longer_than_the_busy_timeout(open_sqlite, run_child):
    store = open_sqlite("?busy_timeout=100ms")
    queue(store)
    holder = run_child(HOLD)
    assert holder.hear() == "holding"
    error = complaint(lambda: store.enqueue([Item(job="queue")]))
    assert isinstance(error, StoreBusy)
    assert error.retryable
    assert "0.1 s" in str(error)
    assert "busy_timeout=10" in str(error)
    assert store.look().jobs == (), "a reader waits for nobody"
    holder.say()
    assert holder.hear() == "done"
    store.enqueue([Item(job="queue")])


def test_a_writer_waits_for_another_and_goes_on_when_it_ends(open_sqlite, run_child):
    store = open_sqlite("?busy_timeout=60s")
    queue(store)
    holder = run_child(HOLD)
    assert holder.hear() == "holding"
    done = threading.Event()

    def write() -> None:
        store.enqueue([Item(job="queue")])
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not done.wait(0.05)
    holder.say()
    assert done.wait(60)
    thread.join()


def test_a_lock_whose_holder_is_killed_is_free_at_once_and_its_work_undone(open_sqlite, run_child):
    store = open_sqlite("?busy_timeout=60s")
    holder = run_child(HOLD)
    assert holder.hear() == "holding"
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait()
    queue(store)
    with store._read_transaction() as tx:
        assert not tx.connection.execute_text("SELECT 1 FROM cronsensus_counters WHERE name = 'unfinished'").fetchall()


def test_a_lock_whose_holder_is_frozen(open_sqlite, run_child):
    store = open_sqlite("?busy_timeout=100ms")
    holder = run_child(HOLD)
    assert holder.hear() == "holding"
    holder.process.send_signal(signal.SIGSTOP)
    assert isinstance(complaint(lambda: queue(store)), StoreBusy)
    holder.process.send_signal(signal.SIGCONT)
    holder.say()
    assert holder.hear() == "done"
    queue(store)


def test_threads_share_a_handle(open_sqlite):
    store = open_sqlite("?busy_timeout=60s")
    queue(store)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                store.enqueue([Item(job="queue")])
                store.look()
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert count(store) == 160


# --- forks ------------------------------------------------------------------------------------------------------------

FORK = """
import threading
store = SqliteStore(url + "?busy_timeout=60s")
store.migrate()
store.define_jobs([JobSpec(name="queue", function="f")], release="r1")
store.open_session(a_session("parent"), lease=LEASE)
inside = threading.Event()

def busy():
    while not inside.is_set():
        store.enqueue([Item(job="queue")])

thread = threading.Thread(target=busy)
thread.start()
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        assert store._connections._idle == []
        store.open_session(a_session(f"child {number}"), lease=LEASE)
        claims = store.step(f"child {number}", Step(want=Want(limit=3, functions=["f"], lease=LEASE))).claims
        ended = tuple(an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED) for claim in claims)
        store.step(f"child {number}", Step(ends=ended))
        store.close()
        os._exit(0)
    children.append(child)
inside.set()
thread.join()
codes = [os.waitpid(child, 0)[1] for child in children]
store.enqueue([Item(job="queue")])
with store._read_transaction() as tx:
    [(verdict,)] = tx.connection.execute_text("PRAGMA integrity_check").fetchall()
say(f"{codes} {verdict} {len(store.sessions())}")
store.close()
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_of_a_fork_have_connections_of_their_own(run_child):
    assert run_child(FORK).hear() == "[0, 0, 0, 0] ok 5"


def test_a_fork_finds_no_connection_open(open_sqlite):
    store = open_sqlite()
    store.look()
    assert store._connections._idle
    store._connections.before_fork()
    try:
        assert store._connections._idle == []
    finally:
        store._connections.after_fork_in_parent()
    store.look()


def test_namespaces_in_one_file_do_not_meet(open_sqlite):
    """Not even where two programs give their jobs, sessions, keys and locks the same names."""
    handles = [open_sqlite(namespace=name) for name in ("one", "two")]
    for store in handles:
        queue(store)
        store.open_session(a_session("s1"), lease=LEASE)
        store.enqueue([Item(job="queue", key="key")])
        assert store.lock("name", "me", ttl=LEASE, session="s1") is not None
    [claim] = take(handles[0], "s1", 10, {"f"}, lease=LEASE)
    assert [store.sessions()[0].holds for store in handles] == [2, 1]
    assert [len(store.look().holders) for store in handles] == [1, 0]
    assert handles[1].close_session("s1") == []
    assert handles[0].renew("s1", lease=LEASE).alive
    assert settle(handles[1], [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])[0].accepted is False
    assert [len(store.locks()) for store in handles] == [1, 0]
    assert len(handles[0].close_session("s1")) == 1


# --- strange errors ---------------------------------------------------------------------------------------------------


def test_a_connection_is_thrown_away_after_an_error_of_the_driver(open_sqlite, monkeypatch):
    store = open_sqlite()
    queue(store)
    [connection] = store._connections._idle
    failing = sqlite3.OperationalError("disk I/O error")
    failing.sqlite_errorcode, failing.sqlite_errorname = sqlite3.SQLITE_IOERR, "SQLITE_IOERR"

    def fail(*_: object, **__: object) -> None:
        raise failing

    with monkeypatch.context() as patch:
        patch.setattr("cronsensus.stores.sql.operating.Created", fail)
        error = complaint(lambda: store.enqueue([Item(job="queue")]))
    assert isinstance(error, StoreUnavailable)
    assert "SQLITE_IOERR" in str(error)
    assert error.__cause__ is failing
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute_text("SELECT 1")
    store.enqueue([Item(job="queue")])
    assert count(store) == 1


def test_a_mistake_of_ours_is_not_dressed_up_as_the_stores(open_sqlite, monkeypatch):
    store = open_sqlite()
    queue(store)
    monkeypatch.setattr("cronsensus.stores.sql.operating.Created", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.enqueue([Item(job="queue")])
    assert count(store) == 0


def test_refused_verb_writes_nothing_and_keeps_its_connection(open_sqlite):
    store = open_sqlite()
    queue(store)
    with pytest.raises(InvalidPayload):
        store.enqueue([Item(job="queue"), Item(job="queue", args=(object(),))])
    assert count(store) == 0
    assert len(store._connections._idle) == 1, "and the connection is as good as before"


@pytest.mark.parametrize("damage", ["{", '{"name": "broken"}', "[]"])
def test_a_definition_that_cannot_be_read_stops_no_other_job(damage, open_sqlite, caplog):
    clock = ManualClock(START)
    store = open_sqlite(clock=clock)
    names = ["broken", "sound"]
    store.define_jobs(
        [JobSpec(name=name, function="f", trigger=every("1m", start=START)) for name in names], release="r1"
    )
    store.open_session(a_session("s1"), lease=2 * LEASE)
    store.enqueue([Item(job=name) for name in names])
    with store._write_transaction() as tx:
        tx.connection.driver.execute("UPDATE cronsensus_jobs SET spec = ? WHERE name = 'broken'", [damage])
    clock.advance(timedelta(minutes=1))
    fresh = store.sibling()
    with caplog.at_level(logging.ERROR, "cronsensus.stores"):
        assert [job.spec.name for job in fresh.look().jobs] == ["sound"]
        assert fresh.look().now == clock.now()
        assert [claim.job for claim in take(fresh, "s1", 10, {"f"}, lease=LEASE)] == ["sound"]
    assert caplog.text.count("cannot be fired") == 1, "said once"
    assert caplog.text.count("cannot be run") == 1
    with pytest.raises(StoreCorrupt, match="define the job anew"):
        fresh.job("broken")
    fresh.close()


def test_what_no_database_can_keep_costs_no_result(open_sqlite):
    store = open_sqlite()
    queue(store)
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="queue")])
    [claim] = take(store, "s1", 1, {"f"}, lease=LEASE)
    error = RunError(type="OSError", message="half \ud800 a character\0", traceback="")
    outcome = an_end(id=claim.id, token=claim.token, state=State.FAILED, reason="no \udfff", error=error)
    assert settle(store, [outcome])[0].accepted
    found = store.occurrence(claim.id)
    assert found is not None
    assert found.reason == "no \\udfff"
    assert found.error is not None
    assert found.error.message == "half \\ud800 a character\\x00"


def test_a_number_that_is_no_id_finds_nothing(open_sqlite):
    store = open_sqlite()
    for number in (0, -1, 2**63, 10**30):
        assert store.occurrence(number) is None
        assert store.runs(number) == []
        assert store.logs(number) == []
        with pytest.raises(LookupError):
            store.cancel(number, by="ann", why="")


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_lease_of_another_boot_has_run_out(open_sqlite, monkeypatch):
    """The monotonic clock begins anew with each boot: what it said before means nothing now, however large it was."""
    store = open_sqlite()
    store.open_session(a_session("s1"), lease=LEASE)
    grant = store.lock("name", "me", ttl=LEASE)
    assert grant is not None
    store.close()
    monkeypatch.setattr(epoch_module, "lease_epoch", lambda: "after-the-next-boot")
    later = open_sqlite()
    with pytest.raises(LeaseLost):
        take(later, "s1", 1, {"f"}, lease=LEASE)
    assert not later.renew("s1", lease=LEASE).alive
    assert later.look().sessions == ()
    assert not later.extend(grant, ttl=LEASE)
    assert later.lock("name", "you", ttl=LEASE) is not None
    later.reclaim()
    [view] = later.sessions(ended=True)
    assert view.state == "dead"


def test_a_wall_clock_that_is_set_ends_no_lease(open_sqlite):
    clock = ManualClock(START)
    store = open_sqlite(clock=clock)
    store.open_session(a_session("s1"), lease=LEASE)
    for hours in (1, -2, 1):
        clock.step(timedelta(hours=hours))
        assert store.reclaim() == []
        assert store.renew("s1", lease=LEASE).alive


# --- file systems -----------------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
40 22 0:50 / /mnt/nas rw,relatime shared:7 - nfs4 nas:/export rw,vers=4.2
41 22 0:51 / /mnt/nas/scratch rw - tmpfs tmpfs rw
42 22 0:52 / /mnt/with\\040space rw - fuse.sshfs me@host:/ rw
43 22 0:53 / /home/me rw - overlay overlay rw
44 22 0:54 / /srv/jobs rw - ext4 /dev/vdb rw
45 22 0:55 / /srv/jobs rw - cifs //nas/jobs rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib/jobs.db", "ext4", False),
        ("/mnt/nas/jobs.db", "nfs4", True),
        ("/mnt/nasty/jobs.db", "ext4", False),
        ("/mnt/nas/scratch/jobs.db", "tmpfs", False),
        ("/mnt/with space/jobs.db", "fuse.sshfs", True),
        ("/home/me/jobs.db", "overlay", False),
        ("/srv/jobs/jobs.db", "cifs", True),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_last_mount_over_it(path, kind, network):
    assert kind_of(Path(path), MOUNTS) == kind
    assert is_network(kind) is network


def test_a_network_file_system_is_refused_unless_allowed(open_sqlite, monkeypatch):
    monkeypatch.setattr(store_module, "kind_of", lambda _: "nfs4")
    error = complaint(open_sqlite(migrated=False).migrate)
    assert isinstance(error, StoreUnavailable)
    assert "nfs4" in str(error)
    assert "allow_network_fs=1" in str(error)
    open_sqlite("?allow_network_fs=1").check()


def test_where_the_kind_cannot_be_told_the_file_is_used(open_sqlite, monkeypatch):
    monkeypatch.setattr(store_module, "kind_of", lambda _: None)
    open_sqlite().check()


# --- what doctor shows ------------------------------------------------------------------------------------------------


def test_a_store_describes_itself(open_sqlite, place):
    store = open_sqlite("?synchronous=normal&busy_timeout=7")
    shown = store.describe()
    assert (shown["store"], shown["schema"], shown["journal_mode"]) == ("sqlite", VERSION, "wal")
    assert (shown["synchronous"], shown["busy_timeout"]) == ("normal", 7.0)
    assert shown["file"] == str(place / "jobs.db")
    assert shown["bytes"] > 0
    assert "power cut may lose" in store.capabilities.survives
    with store._read_transaction() as tx:
        assert tx.connection.execute_text("PRAGMA synchronous").fetchone()[0] == 1
    with open_sqlite()._read_transaction() as tx:
        assert tx.connection.execute_text("PRAGMA synchronous").fetchone()[0] == 2
