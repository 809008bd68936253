"""Fixtures of the suite: an empty store, a clock that stands still, and short helpers for the acts of a cluster.

Nothing here tests anything. If a helper asserts, a failure means that the fixture could not be set up.
"""

# ruff: noqa: S101, S608 - pytest explains plain asserts; table names are ours

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from cronsensus.model.job import JobSpec, JobState, JobView, Policies
from cronsensus.model.occurrence import (
    Claim,
    Enqueued,
    Item,
    Occurrence,
    OccurrenceFilter,
    RunError,
    RunView,
    Settled,
)
from cronsensus.model.plan import Plan, PlannedOccurrence, VerdictRange
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import State
from cronsensus.planning import next_nominal, plan
from cronsensus.stores.base import Store
from cronsensus.stores.values import DefineResult
from cronsensus.testing.conformance.steps import PLANNER, an_end, carry_out, settle, take, win_named
from cronsensus.timing.clock import Clock, ManualClock
from cronsensus.triggers import Trigger, every

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When every test begins."""
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LEASE = timedelta(seconds=10)
EVERY_MINUTE = every("1m", start=START)
FAR_AHEAD = timedelta(days=2_900_000)
"""More than there will ever be."""
THREADS = 8

Answer = TypeVar("Answer")


def minute(number: int) -> datetime:
    """Return the nominal time ``number`` minutes after the start; ``EVERY_MINUTE`` gives one for each number."""
    return START + number * MINUTE


EFFECTS = "conformance_effects"
"""The user's own table, beside the store's: a row for each effect."""


class StoreTest:
    """An empty store for each test, opened at first use, and closed after the test."""

    patience: ClassVar[float] = 60.0
    """Seconds that a test waits for something that comes at once unless the store is broken."""

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        """Open a further handle on the store of this test. Each subclass that tests a store implements it.

        All handles of a test reach the same store, which is empty when the test begins. The store reads ``clock`` and
        no other. It need not be migrated.
        """
        raise NotImplementedError

    def make_connection(self) -> Any:
        """Open a connection beside the store, as a user does: SQLAlchemy's, on the database of this test's store.

        To be implemented if the store has ``transactional_finish``. It is called several times in a test; the suite
        closes each connection and disposes of its engine.
        """
        raise NotImplementedError

    def namespace_of(self, name: str) -> str:
        """Return the namespace of the handle that ``make_store`` returns when a test asks for ``name``."""
        return name

    # --- beside the store ---------------------------------------------------------------------------------------------

    @cached_property
    def mine(self) -> str:
        """The mark of this test's rows in the user's own table, which other tests may use at the same time."""
        with self.outside() as connection:
            try:
                connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {EFFECTS} (test VARCHAR(40), word VARCHAR(40))")
                connection.commit()
            except Exception:  # noqa: BLE001 - another test makes it at the same instant; any other error shows in the next line
                connection.rollback()
                connection.exec_driver_sql(f"SELECT word FROM {EFFECTS} WHERE test = ''")
        return uuid.uuid4().hex

    @contextmanager
    def outside(self) -> Iterator[Any]:
        """Open a connection of the user's own."""
        connection = self.make_connection()
        try:
            yield connection
        finally:
            connection.close()
            connection.engine.dispose()

    def insert(self, word: str = "one") -> str:
        """Return the statement that writes an effect."""
        return f"INSERT INTO {EFFECTS} VALUES ('{self.mine}', '{word}')"

    def effect(self, connection: Any, word: str = "one") -> None:
        """Write an effect."""
        connection.exec_driver_sql(self.insert(word))

    def count(self) -> int:
        """Count the effects that are there, as another connection sees them."""
        with self.outside() as connection:
            query = f"SELECT COUNT(*) FROM {EFFECTS} WHERE test = '{self.mine}'"
            return int(connection.exec_driver_sql(query).scalar())

    # --- setting up and clearing away -------------------------------------------------------------------------------

    def setup_method(self) -> None:
        """Start without open handles."""
        self._opened: list[Store] = []
        self._functions: set[str] = set()
        self._racers: list[Store] = []

    def teardown_method(self) -> None:
        """Close every handle that the test opened."""
        for store in self._opened:
            store.close()

    @cached_property
    def clock(self) -> ManualClock:
        """The clock of the store; it moves only when a test says so."""
        return ManualClock(START)

    @cached_property
    def store(self) -> Store:
        """The handle that most of a test uses: migrated, in the namespace ``default``."""
        store = self.open()
        store.migrate()
        return store

    def open(self, namespace: str = "default") -> Store:
        """Open a handle by the factory."""
        store = self.make_store(self.clock, namespace)
        self._opened.append(store)
        return store

    def sibling(self) -> Store:
        """Open a second handle on the store in use."""
        store = self.store.sibling()
        self._opened.append(store)
        return store

    # --- jobs -------------------------------------------------------------------------------------------------------

    def job(
        self,
        name: str = "job",
        *,
        trigger: Trigger | None = EVERY_MINUTE,
        function: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        source: Literal["code", "runtime"] = "code",
        **policies: Any,
    ) -> JobSpec:
        """Return a definition: each minute, by default."""
        return JobSpec(
            name=name,
            function=function or name,
            trigger=trigger,
            args=args,
            kwargs=kwargs or {},
            policies=Policies.read(policies),
            source=source,
        )

    def define(
        self, *specs: JobSpec, release: str = "r1", complete: bool = False, by: str = "", store: Store | None = None
    ) -> DefineResult:
        """Put definitions, by default the job ``job``."""
        chosen = specs or (self.job(),)
        self._functions.update(spec.function for spec in chosen)
        return (store or self.store).define_jobs(chosen, release=release, complete=complete, by=by)

    def queue(self, name: str = "queue", **policies: Any) -> str:
        """Define a job without a trigger, for enqueued runs; return its name."""
        self.define(self.job(name, trigger=None, **policies))
        return name

    def view(self, job: str = "job") -> JobView:
        """Read a job that is there."""
        view = self.store.job(job)
        assert view is not None
        return view

    def planned(self, job: str = "job") -> JobState:
        """Read what planning needs of a job that fires."""
        state = self.firing(job)
        assert state is not None
        return state

    def firing(self, job: str = "job") -> JobState | None:
        """Read what planning needs of a job; ``None``: it does not fire."""
        return state_of(self.store, job)

    def ahead(self, time: datetime, store: Store | None = None) -> list[JobState]:
        """Read the jobs that come due by ``time``."""
        at = store or self.store
        return list(at.look(ahead=max(time - at.now(), timedelta(0))).jobs)

    # --- firing -----------------------------------------------------------------------------------------------------

    def plan(
        self,
        *times: datetime,
        job: str = "job",
        verdicts: Sequence[VerdictRange] = (),
        watermark: datetime | None = None,
        delay: timedelta = timedelta(0),
        expires_in: timedelta | None = None,
        cancel_previous: bool = False,
        next_due: datetime | None = None,
    ) -> Plan:
        """Make a plan by hand with an occurrence for each of ``times``, on the job's present state in the store."""
        state = self.planned(job)
        moved_to = watermark or max([*times, *(verdict.last for verdict in verdicts)])
        return Plan(
            job_id=state.id,
            job=job,
            revision=state.revision,
            watermark_seen=state.watermark,
            active_seen=state.active,
            occurrences=tuple(
                PlannedOccurrence(time, time + delay, None if expires_in is None else time + delay + expires_in)
                for time in times
            ),
            verdicts=tuple(verdicts),
            cancel_previous=cancel_previous,
            watermark=moved_to,
            next_due=next_due or next_nominal(state.eras, moved_to),
            function=state.spec.function,
        )

    def fire(self, *times: datetime, job: str = "job", **more: Any) -> None:
        """Fire a plan by hand, which must win."""
        assert carry_out(self.store, [self.plan(*times, job=job, **more)]) == [True]

    def round(self, store: Store | None = None) -> list[bool]:
        """Do what a node does: look, plan, fire."""
        store = store or self.store
        view = store.look()
        return carry_out(store, [plan(job, view.now) for job in view.jobs])

    # --- sessions and claims ----------------------------------------------------------------------------------------

    def session(
        self,
        id: str = "s1",  # noqa: A002 - the field's own word
        *,
        release: str = "r1",
        is_node: bool = True,
        lease: timedelta = LEASE,
        store: Store | None = None,
    ) -> str:
        """Open a session and return its id."""
        (store or self.store).open_session(a_session(id, release=release, is_node=is_node), lease=lease)
        return id

    def claim(
        self,
        session: str = "s1",
        limit: int = 100,
        *,
        functions: Collection[str] | None = None,
        lease: timedelta = LEASE,
        store: Store | None = None,
    ) -> list[Claim]:
        """Claim due occurrences, by default of all functions that the test defined."""
        wanted = self._functions if functions is None else functions
        return take(store or self.store, session, limit, wanted, lease=lease)

    def take(self, session: str = "s1", **more: Any) -> Claim:
        """Claim the only occurrence that can be claimed."""
        claims = self.claim(session, **more)
        assert len(claims) == 1
        return claims[0]

    def acquire(self, session: str, job: str, **wanted: Any) -> Claim | None:
        """Acquire an occurrence by its nominal time or its key; ``None``: it is lost."""
        return win_named(self.store, session, job, **wanted)

    def finish(
        self,
        claim: Claim,
        state: State = State.SUCCEEDED,
        *,
        reason: str | None = None,
        result: str | None = None,
        error: RunError | None = None,
        retry_in: timedelta | None = None,
        waiting: bool = False,
        store: Store | None = None,
    ) -> Settled:
        """Finish a claim."""
        outcome = an_end(
            id=claim.id,
            token=claim.token,
            state=state,
            reason=reason,
            result=result,
            error=error,
            retry_in=retry_in,
            waiting=waiting,
        )
        return settle(store or self.store, [outcome])[0]

    def lease_out(self) -> None:
        """Let every lease of the usual length run out."""
        self.clock.advance(LEASE + SECOND)

    def abandoned(self, session: str = "s1") -> Claim:
        """Open a session, let it claim the only occurrence, and let its lease run out."""
        self.session(session)
        claim = self.take(session)
        self.lease_out()
        return claim

    def done(
        self, key: str | None = None, job: str = "queue", session: str = "s1", *, lease: timedelta = LEASE
    ) -> Occurrence:
        """Enqueue an occurrence and see it succeed."""
        made = self.enqueue(key, job=job)
        claim = next(one for one in self.claim(session, lease=lease) if one.id == made.id)
        assert self.finish(claim).accepted
        return self.look(made.id)

    # --- occurrences ------------------------------------------------------------------------------------------------

    def enqueue(self, key: str | None = None, job: str = "queue", **more: Any) -> Enqueued:
        """Enqueue an item."""
        return self.store.enqueue([Item(job=job, key=key, **more)])[0]

    def fill(self, count: int, job: str = "queue", **more: Any) -> list[int]:
        """Enqueue that many items; return their ids."""
        return [made.id for made in self.store.enqueue([Item(job=job, **more) for _ in range(count)])]

    def look(self, occurrence: int | Claim | Enqueued) -> Occurrence:
        """Read an occurrence that is there."""
        found = self.store.occurrence(occurrence if isinstance(occurrence, int) else occurrence.id)
        assert found is not None
        return found

    def runs(self, occurrence: int | Claim | Enqueued) -> list[RunView]:
        """Read the attempts of an occurrence."""
        return self.store.runs(occurrence if isinstance(occurrence, int) else occurrence.id)

    def all(self, **where: Any) -> list[Occurrence]:
        """Read occurrences, oldest first."""
        return self.store.occurrences(OccurrenceFilter(**where), limit=10_000, newest_first=False)

    def nominal(self, job: str = "job") -> list[datetime | None]:
        """Return the nominal times of all occurrences of a job, oldest occurrence first."""
        return [one.scheduled_for for one in self.all(job=job)]

    def snapshot(self) -> list[Any]:
        """Return everything that reads show, to see whether a verb wrote anything."""
        store = self.store
        jobs = store.jobs(retired=True, limit=1000)
        occurrences = self.all()
        return [
            jobs,
            [(store.history(job.spec.name), store.ranges(job.spec.name)) for job in jobs],
            occurrences,
            [(store.runs(occurrence.id), store.logs(occurrence.id)) for occurrence in occurrences],
            [session for session in store.sessions(ended=True) if session.id != PLANNER],
            store.locks(),
            store.trail(limit=1000),
        ]

    # --- threads ----------------------------------------------------------------------------------------------------

    def race(self, act: Callable[[Store, int], Answer], threads: int = THREADS) -> list[Answer]:
        """Let that many threads, each with its own handle, ``act`` at the same instant; return their results.

        ``act`` gets the handle and the number of the thread. An exception in a thread is raised here.
        """
        while len(self._racers) < threads:
            self._racers.append(self.sibling())
        return race(self._racers[:threads], act)


