"""The scripts themselves: known to the server or not, in one hash slot, and flat however much is stored."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import pytest
import redis
from redis.crc import key_slot

from cronsensus.errors import SchemaMismatch
from cronsensus.jobs.rewinding import rewind_job
from cronsensus.model.acquiring import Ask
from cronsensus.model.batch import item_key
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.ledger import Loss
from cronsensus.model.occurrence import Item, LogLine, Note, OccurrenceFilter
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import Origin, State
from cronsensus.model.step import GiveBack, Step, Want
from cronsensus.planning import plan
from cronsensus.stores.redis import RedisStore
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.scripts import list_verbs, script_of
from cronsensus.testing.conformance.fixtures import HOSTILE, START, a_session
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, say, settle, take, win_named
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import at, every
from tests.servers.redis import RedisServer
from tests.stores.redis.conftest import LEASE, Opening, a_claim, queue, succeeded

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
Answer = TypeVar("Answer")


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """Look at the server without the store."""
    with redis.Redis.from_url(redis_url.partition("?")[0]) as client:
        yield client


# --- known to the server --------------------------------------------------------------------------------------------


def test_a_server_that_forgot_the_scripts_is_told_them_again(own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    claim = a_claim(store)
    with redis.Redis.from_url(own_server.url) as client:
        client.script_flush()
        assert settle(store, [succeeded(claim)])[0].accepted
        assert client.info("commandstats")["cmdstat_eval"]["calls"] - _evals_before(client) == 1
        client.script_flush()
        client.config_resetstat()
        store.now()
        store.now()
        stats = client.info("commandstats")
    # The second call finds the script known.
    assert (stats["cmdstat_eval"]["calls"], stats["cmdstat_evalsha"]["calls"]) == (1, 2)


def _evals_before(client: redis.Redis) -> int:
    """Return how often a verb had to be sent whole before the last one: once for each."""
    return int(client.info("commandstats")["cmdstat_eval"]["calls"]) - 1


def test_every_verb_is_one_command(redis_url: str, own_server: RedisServer, opening: Opening) -> None:
    store = opening(own_server.url)
    claim = a_claim(store)
    settle(store, [succeeded(claim)])
    store.renew("s1", lease=LEASE)
    with redis.Redis.from_url(own_server.url) as client:
        client.config_resetstat()
        store.look()
        take(store, "s1", 10, ["queue"], lease=LEASE)
        store.enqueue([Item(job="queue")] * 50)
        claims = take(store, "s1", 50, ["queue"], lease=LEASE)
        settle(store, [succeeded(one) for one in claims])
        store.step("s1", Step(want=Want(limit=50, functions=["queue"], lease=LEASE)))
        store.renew("s1", lease=LEASE)
        stats = client.info("commandstats")
    asked = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
    assert asked["evalsha"] == 7
    assert asked.get("eval", 0) <= 2


def test_a_scheduled_occurrence_takes_few_commands(own_server: RedisServer, opening: Opening) -> None:
    clock = ManualClock(START)
    store = opening(own_server.url, clock=clock)
    store.define_jobs([JobSpec(name="tick", function="tick", trigger=every("1m", start=START))], release="r1")
    store.open_session(_session("s1"), lease=HOUR)
    want = Want(limit=20, functions=["tick"], lease=HOUR)
    store.step("s1", Step(want=want))
    clock.advance(60)
    store.look()
    view = store.look()
    store.renew("s1", lease=LEASE)
    with redis.Redis.from_url(own_server.url) as client:
        claims, fired = counted(
            client,
            lambda: store.step("s1", Step(plans=tuple(plan(job, view.now) for job in view.jobs), want=want)).claims,
        )
        _, settled = counted(client, lambda: store.step("s1", Step(ends=tuple(map(succeeded, claims)))))
        _, looked = counted(client, store.look)
        _, renewed = counted(client, lambda: store.renew("s1", lease=LEASE))
    assert len(claims) == 1
    # Of each, one comes over the network. TIME is not asked for where a test has a clock. A look asks for all that it
    # shows, and whether anything is parked.
    assert (fired, settled, looked, renewed) == (24, 11, 7, 8)


def test_each_of_a_herd_takes_few_commands(own_server: RedisServer, opening: Opening) -> None:
    clock = ManualClock(START)
    store = opening(own_server.url, clock=clock)
    names = [f"job {number}" for number in range(50)]
    store.define_jobs([JobSpec(name=name, function="f", trigger=at(START + SECOND)) for name in names], release="r1")
    store.open_session(_session("s1"), lease=HOUR)
    want = Want(limit=50, functions=["f"], lease=HOUR)
    store.step("s1", Step(want=want))
    clock.advance(1)
    plans = tuple(plan(job, clock.now()) for job in store.look().jobs)
    with redis.Redis.from_url(own_server.url) as client:
        done, fired = counted(client, lambda: store.step("s1", Step(plans=plans, want=want)))
        _, settled = counted(client, lambda: store.step("s1", Step(ends=tuple(map(succeeded, done.claims)))))
    assert len(done.claims) == 50
    assert (fired // 50, settled // 50) == (11, 5)


def counted(client: redis.Redis, act: Callable[[], Answer]) -> tuple[Answer, int]:
    """Return an answer, and how many commands that took."""
    client.config_resetstat()
    answer = act()
    return answer, commands_of(client).total()


# --- one hash slot --------------------------------------------------------------------------------------------------


def do_everything(store: RedisStore, name: str, clock: ManualClock) -> set[str]:
    """Call every verb with ``name`` wherever a name may stand; return the scripts that ran."""
    ran: set[str] = set()
    run = store._client.run_script

    def watched(one, arguments, **more):
        ran.add(one.name)
        return run(one, arguments, **more)

    store._client.run_script = watched  # type: ignore[method-assign, assignment]
    line = store.wait_queues()
    store.check()
    spec = JobSpec(name=name, function=name, trigger=every("1m", start=START), args=(name,))
    store.open_session(_session(name), lease=HOUR)
    other = JobSpec(name="gone", function=name, policies=Policies.read({"overlap": "queue", "keep": "1m"}))
    store.define_jobs([spec, other], release=name, complete=True, by=name)
    store.pause(name, by=name, why=name)
    store.resume(name, by=name, why=name)
    clock.step(3600)
    assert carry_out(store, [plan(job, store.now()) for job in store.look().jobs]) == [True]
    clock.step(-3600)
    rewind_job(store, name, by="ada", why=name)
    clock.advance(60)
    view = store.look()
    assert [name] == [job.spec.name for job in view.jobs]
    assert carry_out(store, [plan(job, view.now) for job in view.jobs]) == [True]
    [claim] = take(store, name, 1, [name], lease=HOUR)
    say(store, [Note(claim.id, claim.token, (1.0, 2.0), (LogLine(START, name, name),))])
    store.cancel(claim.id, by=name, why=name)
    store.renew(name, lease=HOUR)
    assert store._write_script("note_sign", name, True) is False
    assert give_back(store, [claim]) == [True]
    made = store.retry(claim.id, by=name, why=name)
    store.enqueue([Item(job=name, key=name, kwargs={name: name}, expires_in=SECOND, priority=-3)])
    [claim] = take(store, name, 1, [name], lease=HOUR)
    failed = an_end(id=claim.id, token=claim.token, state=State.PENDING, reason=name)
    assert settle(store, [failed])[0].accepted
    store.enqueue([Item(job=name, key=item_key(made.id, name), origin=Origin.BATCH, parent=made.id)])
    assert store.wake([made.id], listed=1)
    assert store.children([made.id])[made.id].pending == 1
    store.wake([made.id])
    assert store.parked() == []
    assert store.edges() == []
    assert store.decided() == store.decided(after=-1) == []
    assert all(one.job == name for one in store.ended_badly(START))
    store.trigger(name, by=name, why=name)
    store.backfill(name, [START], by=name, why=name)
    acquired = win_named(store, name, "gone", key=name, lease=HOUR)
    assert acquired is not None
    assert store.forget("gone", name, by=name, why=name, running=True) is State.RUNNING
    acquired = win_named(store, name, "gone", key=name, lease=HOUR, fingerprint=name)
    assert acquired is not None
    assert store.acquire(name, [Ask(name, (START,)), Ask("gone", (START,))], lease=HOUR)
    clock.advance(60)
    view = store.look()
    back = (GiveBack(claim=acquired, cut="stopped"),)
    want = Want(limit=5, functions=[name], lease=HOUR)
    step = Step(give_back=back, plans=tuple(plan(job, view.now) for job in view.jobs), want=want)
    done = store.step(name, step)
    assert (*done.returned, *done.carried_out) == (True, True)
    store.drain(name, by=name, why=name)
    line.join_queue(name)
    grant = store.lock(name, name, ttl=HOUR, session=name)
    assert grant is not None
    assert store.extend(grant, ttl=HOUR)
    assert store.unlock(grant)
    store.lock(name, name, ttl=HOUR, session=name)
    assert store.break_lock(name, by=name, why=name)
    store.lock(name, name, ttl=HOUR, session=name)
    store.lock(name, name, ttl=SECOND, limit=2)
    line.join_queue(name)
    store.wake_next(name)
    line.join_queue(name)
    line.leave_queue(name)
    for read in (store.job, store.history, store.ranges):
        read(name)
    store.occurrence(made.id)
    store.occurrences(OccurrenceFilter(job=name, key=name))
    store.runs(claim.id)
    store.logs(claim.id)
    store.pending_of([name, "gone"])
    store.last_of([name, "gone"])
    store.ran_since(START)
    store.signs([name, "gone"])
    for listing in (store.jobs, store.sessions, store.locks, store.counts, store.trail):
        listing()
    store.trail(target=name)
    assert store.identity() is not None
    store.note_in_trail(Loss(since=None, until=START, emptied=False, why=name), by=name)
    store.define_jobs([spec], release=name, complete=True)  # the other is retired
    store.open_session(_session(f"{name} dies"), lease=SECOND)
    clock.advance(2)
    assert store.reclaim([name])
    store.open_session(_session(f"{name} closes"), lease=HOUR)
    store.close_session(f"{name} closes")
    clock.advance(200)
    store.prune()
    store.prune(store.now())
    line.close()
    return ran


def _session(name: str) -> SessionSpec:
    return a_session(name, release=name)


def test_all_keys_of_every_script_lie_in_one_slot_whatever_the_names(
    opening: Opening, redis_url: str, raw: redis.Redis
) -> None:
    prefix = redis_url.partition("prefix=")[2]
    ran: set[str] = set()
    for namespace in ("plain", "{", "}{a}", "a{b}c", "🧨" * 50):
        for name in ("}", "{x}", "a{b", "🧨", "*", HOSTILE[4]):
            clock = ManualClock(START)
            store = opening(redis_url, f"{namespace} {HOSTILE.index(name) if name in HOSTILE else name}", clock)
            ran |= do_everything(store, name, clock)
            space = Keyspace(prefix, store.namespace)
            keys = list(raw.scan_iter(match=f"{{{space.name}}}:*", count=10_000))
            assert len(keys) > 10
            slots = {key_slot(key) for key in (*keys, space.meta, space.never, space.pulse, space.channel)}
            assert len(slots) == 1
    assert set(list_verbs()) == ran
    strangers = [
        key for key in raw.scan_iter(match=f"*{prefix}*", count=10_000) if not key.startswith(b"{" + prefix.encode())
    ]
    assert strangers == []


def test_namespaces_never_share_a_key() -> None:
    names = ["a", "A", "a:b", "a b", "~a", *HOSTILE, "x" * 64, "x" * 65]
    assert len({*names}) == len({Keyspace("p", name).meta for name in names})
    assert Keyspace("p:q", "r").meta != Keyspace("p", "q:r").meta


def test_a_job_of_one_namespace_has_no_number_in_another() -> None:
    ours, theirs = Keyspace("p", "a"), Keyspace("p", "b")
    assert ours.job_number(ours.job_id("000000007")) == "000000007"
    assert theirs.job_number(ours.job_id("000000007")) == ""
    assert ours.job_id("999999999") < 2**63


# --- flat -----------------------------------------------------------------------------------------------------------


def commands_of(client: redis.Redis) -> Counter[str]:
    stats = client.info("commandstats")
    ours = {"info", "config|resetstat", "config"}
    return Counter({
        name.removeprefix("cmdstat_"): entry["calls"]
        for name, entry in stats.items()
        if name.removeprefix("cmdstat_") not in ours
    })  # fmt: skip


def test_a_round_costs_the_same_however_many_jobs_are_stored(own_server: RedisServer, opening: Opening) -> None:
    counted: list[Counter[str]] = []
    with redis.Redis.from_url(own_server.url) as client:
        for jobs in (10, 10, 3000):  # the first knows no scripts yet
            clock = ManualClock(START)
            store = opening(own_server.url, f"{len(counted)}", clock)
            specs = [JobSpec(name=f"job {n}", function="f", trigger=every("1h", start=START)) for n in range(jobs)]
            store.define_jobs(
                [*specs, JobSpec(name="due", function="f", trigger=every("1m", start=START))], release="r"
            )
            store.open_session(a_session("s"), lease=HOUR)
            take(store, "s", 1, ["f"], lease=HOUR)
            clock.advance(60)
            client.config_resetstat()
            view = store.look()
            assert carry_out(store, [plan(job, view.now) for job in view.jobs]) == [True]
            [claim] = take(store, "s", 5, ["f"], lease=HOUR)
            assert settle(store, [succeeded(claim)])[0].accepted
            store.renew("s", lease=HOUR)
            store.reclaim()
            counted.append(commands_of(client))
    assert counted[1] == counted[2]


def test_the_items_of_a_batch_are_counted_at_the_same_cost_however_many_there_are(
    own_server: RedisServer, opening: Opening
) -> None:
    counted: list[Counter[str]] = []
    with redis.Redis.from_url(own_server.url) as client:
        for items in (10, 10, 3000):  # the first knows no scripts yet
            store = opening(own_server.url, f"batch-{len(counted)}")
            queue(store)
            [batch] = store.enqueue([Item(job="queue")])
            store.enqueue([Item(job="queue", key=item_key(batch.id, str(n)), parent=batch.id) for n in range(items)])
            client.config_resetstat()
            assert store.children([batch.id], limit=items)[batch.id].pending == items
            counted.append(commands_of(client))
    assert counted[1] == counted[2]


def test_a_long_queue_that_nobody_may_run_costs_a_claim_no_more_than_a_short_one(
    own_server: RedisServer, opening: Opening
) -> None:
    counted = []
    with redis.Redis.from_url(own_server.url) as client:
        for waiting in (3, 3000):
            store = opening(own_server.url, f"queue-{waiting}")
            queue(store, "full", concurrency=1, priority=9)
            queue(store, "foreign", priority=8)
            queue(store, "line", priority=7, overlap="queue")
            queue(store, "free")
            store.open_session(a_session("s"), lease=LEASE)
            store.trigger("line", by="ann")
            store.enqueue([Item(job="full")])
            assert len(take(store, "s", 9, ["full", "line", "free"], lease=LEASE)) == 2
            store.enqueue([Item(job=job) for job in ("full", "foreign") for _ in range(waiting)])
            for _ in range(min(waiting, 200)):
                store.trigger("line", by="ann")
            store.enqueue([Item(job="free")])
            client.config_resetstat()
            assert [claim.job for claim in take(store, "s", 9, ["full", "line", "free"], lease=LEASE)] == ["free"]
            counted.append(commands_of(client))
    assert counted[0] == counted[1]


def test_a_look_sends_and_asks_the_same_however_many_guests_there_are(
    own_server: RedisServer, opening: Opening
) -> None:
    counted: list[tuple[Counter[str], int]] = []
    with redis.Redis.from_url(own_server.url) as client:
        for guests in (3, 200, 1000):  # the first knows no scripts yet
            store = opening(own_server.url, f"guests-{len(counted)}")
            a_claim(store)
            for number in range(guests):
                store.open_session(a_session(f"guest {number}", is_node=False), lease=HOUR)
            client.config_resetstat()
            before = client.info("stats")["total_net_output_bytes"]
            view = store.look()
            sent = client.info("stats")["total_net_output_bytes"] - before
            counted.append((commands_of(client), sent))
            assert ([one.id for one in view.holders], view.sessions) == (["s1"], ("s1",))
    assert counted[1][0] == counted[2][0]
    assert counted[2][1] <= counted[1][1] + 1000
    # Where there are few, which is asked each second by each node, it executes fewer.
    assert counted[0][0].total() < counted[1][0].total()


def test_a_look_knows_guests_again_and_learns_of_new_ones(own_server: RedisServer, opening: Opening) -> None:
    store, other = opening(own_server.url), opening(own_server.url)
    store.open_session(a_session("s1"), lease=HOUR)
    other.open_session(a_session("guest 1", is_node=False), lease=HOUR)
    with redis.Redis.from_url(own_server.url) as client:
        costs = []
        for opened in ("", "", "guest 2", "", "guest 3"):
            if opened:
                other.open_session(a_session(opened, is_node=False), lease=HOUR)
            view, cost = counted(client, store.look)
            costs.append(cost)
            assert view.sessions == ("s1",)
    other.open_session(a_session("s2"), lease=HOUR)
    other.close_session("s1")
    assert store.look().sessions == ("s2",)
    assert costs[1] == costs[3] < min(costs[2], costs[4]), costs


def test_a_guest_that_is_opened_after_a_failover_lost_another_one_takes_no_turn(
    own_server: RedisServer, opening: Opening
) -> None:
    store, other = opening(own_server.url), opening(own_server.url)
    store.open_session(a_session("s1"), lease=HOUR)
    with redis.Redis.from_url(own_server.url) as client:
        replicated = {key: client.dump(key) for key in client.scan_iter()}
        other.open_session(a_session("guest 1", is_node=False), lease=HOUR)
        assert store.look().sessions == store.look().sessions == ("s1",)
        client.flushdb()
        for key, content in replicated.items():
            client.restore(key, 0, content)
    other.open_session(a_session("guest 2", is_node=False), lease=HOUR)
    assert store.look().sessions == ("s1",)


def test_a_look_sees_who_takes_turns_beside_many_guests(store: RedisStore) -> None:
    for number in range(120):
        store.open_session(a_session(f"guest {number}", is_node=False), lease=HOUR)
    for name in ("a", "b", "z"):
        store.open_session(a_session(name), lease=HOUR)
    assert store.look().sessions == ("a", "b", "z")
    store.close_session("b")
    assert store.look().sessions == ("a", "z")


# --- the schema -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "words"), [("6", "upgrade cronsensus"), ("1", "made before cronsensus 0.1.0"), ("a" * 99, "upgrade")]
)
def test_what_another_version_wrote_is_touched_by_no_verb(
    schema: str, words: str, store: RedisStore, raw: redis.Redis
) -> None:
    claim = a_claim(store)
    raw.hset(store._keyspace.meta, "schema", schema)
    before = {key: raw.dump(key) for key in raw.scan_iter(match=f"{{{store._keyspace.name}}}:*", count=1000)}
    for verb in (
        store.check,
        store.migrate,
        store.look,
        store.counts,
        store.reclaim,
        lambda: settle(store, [succeeded(claim)]),
    ):
        with pytest.raises(SchemaMismatch, match=words):
            verb()
    assert before == {key: raw.dump(key) for key in raw.scan_iter(match=f"{{{store._keyspace.name}}}:*", count=1000)}


def test_every_script_is_text_that_a_server_takes(own_server: RedisServer) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        for verb in list_verbs():
            assert client.script_load(script_of(verb).text) == script_of(verb).sha.decode()
