"""Which servers are refused, and which are only warned of."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import redis

import cronsensus.stores.redis
from cronsensus import Scheduler
from cronsensus.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from cronsensus.insight.doctor import examine_store
from cronsensus.model.occurrence import Item, Note
from cronsensus.model.states import State
from cronsensus.model.step import GiveBack, Step, Want
from cronsensus.process import logger
from cronsensus.stores.redis.redis_health import LOOKED_AT_EVERY, Health, require_sound
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import settle, take
from cronsensus.timing.clock import ManualClock
from tests.servers.redis import RedisServer
from tests.stores.redis.conftest import LEASE, Opening, a_claim, queue, succeeded, wait_until

SOUND = Health(
    product="redis",
    version="7.0.15",
    role="master",
    policy="noeviction",
    max_memory=1,
    used_memory=0,
    replicas=0,
    cluster=False,
    append_only=True,
    save="",
    fsync="everysec",
)


def test_a_sound_server_is_taken_without_a_word() -> None:
    require_sound(SOUND, "here")
    assert SOUND.warnings == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"])
def test_a_server_that_throws_keys_away_is_refused(own_server: RedisServer, opening: Opening, policy: str) -> None:
    store = opening(own_server.url)
    store.check()
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory-policy", policy)
        for verb in (store.check, store.migrate):
            with pytest.raises(StoreUnavailable, match=f"{policy}.*CONFIG SET maxmemory-policy noeviction"):
                verb()
        client.config_set("maxmemory-policy", "noeviction")
    store.check()


def test_a_node_says_once_that_its_server_began_to_throw_keys_away(
    own_server: RedisServer, opening: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = opening(own_server.url, clock=clock)
    store.open_session(a_session("s1"), lease=timedelta(days=1))

    def said() -> list[str]:
        for _ in range(2):
            clock.advance(timedelta(seconds=LOOKED_AT_EVERY))
            assert store.renew("s1", lease=timedelta(days=1)).alive
        logger.flush(30)
        found = [record.message for record in caplog.records if "maxmemory-policy" in record.message]
        caplog.clear()
        return found

    with redis.Redis.from_url(own_server.url) as client:
        assert said() == []
        client.config_set("maxmemory-policy", "allkeys-lru")
        [message] = said()
        assert "throws keys away when its memory is full (maxmemory-policy allkeys-lru)" in message
        assert "type: CONFIG SET maxmemory-policy noeviction" in message
        client.config_set("maxmemory-policy", "noeviction")
        [message] = said()
        assert "keeps what it was told again" in message


def test_a_replica_is_refused_and_says_why(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    queue(store)
    with redis.Redis.from_url(own_server.url) as client:
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreReadOnly, match="is a replica"):
            store.check()
        with pytest.raises(StoreReadOnly, match="is a replica"):
            store.enqueue([Item(job="queue")])
        client.replicaof("NO", "ONE")
    store.check()
    assert store.enqueue([Item(job="queue")])[0].created


@pytest.mark.parametrize(
    ("health", "refused"),
    [
        (replace(SOUND, version="6.0.16"), "Redis 6.0.16; 6.2 is the least"),
        (replace(SOUND, version="5.0.7"), "6.2 is the least"),
        (replace(SOUND, version="6.2.0"), None),
        (replace(SOUND, version="8.4.0"), None),
        (replace(SOUND, product="valkey", version="7.2.5"), None),
        (replace(SOUND, policy=None), None),
        (replace(SOUND, role="slave"), "is a replica"),
    ],
)
def test_what_a_server_says_of_itself_decides(health: Health, refused: str | None) -> None:
    if refused is None:
        require_sound(health, "here")
        return
    with pytest.raises(StoreError, match=refused):
        require_sound(health, "here")


@pytest.mark.parametrize(
    ("health", "warned"),
    [
        (replace(SOUND, append_only=False, save=""), "nothing is saved to disk.*CONFIG SET appendonly yes"),
        (replace(SOUND, append_only=False, save="3600 1"), "only snapshots"),
        (replace(SOUND, append_only=False, save=None), "only snapshots"),
        (replace(SOUND, fsync="no"), "never synced"),
        (replace(SOUND, max_memory=0), "maxmemory 0"),
    ],
)
def test_what_a_restart_would_forget_is_told(health: Health, warned: str) -> None:
    [warning] = health.warnings
    assert re.search(warned, warning)


def test_it_describes_itself_without_secrets(own_server: RedisServer, opening: Opening) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("requirepass", "s3cret")
        client.auth("s3cret")
        store = opening(own_server.url.replace("redis://", "redis://:s3cret@") + "?prefix=shop")
        described = store.describe()
        client.config_set("requirepass", "")
    assert "s3cret" not in repr(described)
    assert (
        described["store"],
        described["maxmemory_policy"],
        described["persistence"],
        described["replicas"],
    ) == ("redis", "noeviction", "none", 0)
    assert described["keys"] == "{shop:default}:*"
    assert any("nothing is saved" in warning for warning in described["warnings"])


def test_where_settings_are_kept_secret_it_says_that_they_cannot_be_checked(
    own_server: RedisServer, opening: Opening
) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser(
            "ann", enabled=True, passwords=["+pw"], keys=["*"], channels=["*"], commands=["+@all", "-config"]
        )
        store = opening(own_server.url.replace("redis://", "redis://ann:pw@"))
        store.check()
        assert "cannot be checked" in store.describe()["persistence"]
        client.acl_deluser("ann")


def test_a_user_who_may_not_do_what_is_needed_is_told_what_that_is(own_server: RedisServer, opening: Opening) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser(
            "bob", enabled=True, passwords=["+pw"], keys=["{other:*"], channels=["*"], commands=["+@all"]
        )
        store = opening(own_server.url.replace("redis://", "redis://bob:pw@"))
        with pytest.raises(StoreUnavailable, match="ACL SETUSER"):
            store.look()
        client.acl_deluser("bob")
    wrong = opening(own_server.url.replace("redis://", "redis://bob:wrong@"))
    with pytest.raises(StoreUnavailable, match="refuses the user or the password") as caught:
        wrong.look()
    assert "wrong@" not in str(caught.value)


def test_the_user_that_the_message_recommends_can_do_everything(own_server: RedisServer, opening: Opening) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.execute_command(
            *("ACL", "SETUSER", "carol", "on", ">pw", "+@all", "-@admin", "-@dangerous", "+info", "~{shop:*"),
            *("resetchannels", "&{shop:*"),
        )
        store = opening(own_server.url.replace("redis://", "redis://carol:pw@") + "?prefix=shop")
        store.check()
        store.describe()
        claim = a_claim(store)
        assert settle(store, [succeeded(claim)])[0].accepted
        assert not store.wait(0.0)
        store.notify()
        line = store.wait_queues()
        line.join_queue("name")
        store.wake_next("name")
        assert line.receive(30) == ["name"]
        line.close()
        client.acl_deluser("carol")


def counted(client: redis.Redis) -> int:
    """Return how many bytes are compared with ``maxmemory``: what waits for a busy disk is not among them."""
    memory = client.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_not_counted_for_evict"])


LESS = 2_000_000
"""Less than 300 arguments of 10,000 bytes. What a client's buffers take is counted, too, and freed in any moment: of a
server that was full a moment ago it may be more than a megabyte."""


def test_a_server_without_room_says_so_and_can_still_be_pruned(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    claim = a_claim(store)
    settle(store, [succeeded(claim)])
    store.enqueue([Item(job="queue", args=("x" * 10_000,)) for _ in range(300)])
    done = take(store, "s1", 300, ["queue"], lease=LEASE)
    settle(store, [succeeded(one) for one in done])
    with redis.Redis.from_url(own_server.url) as client:
        full = counted(client)
        client.config_set("maxmemory", full - 2_000_000)  # buffers that are given back are a megabyte at most
        before = store.counts()
        for verb in (lambda: store.enqueue([Item(job="queue")]), lambda: store.trigger("queue", by="ann")):
            with pytest.raises(StoreFull, match="CONFIG SET maxmemory"):
                verb()
        # Nothing was half written, and looking goes on.
        assert before == store.counts()
        assert not store.look().backlog
        assert store.prune(store.now()) == 301
        client.config_set("maxmemory", full - 1_000_000)
        assert store.enqueue([Item(job="queue")])[0].created
        client.config_set("maxmemory", 0)


def test_a_full_server_is_pruned_though_the_first_job_has_nothing_to_delete(
    own_server: RedisServer, opening: Opening
) -> None:
    store = opening(own_server.url)
    queue(store, "first", keep="1s")
    store.enqueue([Item(job="first", key="waits", delay=timedelta(days=1))])
    claim = a_claim(store)
    store.open_session(a_session("idle"), lease=LEASE)
    store.enqueue([Item(job="queue", args=("x" * 10_000,)) for _ in range(300)])
    done = take(store, "s1", 300, ["queue"], lease=LEASE)
    settle(store, [succeeded(one) for one in done])
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory", LESS)
        with pytest.raises(StoreFull):
            store.enqueue([Item(job="queue")])
        # What runs is not taken for dead meanwhile, and its end is recorded.
        assert store.renew("s1", lease=LEASE).alive
        assert store.renew("idle", lease=LEASE).alive
        assert settle(store, [succeeded(claim)])[0].accepted
        assert store.prune(store.now()) == 301
        assert store.close_session("s1") == []
        client.config_set("maxmemory", 0)


def test_step_on_a_full_server_records_results_and_refuses_the_rest(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    a_claim(store)
    store.enqueue([Item(job="queue", args=("x" * 10_000,)) for _ in range(300)])
    ended, given, running = take(store, "s1", 3, ["queue"], lease=LEASE)
    note = Note(running.id, running.token, (1.0, 2.0))
    results = Step(ends=(succeeded(ended),), give_back=(GiveBack(claim=given),))
    want = Want(limit=1, functions=["queue"], lease=LEASE)
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory", LESS)
        for rest in (Step(want=want), Step(notes=(note,))):
            before = (store.counts(), store.occurrence(running.id))
            with pytest.raises(StoreFull):
                store.step("s1", rest)
            assert before == (store.counts(), store.occurrence(running.id))
        with pytest.raises(StoreFull, match="CONFIG SET maxmemory"):
            store.step("s1", replace(results, notes=(note,), want=want))
        found = [store.occurrence(one.id) for one in (ended, given, running)]
        assert [one and one.state for one in found] == [State.SUCCEEDED, State.PENDING, State.RUNNING]
        assert [one and one.progress for one in found] == [None, None, None]
        # Said again by themselves, as is to be done after an error, they get their first answer.
        done = store.step("s1", results)
        assert (done.settled[0].accepted, done.returned) == (True, (False,))
        client.config_set("maxmemory", 0)
        assert len(store.step("s1", Step(notes=(note,), want=want)).claims) == 1


def test_the_doctor_tells_what_a_restart_would_forget(own_server: RedisServer, opening: Opening) -> None:
    found = [(check.level, check.text, check.then) for check in examine_store(opening(own_server.url))]
    told = [entry for entry in found if "nothing is saved to disk" in entry[1]]
    assert [(level, then) for level, _, then in told] == [("warn", "CONFIG SET appendonly yes")]


def least_rights() -> list[str]:
    """Return what the page for operations gives as the least that a user must be allowed."""
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    text = page.partition("The least that was enough")[2].partition("```text\n")[2].partition("```")[0]
    return text.split()


def test_the_scripts_use_no_command_that_the_page_does_not_list() -> None:
    folder = Path(cronsensus.stores.redis.__file__).parent / "lua"
    texts = [path.read_text() for path in folder.rglob("*.lua")]
    used = {name.lower() for text in texts for name in re.findall(r"\bp?call\('([A-Z]+)'", text)}
    listed = {right.removeprefix("+").partition("|")[0] for right in least_rights()}
    assert len(used) > 20
    assert used <= listed


def test_a_user_with_the_least_rights_runs_a_node_and_shows_and_sees_signs_of_life(
    own_server: RedisServer, opening: Opening
) -> None:
    url = own_server.url.replace("redis://", "redis://dave:pw@") + "?prefix=shop"
    with redis.Redis.from_url(own_server.url) as client:
        rules = ["on", ">pw", "resetkeys", "~{shop:default}:*", "resetchannels", "&{shop:default}:*", *least_rights()]
        client.execute_command("ACL", "SETUSER", "dave", *rules)
        scheduler = Scheduler(url)
        job = scheduler.job(name="job")(lambda: 7)
        watcher = opening(url)
        with scheduler:
            assert job.options(key="a").enqueue().result("60s") == 7
            with scheduler.lock("lock"):
                [session] = [one.id for one in watcher.sessions() if one.concurrency]
            wait_until(lambda: client.pubsub_numsub(watcher._keyspace.sign_channel(session))[0][1] == 2, "two signs")
            assert "channel" in watcher.describe()["evidence_of_death"]
            watcher.look()
        refused = {entry["object"] for entry in client.acl_log()}
        # From 7.2 on the client also says its name and version; that it may not is no loss.
        assert refused <= {"config|get", "client|setinfo"}


def test_a_user_who_may_not_ask_for_signs_of_life_does_without_and_the_doctor_says_so(
    own_server: RedisServer, opening: Opening
) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser(
            "eve", enabled=True, passwords=["+pw"], keys=["*"], channels=["*"], commands=["+@all", "-pubsub"]
        )
        store = opening(own_server.url.replace("redis://", "redis://eve:pw@"))
        a_claim(store, "s1")
        for session in ("s2", "s3"):
            other = opening(own_server.url.replace("redis://", "redis://eve:pw@"))
            other.open_session(a_session(session), lease=LEASE)
            assert [other.look().absent for _ in range(3)] == [()] * 3
        assert client.acl_log()[0]["count"] == 2  # each connection asks once
        assert "+pubsub|numsub" in store.describe()["warnings"][-1]
