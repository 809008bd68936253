"""Any store against the memory store: the same calls at the same times give the same answers and the same reads.

What a store is free to choose (ids, tokens, keys that it makes up) is not compared but bound: one to one, and for ids
and tokens in the same order. Of reasons the first word is compared, which is the ledger's; the rest is for people.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cronsensus.errors import CronsensusError
from cronsensus.model.acquiring import Ask, AskNamed, Intent
from cronsensus.model.ends import End, Parked
from cronsensus.model.glance import Glance
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.ledger import CLOCK_SET_BACK, TrailEntry
from cronsensus.model.occurrence import Claim, Item, LogLine, Note, OccurrenceFilter, RunError
from cronsensus.model.plan import Plan
from cronsensus.model.session import LockGrant
from cronsensus.model.states import Origin, State
from cronsensus.planning import plan
from cronsensus.stores import Store
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import EVERY_MINUTE, FAR_AHEAD, MINUTE, SECOND, START, a_session
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, say, settle, take
from cronsensus.timing.clock import Clock, ManualClock
from cronsensus.timing.instants import LATEST, to_micros
from cronsensus.triggers import at, every
from tests.scratch import in_memory
from tests.stores.broken import FinishNotIdempotent, NoLine, NoTokenInFinish, PrunesWithoutHorizon

JOBS = st.sampled_from(["a", "b", "c"])
KEYS = st.sampled_from([None, "x", "y", "🧨", "'"])
RELEASES = st.sampled_from(["r1", "r2"])
LOCKS = st.sampled_from(["l1", "l2"])
WHICH = st.integers(0, 30)
"""An index into whatever there is by then."""
LEASES = st.sampled_from([5 * SECOND, 30 * SECOND, 10 * MINUTE])
TIMES = st.integers(-3, 15).map(lambda number: START + number * 30 * SECOND)
INTENTS: tuple[Intent, ...] = ("run", "run", "full", "late")
TRIGGERS = st.sampled_from(
    [
        None,
        every("30s", start=START),
        every("1m", start=START),
        every("5m", start=START, jitter="20s"),
        at(START + MINUTE),
    ]
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "overlap": st.sampled_from(["skip", "queue_one", "queue", "cancel_previous", "allow"]),
        "catch_up": st.sampled_from(["none", "latest", "all"]),
        "catch_up_window": st.sampled_from(["1m", "1d"]),
        "grace": st.sampled_from([None, "0s", "45s"]),
        "on_crash": st.sampled_from(["retry", "fail"]),
        "max_crashes": st.sampled_from([1, 2]),
        "concurrency": st.sampled_from([None, 1, 2]),
        "priority": st.sampled_from([-1, 0, 5]),
        "keep": st.sampled_from(["1m", "30d"]),
    },
)
ENDS = st.sampled_from([State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED, State.PENDING, State.PENDING])

BOUND = {
    ("Claim", "id"): "occurrence",
    ("Claim", "parent"): "occurrence",
    ("Occurrence", "parent"): "occurrence",
    ("Occurrence", "id"): "occurrence",
    ("Occurrence", "retry_of"): "occurrence",
    ("Occurrence", "retried_as"): "occurrence",
    ("Sleeping", "id"): "occurrence",
    ("Enqueued", "id"): "occurrence",
    ("Settled", "id"): "occurrence",
    ("Takeover", "id"): "occurrence",
    ("RunView", "occurrence"): "occurrence",
    ("JobState", "id"): "job",
    ("JobView", "id"): "job",
    ("LedgerRange", "id"): "range",
    ("TrailEntry", "id"): "trail",
}
"""What is bound instead of compared, beside every ``token`` and ``key``."""
FOR_PEOPLE = {"reason", "ended_why"}
LENGTH_OF_A_MADE_UP_KEY = 36  # a UUID


def names_of_fields(value: Any) -> list[str]:
    """Return the fields of a dataclass or a struct; none of another value."""
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    return [field.name for field in fields(value)] if is_dataclass(value) else []


class AgainstTheOracle(RuleBasedStateMachine):
    """Two stores on one clock. ``open_other`` says which the second is."""

    def open_other(self, clock: ManualClock) -> Store:
        raise NotImplementedError

    def oracle_clock(self) -> Clock:
        return self.clock

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock(START)
        self.stores: tuple[Store, Store] = (MemoryStore(clock=self.oracle_clock()), self.open_other(self.clock))
        self.bound: dict[str, dict[Any, Any]] = {}
        self.claims: list[tuple[Claim, Claim]] = []
        self.plans: list[tuple[Plan, Plan]] = []
        self.grants: list[tuple[LockGrant, LockGrant]] = []
        self.sessions: list[str] = []
        self.agree = True
        self.numbers = itertools.count(1)
        self.open_session(release="r1", lease=10 * MINUTE)
        self.put_all(policies=[{}, {"overlap": "queue"}, {"overlap": "allow", "concurrency": 1}], trigger=EVERY_MINUTE)

    # --- comparing --------------------------------------------------------------------------------------------------

    def both(self, act: Callable[[Store, int], Any]) -> tuple[Any, Any]:
        """Do the same to both; compare what they answer, or how they refuse."""
        answers = []
        for side, store in enumerate(self.stores):
            try:
                answers.append(act(store, side))
            except (CronsensusError, LookupError) as error:
                answers.append(type(error).__name__)
        self.agree = False
        self.compare(*answers)
        self.agree = True
        return answers[0], answers[1]

    def compare(self, ours: Any, theirs: Any) -> None:
        assert type(ours) is type(theirs), (ours, theirs)
        if isinstance(ours, TrailEntry):
            self.bind("trail", ours.id, theirs.id)
            assert (ours.at, ours.by, ours.action, ours.target, ours.why) == (
                theirs.at, theirs.by, theirs.action, theirs.target, theirs.why,
            )  # fmt: skip
            if "occurrence" in ours.details:
                self.bind("occurrence", ours.details["occurrence"], theirs.details["occurrence"])
        elif names := names_of_fields(ours):
            for name in names:
                self.compare_field(type(ours).__name__, name, getattr(ours, name), getattr(theirs, name))
        elif isinstance(ours, (list, tuple)):
            assert len(ours) == len(theirs), (ours, theirs)
            for one, other in zip(ours, theirs, strict=True):
                self.compare(one, other)
        else:
            assert ours == theirs

    def compare_field(self, kind: str, name: str, ours: Any, theirs: Any) -> None:
        if name in {"tzdata", "zones"} and not (ours and theirs):
            return  # a look may leave them out
        if (kind, name) == ("Enqueued", "created_at"):
            return  # not each store returns it
        if (kind, name) in BOUND:
            self.bind(BOUND[kind, name], ours, theirs)
        elif name == "token":
            self.bind("token", ours, theirs)
        elif name == "key":
            self.bind("key", ours, theirs)
        elif (kind, name) == ("Renewal", "store"):
            self.bind("store", ours, theirs)
        elif (kind, name) == ("View", "next_pending"):  # what sleeps is due never, and a store may say so or not
            self.compare(*(None if one == LATEST else one for one in (ours, theirs)))
        elif name in FOR_PEOPLE and ours is not None and theirs is not None:
            assert ours.split(":")[0] == theirs.split(":")[0]
        elif (kind, name) == ("Renewal", "cancel"):
            assert [(self.bound["occurrence"][one], why.split(":")[0]) for one, why in ours.items()] == [
                (one, why.split(":")[0]) for one, why in theirs.items()
            ]
        elif (kind, name) == ("Renewal", "held") and ours is not None and theirs is not None:
            assert len(ours) == len(theirs)
            for one, other in zip(ours, theirs, strict=True):
                self.bind("occurrence", one[0], other[0])
                self.bind("token", one[1], other[1])
        else:
            self.compare(ours, theirs)

    def bind(self, kind: str, ours: Any, theirs: Any) -> None:
        """Hold what one store calls ``ours`` and the other ``theirs`` to be the same, from now on."""
        known = self.bound.setdefault(kind, {})
        if not ours or not theirs:
            assert ours == theirs
            return
        if ours not in known:
            if kind != "key":
                assert all((one < ours) == (other < theirs) for one, other in known.items())
            elif not (len(ours) == len(theirs) == LENGTH_OF_A_MADE_UP_KEY):
                assert ours == theirs
            assert theirs not in known.values()
            known[ours] = theirs
        assert known[ours] == theirs, (kind, ours, theirs)

    @property
    def occurrences(self) -> list[tuple[int, int]]:
        return list(self.bound.get("occurrence", {}).items())

    # --- jobs -------------------------------------------------------------------------------------------------------

    @rule(
        job=JOBS,
        trigger=TRIGGERS,
        policies=POLICIES,
        release=RELEASES,
        complete=st.sampled_from([False, False, False, True]),
        by=st.sampled_from(["", "ann"]),
        source=st.sampled_from(["code", "code", "runtime"]),
    )
    def put(self, *, job, trigger, policies, release, complete, by, source):
        spec = JobSpec(
            name=job, function=f"f{job}", trigger=trigger, args=(job,), policies=Policies.read(policies), source=source
        )
        self.both(lambda store, _: store.define_jobs([spec], release=release, complete=complete, by=by))

    @rule(policies=st.lists(POLICIES, min_size=3, max_size=3), trigger=TRIGGERS)
    def put_all(self, policies, trigger):
        specs = [
            JobSpec(name=name, function=f"f{name}", trigger=trigger, args=(name,), policies=Policies.read(chosen))
            for name, chosen in zip("abc", policies, strict=True)
        ]
        self.both(lambda store, _: store.define_jobs(specs, release="r1"))

    @rule(job=JOBS, verb=st.sampled_from(["retire", "pause", "pause", "resume", "resume", "trigger", "trigger"]))
    def operate(self, job, verb):
        self.both(lambda store, _: getattr(store, verb)(job, by="ann", why="because"))

    # --- rounds -----------------------------------------------------------------------------------------------------

    def look_and_plan(self) -> tuple[list[Plan], list[Plan]]:
        ours, theirs = self.both(lambda store, _: store.look())
        return [plan(job, ours.now) for job in ours.jobs], [plan(job, theirs.now) for job in theirs.jobs]

    @rule()
    def plan_only(self):
        self.plans += zip(*self.look_and_plan(), strict=True)

    @rule()
    def fire(self):
        plans = self.look_and_plan()
        self.both(lambda store, side: carry_out(store, plans[side]))

    @precondition(lambda self: self.plans)
    @rule(which=WHICH)
    def fire_late(self, which):
        pair = self.plans[which % len(self.plans)]
        self.both(lambda store, side: carry_out(store, [pair[side]]))

    @rule(which=WHICH, limit=st.sampled_from([1, 2, 100]), functions=st.sets(JOBS), lease=LEASES)
    def claim(self, which, limit, functions, lease):
        session = self.session(which)
        names = {f"f{name}" for name in functions or {"a", "b", "c"}}
        ours, theirs = self.both(lambda store, _: take(store, session, limit, names, lease=lease))
        if isinstance(ours, list):
            self.claims += zip(ours, theirs, strict=True)

    @rule(which=WHICH, job=JOBS, time=TIMES, keys=st.lists(KEYS, min_size=1, max_size=3), lease=LEASES)
    def acquire_named(self, which, job, time, keys, lease):
        asks = [AskNamed(job, scheduled_for=None if key else time, key=key, fingerprint=key) for key in keys]
        self.acquire(which, [*asks, AskNamed("a", key="same")][: 1 + which % 4], lease)

    @rule(which=WHICH, job=JOBS, time=TIMES, lease=LEASES)
    def acquire_times(self, which, job, time, lease):
        intent = INTENTS[which % len(INTENTS)]
        asks = [Ask(job, (time, time + 30 * SECOND), intent), AskNamed("b", scheduled_for=time), Ask("a", (time,))]
        self.acquire(which, asks[:: 1 + which % 2], lease)

    def acquire(self, which, asks, lease):
        session = self.session(which)
        ours, theirs = self.both(lambda store, _: store.acquire(session, asks, lease=lease))
        if isinstance(ours, list):
            pairs = zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True)
            self.claims += [pair for pair in pairs if isinstance(pair[0], Claim)]

    @rule(job=JOBS, key=KEYS.filter(bool), running=st.booleans())
    def forget(self, job, key, running):
        self.both(lambda store, _: store.forget(job, key, by="ann", why="typo", running=running))

    @precondition(lambda self: self.claims)
    @rule(
        which=st.lists(WHICH, min_size=1, max_size=4),
        state=ENDS,
        delay=st.sampled_from([None, 0, 20]),
        waiting=st.booleans(),
        listed=st.sampled_from([None, 2]),
    )
    def finish(self, which, state, delay, waiting, listed):
        waits = waiting and state is State.PENDING
        chosen = [self.claims[-1 - number % len(self.claims)] for number in which]
        error = RunError(type="E", message="m") if state is State.FAILED else None
        wait = None if delay is None else delay * SECOND

        def outcomes(side: int) -> list[End]:
            return [
                an_end(
                    id=pair[side].id,
                    token=pair[side].token,
                    state=state,
                    reason="why",
                    result="1",
                    error=error,
                    retry_in=wait,
                    waiting=waits,
                    then=Parked("items", listed, "why") if waits and wait is None else None,
                )
                for pair in chosen
            ]

        self.both(lambda store, side: settle(store, outcomes(side)))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def release(self, which):
        pair = self.claims[-1 - which % len(self.claims)]
        self.both(lambda store, side: give_back(store, [pair[side]]))

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def note(self, which):
        pair = self.claims[-1 - which % len(self.claims)]
        line = LogLine(START, "info", str(next(self.numbers)))
        self.both(lambda store, side: say(store, [Note(pair[side].id, pair[side].token, (1.0, 2.0), (line,))]))

    # --- sessions and locks -----------------------------------------------------------------------------------------

    def session(self, which: int) -> str:
        """Return one of the latest sessions, alive or not, or one that never was."""
        latest = [*self.sessions[-3:], "nobody"]
        return latest[which % len(latest)]

    @rule(release=RELEASES, lease=LEASES)
    def open_session(self, release, lease):
        self.sessions.append(f"s{next(self.numbers):03}")
        self.both(lambda store, _: store.open_session(a_session(self.sessions[-1], release=release), lease=lease))

    @rule(which=WHICH, lease=LEASES, idle_lease=st.none() | LEASES)
    def renew(self, which, lease, idle_lease):
        session = self.session(which)
        self.both(lambda store, _: store.renew(session, lease=lease, idle_lease=idle_lease))

    @rule(which=WHICH, verb=st.sampled_from(["close", "drain", "reclaim"]))
    def end_session(self, which, verb):
        session = self.session(which)
        if verb == "close":
            self.both(lambda store, _: store.close_session(session))
        elif verb == "drain":
            self.both(lambda store, _: store.drain(session, by="ann", why=""))
        else:
            self.both(lambda store, _: store.reclaim([session, "nobody"]))

    @rule(lease=LEASES)
    def take_over(self, lease):
        """Let the latest node die, and another take what it left: there is a stale token then."""
        self.both(lambda store, _: store.reclaim(self.sessions[-1:]))
        self.open_session(release="r1", lease=lease)
        self.claim(which=len(self.sessions[-3:]) - 1, limit=100, functions=set(), lease=lease)

    @rule()
    def reclaim(self):
        self.both(lambda store, _: store.reclaim())

    @rule(name=LOCKS, ttl=LEASES, which=st.none() | WHICH)
    def lock(self, name, ttl, which):
        session = None if which is None else self.session(which)
        holder = f"h{next(self.numbers)}"
        pair = self.both(lambda store, _: store.lock(name, holder, ttl=ttl, session=session))
        if isinstance(pair[0], LockGrant):
            self.grants.append(pair)

    @precondition(lambda self: self.grants)
    @rule(which=WHICH, ttl=st.none() | LEASES)
    def unlock_or_extend(self, which, ttl):
        pair = self.grants[-1 - which % len(self.grants)]
        if ttl is None:
            self.both(lambda store, side: store.unlock(pair[side]))
        else:
            self.both(lambda store, side: store.extend(pair[side], ttl=ttl))

    # --- people -----------------------------------------------------------------------------------------------------

    @rule(
        jobs=st.lists(JOBS, min_size=1, max_size=3),
        key=KEYS,
        priority=st.sampled_from([None, 0, 9]),
        delay=st.sampled_from([0, 0, 10]),
        expires=st.sampled_from([None, None, 30]),
        origin=st.sampled_from([Origin.ENQUEUE, Origin.ENQUEUE, Origin.STARTUP]),
        batch=st.none() | WHICH,
    )
    def enqueue(self, *, jobs, key, priority, delay, expires, origin, batch):
        known = self.occurrences
        parent = (None, None) if batch is None or not known else known[-1 - batch % len(known)]
        items = [
            Item(
                job=job,
                key=key,
                priority=priority,
                delay=delay * SECOND,
                expires_in=None if expires is None else expires * SECOND,
                origin=origin,
            )
            for job in jobs
        ]
        self.both(lambda store, side: store.enqueue([replace(item, parent=parent[side]) for item in items]))

    @precondition(lambda self: self.occurrences)
    @rule(which=WHICH, verb=st.sampled_from(["cancel", "retry"]))
    def act_on_one(self, which, verb):
        pair = self.occurrences[-1 - which % len(self.occurrences)]
        self.both(lambda store, side: getattr(store, verb)(pair[side], by="ann", why=""))

    @precondition(lambda self: self.occurrences)
    @rule(which=st.lists(WHICH, min_size=1, max_size=9), listed=st.sampled_from([None, None, 3]))
    def wake_up(self, which, listed):
        chosen = [self.occurrences[-1 - number % len(self.occurrences)] for number in which]
        if listed is None:
            self.both(lambda store, side: store.wake([pair[side] for pair in chosen]))
        else:
            self.both(lambda store, side: store.wake([chosen[0][side]], listed=listed))

    @rule(job=JOBS, times=st.lists(TIMES, min_size=1, max_size=3))
    def backfill(self, job, times):
        self.both(lambda store, _: store.backfill(job, times, by="ann"))

    # --- time and care ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 15, 31, 60, 200]))
    def advance(self, seconds):
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-90, -20, 90]))
    def step_clock(self, seconds):
        self.clock.step(seconds)

    @rule(ago=st.sampled_from([None, -1, 60]))
    def prune(self, ago):
        before = None if ago is None else self.clock.now() - ago * SECOND
        self.both(lambda store, _: store.prune(before, limit=10_000))

    # --- reads ------------------------------------------------------------------------------------------------------

    @invariant()
    def the_same_is_there(self):
        self.both(lambda store, _: store.occurrences(OccurrenceFilter(), limit=1000, newest_first=False))
        self.both(lambda store, _: store.jobs(retired=True))
        self.both(lambda store, _: store.look(limit=2))

    @invariant()
    def batches_stand_the_same(self):
        pairs = self.occurrences
        self.both(lambda store, side: [*store.children([pair[side] for pair in pairs], limit=2).values()])
        asleep = self.both(lambda store, _: [Sleeping(one.id, one.job) for one in store.parked()])
        for batch in zip(*asleep, strict=True):
            for states in ((), (State.PENDING, State.SUCCEEDED)):
                where = [OccurrenceFilter(parent=one.id, states=states) for one in batch]
                self.both(lambda store, side, where=where: store.occurrences(where[side]))  # type: ignore[misc]

    @invariant()
    def what_is_parked_is_due_never_and_listed(self):
        for store in self.stores:
            rows = store.occurrences(OccurrenceFilter(states=(State.PENDING, State.RUNNING)), limit=1000)
            parked = [one for one in rows if one.parked_on is not None]
            assert {one.id for one in store.parked(limit=1000)} == {one.id for one in parked}
            assert all(one.state is State.PENDING and one.due_at == LATEST for one in parked), (
                "only a wake makes it due"
            )
            assert all(one.state is State.RUNNING for one in rows if one.reserved)

    def read(self, name: str, *args: Any, **more: Any) -> None:
        self.both(lambda store, _: getattr(store, name)(*args, **more))

    def teardown(self) -> None:
        if not self.agree:
            return  # the difference is known; another would hide it
        for name in ("sessions", "locks", "counts"):
            self.read(name)
        self.both(lambda store, _: store.look(limit=1000, ahead=FAR_AHEAD))
        # That its clock was set back a store may say sooner or later, so long as it says so before it writes again.
        self.both(lambda store, _: [entry for entry in store.trail(limit=1000) if entry.action != CLOCK_SET_BACK])
        self.read("sessions", ended=True)
        self.both(lambda store, _: [without_ids(past.glances) for _, past in sorted(store.last_of("abc").items())])
        for ago in (0, 60):
            since = self.clock.now() - ago * SECOND
            self.both(lambda store, _, since=since: without_ids(store.ran_since(since)))  # type: ignore[misc]
        for job in "abc":
            for name in ("history", "ranges"):
                self.read(name, job)
        for ours, theirs in self.occurrences:
            ids = (ours, theirs)
            self.both(lambda store, side, ids=ids: store.runs(ids[side]))  # type: ignore[misc]
            self.both(lambda store, side, ids=ids: [line[1:] for line in store.logs(ids[side])])  # type: ignore[misc]


@dataclass(frozen=True)
class Sleeping:
    """A batch that sleeps."""

    id: int
    job: str


def without_ids(glances: Iterable[Glance]) -> list[Glance]:
    """Return them without their numbers, and those of their batches, which differ."""
    return [replace(one, id=0, parent=one.parent and -1) for one in glances]


class SqliteAgainstTheOracle(AgainstTheOracle):
    def open_other(self, clock: ManualClock) -> Store:
        self.folder = TemporaryDirectory(dir=in_memory())
        store = SqliteStore(f"sqlite:///{self.folder.name}/cronsensus.db", clock=clock)
        store.migrate()
        return store

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.stores[1].close()
            self.folder.cleanup()


class OneClock:
    """A clock like a server's: the wall clock also measures how long something took."""

    def __init__(self, clock: ManualClock) -> None:
        self.now = clock.now

    def monotonic(self) -> float:
        return to_micros(self.now()) / 1_000_000