def race(handles: Sequence[Store], act: Callable[[Store, int], Answer]) -> list[Answer]:
    """Let a thread for each handle ``act`` at the same instant; return their results."""
    barrier = threading.Barrier(len(handles))
    answers: dict[int, Answer] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            answers[number] = act(handles[number], number)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(handles))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a racing thread hangs"
    if errors:
        raise errors[0]
    return [answers[number] for number in range(len(handles))]


def a_session(id: str, *, release: str = "r1", is_node: bool = True) -> SessionSpec:  # noqa: A002 - the field's own word
    """Return the description of a node, or of a process that is no node."""
    return SessionSpec(
        id=id,
        node=f"node of {id}",
        host="host",
        pid=4711,
        pid_started=99,
        release=release,
        concurrency=8 if is_node else 0,
        version="1.0",
        functions=3,
        tzdata="2026a (package)",
        zones={"Europe/Paris": "0123456789ab"},
    )


HOSTILE = (
    "'",
    '"',
    "`",
    "\\",
    "'; DROP TABLE cronsensus_jobs; --",
    "{}",
    "{job}",
    "}{",
    "*",
    "?",
    "%",
    "_",
    "[a-z]",
    ":",
    "::",
    "/",
    "../..",
    "$1",
    "%s",
    "<img onerror=alert(1)>",
    "null",
    "0",
    "a",
    "A",
    "ß",
    "ss",
    "\u00e9",  # é, one code point
    "e\u0301",  # é, e and a combining accent
    "名前",
    "🕰️🧨",
)
"""Texts that are ordinary names to a careful store, each different from all others."""

HOSTILE_KEYS = (
    *HOSTILE,
    " ",
    " a",
    "a ",
    "a\n",
    "\n",
    "\t",
    "a\r\nb",
    "\x1b[2J",
    "\u202eright to left",
    "\u200b",
    "ﬀ",
    "ff",
)
"""Keys may be any text; these are all different, too."""


def state_of(store: Store, job: str = "job") -> JobState | None:
    """Read what planning needs of a job; ``None``: it does not fire, because it is paused, retired, or not there."""
    return next((one for one in store.look(limit=1000, ahead=FAR_AHEAD).jobs if one.spec.name == job), None)