def machine_on_a_server(open_store: Callable[[str, ManualClock], Store]) -> type[AgainstTheOracle]:
    """Return a machine for a store on a server: one place for all examples, a namespace for each."""
    prepared = open_store("prepared", ManualClock(START))
    prepared.migrate()
    prepared.close()

    class Machine(AgainstTheOracle):
        def open_other(self, clock: ManualClock) -> Store:
            return open_store(new_id(), clock)

        def oracle_clock(self) -> Clock:
            return OneClock(self.clock)

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.stores[1].close()

    return Machine


EXAMPLES = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    # Not Phase.explain: before Python 3.12 it traces every line, which makes a failure take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ON_A_SERVER = settings(EXAMPLES, max_examples=8)
"""The steps are those of SQLite; what differs is the dialect."""
FINDING = settings(EXAMPLES, max_examples=1000, phases=[Phase.generate], derandomize=True, database=None)
"""It ends with the first that is found. What is drawn depends on the modules that the process has loaded, and of five
searches of 150 one finds nothing."""


@pytest.mark.timeout(600)  # only a failure takes that long: it is made as short as it can be
def test_sqlite_is_as_the_oracle_says() -> None:
    run_state_machine_as_test(SqliteAgainstTheOracle, settings=EXAMPLES)


@pytest.mark.timeout(600)
def test_mysql_is_as_the_oracle_says(mysql_url: str) -> None:
    machine = machine_on_a_server(lambda namespace, clock: MysqlStore(mysql_url, namespace=namespace, clock=clock))
    run_state_machine_as_test(machine, settings=ON_A_SERVER)


@pytest.mark.timeout(600)
def test_postgres_is_as_the_oracle_says(postgres_url: str) -> None:
    machine = machine_on_a_server(
        lambda namespace, clock: PostgresStore(postgres_url, namespace=namespace, clock=clock)
    )
    run_state_machine_as_test(machine, settings=ON_A_SERVER)


def machine_for(kind: type[MemoryStore]) -> type[AgainstTheOracle]:
    class Machine(AgainstTheOracle):
        def open_other(self, clock: ManualClock) -> Store:
            return kind(clock=clock)

    return Machine


def test_the_oracle_is_as_the_oracle_says() -> None:
    run_state_machine_as_test(machine_for(MemoryStore), settings=settings(FINDING, max_examples=25))


@pytest.mark.parametrize(
    "kind",
    [FinishNotIdempotent, NoLine, NoTokenInFinish, PrunesWithoutHorizon],
)
def test_the_machine_finds_what_is_broken(kind: type[MemoryStore]) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine_for(kind), settings=FINDING)
