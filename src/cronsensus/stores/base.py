"""The store's public verbs: the interface between decisions and the database that holds the state.

Verbs are state transitions, not create-read-update-delete. Each is one atomic step: one transaction, one conditional
statement, or one script. Losing a race is a return value; losing a lease is an exception.

Time is the store's: the server's clock where there is a server, the host's where the store is a file. A ``Store``
made with a ``clock`` uses that clock instead; tests and simulations control time with it. Callers never pass a time
to a verb. Leases and due times are read *inside* the step, after any wait for a lock.

A ``Store`` object belongs to one namespace. Its verbs may be called from any thread. ``cronsensus.testing.conformance``
checks everything that is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar

from cronsensus.errors import InvalidOption, StoreError, StoreFull
from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.batch import Children
from cronsensus.model.ends import Final
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobHistory, JobSpec, JobView, check_unique_names
from cronsensus.model.ledger import Counts, Identity, LedgerRange, Loss, Prune, TrailEntry
from cronsensus.model.occurrence import (
    Claim,
    Enqueued,
    Item,
    LogLine,
    Note,
    Occurrence,
    OccurrenceFilter,
    RunView,
    Takeover,
    check_forgettable,
    check_key,
)
from cronsensus.model.parking import Sleeper
from cronsensus.model.rewind import Rewind
from cronsensus.model.session import LockGrant, LockView, Renewal, SessionSpec, SessionView, check_lease, check_lock
from cronsensus.model.states import State, require_transition
from cronsensus.model.step import Done, Step
from cronsensus.payload.codec import write_payload
from cronsensus.stores.backend import Backend
from cronsensus.stores.clock_watch import STORE_ACTOR
from cronsensus.stores.transacting import RunTransaction
from cronsensus.stores.values import NO_DELAY, DefineResult, Partition, Pruned, View, check_ahead
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.instants import as_utc

P = ParamSpec("P")
Answer = TypeVar("Answer")
Span: TypeAlias = Callable[[str], AbstractContextManager[object]]


class _Spans:
    """State that a handle shares with its siblings."""

    span: Span | None = None


class Store(Backend):
    """Keeps jobs, occurrences, sessions, locks and the ledger.

    A public verb checks its arguments, returns at once if there is nothing to do, opens its tracing span, and calls the
    back end's method: the same name with an underscore. The contract of both stands here.

    """

    _spans: _Spans

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make a handle without a tracing span."""
        made = super().__new__(cls)
        made._spans = _Spans()
        return made

    @property
    def span(self) -> Span | None:
        """The factory of tracing spans, called with the name of each verb; it returns a context manager. See ADR 27.

        A handle and all of its siblings share it: setting it on any of them sets it for all.
        """
        return self._spans.span

    @span.setter
    def span(self, span: Span | None) -> None:
        self._spans.span = span

    def _within(self, verb: str, do: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            # Read once: another thread may remove it meanwhile.
            if (span := self._spans.span) is None:
                return do(*args, **kwargs)
            with span(verb):
                return do(*args, **kwargs)
        except StoreError as error:
            error.came_from = self._spans
            raise

    @contextmanager
    def _within_span(self, verb: str) -> Iterator[None]:
        """Enter a span around an async verb."""
        try:
            with nullcontext() if (span := self._spans.span) is None else span(verb):
                yield
        except StoreError as error:
            error.came_from = self._spans
            raise

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return a sentence for each row that this handle skipped because it cannot be read; each is logged once.

        An unreadable row concerns a single job, occurrence, session or lock. Verbs that work on many rows skip it and
        go on; reading that row alone raises ``StoreCorrupt``.
        """
        return ()

    # --- set-up ----------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Bring the schema up to this code's version and return the names of the migrations applied.

        Atomic: each migration under a lock, so several nodes may start at once.
        Idempotent: an up-to-date store answers ``[]``.

        Raises:
            SchemaMismatch: the store's schema is newer than this code.
        """
        return self._within("migrate", self._migrate)

    def check(self) -> None:
        """Raise unless the store can be used as it is.

        Raises:
            SchemaMismatch: older (run ``cronsensus db upgrade``) or newer than this code.
            StoreUnavailable, StoreCorrupt, StoreReadOnly: as their names tell.
        """
        self._within("check", self._check)

    def close(self) -> None:
        """Close connections and wake-up channels; end a ``wait`` in another thread. Idempotent."""
        self._within("close", self._close)

    def sibling(self) -> Self:
        """Return a handle on the same store with connections of its own.

        So a busy connection pool never delays a lease renewal.
        """
        made = self._within("sibling", self._sibling)
        made._spans = self._spans  # noqa: SLF001 - of its own class
        return made

    def now(self) -> datetime:
        """Return the store's clock."""
        return self._within("now", self._now)

    # --- jobs ------------------------------------------------------------------------------------------------------

    def define_jobs(
        self,
        specs: Sequence[JobSpec],
        *,
        release: str,
        complete: bool = False,
        by: str = "",
        retire_after: timedelta = NO_DELAY,
    ) -> DefineResult:
        """Define jobs by name, as the application's ``release`` declares them.

        A new job's watermark is the store's now, so only later nominal times fire. If the trigger has only times in the
        past (a one-off ``at``), the watermark lies one microsecond before the last of them, which therefore still runs.
        The job's first era begins at that watermark. A changed definition is a new revision; its era begins at the
        store's now (never before the watermark), and the watermark stays. The next due time is the first nominal time
        after the watermark under the current eras. A retired job that is defined again comes back: its watermark moves
        to now, so the retired time is not caught up.

        A ``release`` is known from its first ``define_jobs`` or ``open_session``. While a session of a release that was
        first known *later* is alive, definitions of the earlier release that differ are left alone (``superseded``),
        so a node of the old version that restarts during a rolling deploy changes nothing; once no such session
        lives, they win again (a rollback). Jobs with ``source="runtime"`` follow no release: the last writer wins.

        With ``complete=True`` the specs are all that the release declares: other jobs with ``source="code"`` are
        retired. They are ``kept`` while a live session of another release may still declare them. Pending occurrences
        of a job that is retired like this stay for ``retire_after``: nodes that have the function can claim them, and a
        job that is defined again finds them. After that time ``prune`` cancels them.

        Atomic: all or nothing, because a release is a unit. The slow part is computed first; then other writers wait
        for some 50 µs for each job that is new, changed or gone.
        Idempotent: equal definitions write nothing. Exception: the next due time is written anew (``moved``) where the
        trigger depends on a time zone and this machine's zone rules give another instant. If the watermark moves
        meanwhile, whoever moves it computes the next due time.

        Raises:
            DuplicateJob: two of ``specs`` have the same name.
            InvalidPayload: arguments that are not JSON.
        """
        check_unique_names(specs)
        return self._within(
            "define_jobs",
            self._define_jobs,
            specs,
            release=release,
            complete=complete,
            by=by,
            retire_after=retire_after,
        )

    def retire(self, job: str, *, by: str, why: str) -> bool:
        """Stop a job for good, keeping its watermark and its ledger; ``False`` if there is nothing to stop.

        Its pending occurrences become cancelled(retired), also those that an earlier retirement kept
        (``retire_after``). Running occurrences go on. From now on its era has no trigger; if the clock was set back to
        before its last era began, from that beginning. Undecided nominal times up to then become one range
        missed(retired), and the watermark moves to the last of them.

        The trail gets an entry even if there was nothing to stop: for a job that a release dropped, it records that
        this was intended.
        """
        return self._within("retire", self._retire, job, by=by, why=why)

    # --- the scheduling round --------------------------------------------------------------------------------------

    def look(self, *, limit: int = 100, partition: Partition | None = None, ahead: timedelta = NO_DELAY) -> View:
        """Read which jobs are due, which occurrences wait, and which sessions hold runs; write nothing, block nobody.

        ``jobs`` includes jobs that come due within ``ahead`` (not negative), the earliest first, so that a node can
        plan them before their due time. The answer may be outdated at once: ``step`` checks again whether a plan holds.

        With a ``partition``, ``jobs`` and ``more`` are of that part of the jobs alone, so that nodes that look at
        different partitions do not plan the same job. Each job is in exactly one of ``of`` partitions, always the same.

        If no job is due, it is a single statement, so polling is cheap.

        Raises:
            InvalidOption: ``ahead`` is negative.
        """
        if ahead < NO_DELAY:
            raise InvalidOption(f"ahead={ahead!r}: a look goes forward; pass a timedelta that is not negative")
        return self._within("look", self._look, limit, partition, ahead)

    def step(self, session: str, step: Step) -> Done:
        """Write the report of a node: notes, results and released claims; then plans; then claim work.

        - Notes, ends and released claims are accepted by token and session, even if ``session`` is no longer alive:
          each only if its occurrence is still running under its token. A refusal does not affect the others.
        - Notes are progress and log lines of running attempts.
        - Ends decide the next state of occurrences (``model.ends``). ``Final`` is written with reason, result and
          error. ``Again`` puts the occurrence back, due at the store's now + ``after``, and clears its fingerprint. If
          it ``failed``, its failures grow by one; else the attempt is not counted, and its ``note`` is kept for the
          next attempt. ``Parked`` puts it back without a due time, until ``wake``, with all counts reset. An occurrence
          that was asked to stop is cancelled instead of put back.
          Each accepted end leaves a run record with its token, unless ``recorded_as`` excludes it.
          Reasons, errors and log lines may be any text: characters that a store cannot keep (NUL, lone surrogates) are
          escaped, so that no message costs a result. Secrets in them are masked (``codec.clean``), as in all texts of
          operators.
        - A released claim is pending again, due as before. ``cut=None``: it had not started. The attempt is not
          counted, so the next one has its number again. ``cut="stopped"``: it had started, and its node stopped it in
          order. The attempt counts, because its number belongs to a run that started; it is no crash.
          ``cut="crashed"``: it had started, and the lease of its node ended. It is a crash, like a takeover. With
          ``on_crash="fail"``, or if this crash reaches ``max_crashes``, it becomes failed(crashed) instead, as in
          ``close_session`` and ``reclaim``.
        - A plan is carried out if the job's watermark, revision and number of active occurrences are still what the
          plan saw, its ``not_before`` has come, and the job is neither paused nor retired. Otherwise nothing of it is
          written. Its occurrences and verdicts are inserted, watermark and next due time are moved, and if the plan
          asks for it, earlier occurrences are asked to cancel (pending ones become cancelled(cancel_previous) at once).
          An occurrence whose key exists already, because it was backfilled ahead of its time, is left as it is. Plans
          are compared with the state after the ends of this step: an occurrence that those ended is no longer active.
        - Up to ``want.limit`` due pending occurrences of ``want.functions`` are claimed: highest priority first, then
          by class (the schedule and people, then what was enqueued, then items and backfill: ``model.claim_order``),
          then earliest due, then oldest; with ``want.oldest`` the class is ignored. Occurrences that this step's plans
          made, that its ends put back, or that its ends freed a slot for can be claimed, too. An occurrence past its
          ``expires_at`` that never started becomes missed(late) instead.
          Limits: per job ``concurrency`` over all live sessions (a dead session's runs do not count); for occurrences
          subject to overlap (all policies but ``allow``), one at a time and in order of creation: an occurrence waits
          while an earlier one of its job is active. A claimed occurrence is running, attempt + 1, under a new token. A
          claim that takes any sets the session's lease to now + ``want.lease``, also when that is sooner than before:
          an idle node holds a long lease that costs nothing, a working one a short lease.
        - Up to ``want.reserve`` more are claimed to wait at the caller for a free slot (``Claim.reserved``). Only these
          can be reserved: occurrences that are retried after a crash, whose job has neither ``concurrency`` nor turns,
          and without an attempt that was cut off. The claim order is kept. If there are fewer, the caller gets only its
          share, 1 of ``want.nodes``. A reserved attempt counts as started only when a note (``Note.ran``) or the
          result reports it; if its session ends before that, it is no crash. An occurrence is reserved only once, so a
          job that ends the process of its node is counted from the second time on.
        - ``want.ahead`` moves the limit of "due" that much past the store's now, for a plan's ``not_before`` and an
          occurrence's ``due_at``. So the commit lies before the due time, not after it. Such an attempt counts as
          started when it is due; ``claimed_at`` is when it was claimed, so that the caller knows how long to wait.
        - If there are plans or a ``want``, and ``session`` is not alive, ``Done.lost`` is set: the results stand, no
          plan was carried out, nothing was claimed. This is judged in the same step, so nothing is ever claimed for a
          dead session.

        An empty step returns at once, without a statement.

        Atomic: plans and claims in one step, and never without the results that come before them. An occurrence is
        inserted if and only if the watermark moves; no two callers claim the same one. A claim never waits for rows
        that another node holds.
        Idempotent: ends and released claims by their tokens (a repeated end gets its first answer, and nothing is
        written), plans by their watermark. Claims are not: they stand although the answer was lost, and ``renew`` lists
        them. So a step whose answer was lost can be sent again; log lines of its notes may then be written twice.
        Not prevented: a wrong plan, which is carried out as it is (planning is pure and tested elsewhere); a caller
        that starts a run before its due time, which the store cannot see; plans or claims that fail each time (a row
        After an error any part of the step may have been written. So the caller sends the results alone, at once, and
        then the rest in halves. Results sent alone are not refused for a plan or, on Redis, for lack of memory.

        Raises:
            InvalidTransition: an end has a state in which no run can end (``RUNNING``, ``MISSED``); nothing was
                done.
            InvalidOption: ``want.ahead`` is negative or more than ``MOST_AHEAD``; nothing was done.
            StoreFull: there is no space for notes, plans or claims; on Redis the results stand.
        """
        for end in step.ends:
            if isinstance(end.then, Final):
                require_transition(State.RUNNING, end.then.state, what=f"occurrence {end.id}")
        if step.want is not None:
            check_ahead(step.want.ahead)
        return self._within("step", self._step, session, step) if step else Done()

    def acquire(
        self, session: str, asks: Sequence[Ask | AskNamed], *, lease: timedelta
    ) -> list[tuple[Claim | NotWon, ...]]:
        """Claim occurrences now, for hosts where another program keeps time; answers are in the order of ``asks``.

        An ``AskNamed`` wants a single occurrence, by its nominal time or its key. The occurrence is created if it does
        not exist, and claimed if it is pending, regardless of queue and ``concurrency``; it becomes due now if it was
        due later. An occurrence with a key that ended longer ago than its job's ``keep`` counts as pruned: it is
        deleted and created anew in the same step. The fingerprint is stored with the occurrence, and the claim carries
        the stored value: that of this ask, unless an earlier attempt started with another and was cut off. An outcome
        ``PENDING`` clears it. A time at or below the pruned horizon is ``PRUNED``; a new time of a paused job is
        ``LOST``.

        An ``Ask`` wants nominal times of a job within its ``concurrency``, over all live sessions: the times of one ask
        need one free run together, and each counts while it runs. A time that is not run gets its verdict here:
        skipped(overlap) if the job is full, skipped(paused) if it is paused, missed(late) if the caller asks for that.
        A waiting time is claimed if it is due and ``concurrency`` allows it; else it goes on waiting, without a
        verdict. A claim released before it started is missed(late) once the job's ``grace`` since its nominal time is
        over. A time that lies more than ``MOST_EARLY`` (1 s) ahead of the store's now is ``EARLY`` and leaves no trace:
        a caller whose clock is fast would run it too soon for all.

        A nominal time in a period for which the job has or had a trigger is ``LOST``: plans decide those times, and
        nodes run them by the job's policies. A time above the watermark, won or given a verdict, moves the watermark of
        a job without a trigger, unless an earlier trigger left undecided times before it. Asks do not hinder each
        other; of two asks for the same occurrence the first wins it.

        Atomic: the whole call. A job is locked while its runs are counted and its keys are read, so two callers never
        both get the last place, or the same key; they may name jobs and keys in any order. The lease is set if
        something is won.
        Idempotent: verdicts; repeated, the times are ``LOST``. Claims stand although the answer was lost, and ``renew``
        lists them.
        Not prevented: a second run of a key once the job's ``keep`` is over, or after ``forget``.

        Raises:
            LeaseLost: the session is not alive; nothing was done.
            InvalidOption: a time lies more than ``MOST_IN_FUTURE`` (366 days) after the store's now, or has no zone; a
                key is not valid (``check_key``); an ``AskNamed`` has neither time nor key, or both. Nothing was
                done.
        """
        wanted = [ask.checked() for ask in asks]
        return self._within("acquire", self._acquire, session, wanted, lease) if wanted else []

    @contextmanager
    def transaction(self, claim: Claim) -> Iterator[RunTransaction]:
        """Open a transaction in which a running attempt writes its effects, and then its success (G5).

        It commits if the block is left without an exception after ``complete``. Every later outcome under the same
        token is answered with "succeeded". In every other case it is rolled back.

        Atomic: effects, run record and final state commit together, only if the run is current at that moment: the
        token is checked when the transaction begins, and again, under a lock, by ``complete``.
        Not prevented: effects outside of this database; a commit whose answer is lost raises although it took place
        (sending a step with its outcome then shows which). Until ``complete`` the run may still be taken over; its
        effects are then rolled back.

        Raises:
            UnsupportedTransaction: the store has no transactions (``capabilities.transactional_finish`` says so).
            LeaseLost: the run is not current.
        """
        with ExitStack() as open_now:
            if (span := self.span) is not None:
                open_now.enter_context(span("transaction"))
            yield open_now.enter_context(self._transaction(claim))

    def complete_in(self, connection: Any, claim: Claim, result: str | None = None, notes: Sequence[Note] = ()) -> None:
        """Write an attempt's success into the caller's own transaction, on the store's database (G5).

        The caller's commit decides; after a rollback the attempt is running as before.

        Atomic: as ``transaction``, from here to the caller's commit.
        Not prevented: a caller that commits in spite of ``LeaseLost``.

        Raises:
            UnsupportedTransaction: the store has no transactions, cannot use such a connection, or it leads to another
                database.
            LeaseLost: the run is not current; nothing was written.
        """
        self._within("complete_in", self._complete_in, connection, claim, result, notes)

    def enqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences by key, like ``enqueue``, in the caller's own transaction on the store's database.

        Nobody sees them before the caller's commit, which notifies nodes where the database can; after a rollback they
        never existed. Due times count from this call, not from the commit. It locks no job, so schedules and other
        calls go on while the caller's transaction is open.

        Atomic: with the caller's transaction.
        Idempotent: by key. If another open transaction has the key, this call waits a few seconds for its end.
        Not prevented: a run of a job that is retired between this call and the commit; ids that become visible in
        another order than they were given.

        Raises:
            UnsupportedTransaction: the store has no transactions, cannot use such a connection, it commits each
                statement by itself, or it leads to another database.
            UnknownJob, InvalidOption, InvalidPayload: as ``enqueue``.
            StoreBusy: another open transaction has a key for too long, or the database rolled this one back in favour
                of another. The caller has to roll back.
        """
        self._check_keys(items)
        return self._within("enqueue_in", self._enqueue_in, connection, items) if items else []

    async def aenqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:
        """Do what ``enqueue_in`` does, on an async connection.

        Raises:
            UnsupportedTransaction, UnknownJob, InvalidOption, InvalidPayload, StoreBusy: as ``enqueue_in``.
        """
        self._check_keys(items)
        if not items:
            return []
        with self._within_span("aenqueue_in"):
            return await self._aenqueue_in(connection, items)

    def _check_keys(self, items: Sequence[Item]) -> None:
        for item in items:
            if item.key is not None:
                check_key(item.key, of_item=item.parent is not None)

    # --- sessions --------------------------------------------------------------------------------------------------

    def open_session(self, session: SessionSpec, *, lease: timedelta) -> datetime:
        """Begin a session whose lease ends at the store's now + ``lease``; return the store's now.

        A session that is not a node belongs to no release, even if its spec names one: no definition waits for it.

        Idempotent: repeated while the session lives, it only sets the lease.

        Raises:
            LeaseLost: the session with this id has ended.
        """
        return self._within("open_session", self._open_session, session, lease)

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        """Renew the lease if it has not run out; a dead session is never revived.

        While the session holds a running occurrence its lease is set to now + ``lease``, else to now + ``idle_lease``
        (default: ``lease``); the answer contains which. The store decides this in the same step, because the caller
        cannot know: a renewal that timed out may be carried out long after the caller claimed work.

        The answer lists the runs that the session holds, with their tokens. A store that lost its last moment (a
        failover, a restored backup) may know other runs than the caller, who finds the difference by this list.
        """
        return self._within("renew", self._renew, session, lease, lease if idle_lease is None else idle_lease)

    def close_session(self, session: str) -> list[Takeover]:
        """End a session in order. Its remaining runs go back as in ``reclaim``, but not as crashes.

        With ``on_crash="fail"`` a run that was cut off is failed(crashed) here too: it may have done part of its work.
        """
        return self._within("close_session", self._close_session, session)

    def reclaim(self, presumed_dead: Collection[str] = ()) -> list[Takeover]:
        """End sessions whose lease ran out, and those in ``presumed_dead``; return what became of their runs.

        With ``on_crash="retry"`` a run goes back to pending, and its crashes grow by one, until they reach
        ``max_crashes``; otherwise it is failed(crashed). Its run record has the end "crashed". Its locks are free.

        Evidence in ``presumed_dead`` shortens a takeover; wrong evidence costs a run its result, never correctness.
        It waits for no transaction of such a session: a session that is being written to may be left for the next call.
        Otherwise a node that stalls in the middle of a verb would stall its peers too. Atomic: per session.
        """
        return self._within("reclaim", self._reclaim, presumed_dead)

    def drain(self, session: str, *, by: str, why: str) -> bool:
        """Ask a node to finish what it runs and take nothing new; ``False`` when it is not alive."""
        return self._within("drain", self._drain, session, by=by, why=why)

    # --- locks -----------------------------------------------------------------------------------------------------

    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        """Take a place of the named lock for ``holder`` if a place is free or overdue; ``None``: all are held.

        A lock has ``limit`` places, counted from 0; each has one holder. Where callers pass different limits, the
        smallest of the caller's and all holders' limits counts: in a deploy that lowers a limit to 1, a holder that
        asked for exclusive access never shares the lock.

        A lock of a ``session`` also ends with that session. The token grows with every grant of the name, also after
        an expiry. Not re-entrant: the holder of the last place gets ``None`` too.

        Atomic: never the same place to two callers.

        Raises:
            LeaseLost: ``session`` is not alive.
            InvalidOption: ``name``, ``holder`` or ``ttl`` is not valid (``check_lock``).
        """
        check_lock(name, holder, ttl)
        return self._within("lock", self._lock, name, holder, ttl=ttl, session=session, limit=limit)

    def extend(self, grant: LockGrant, *, ttl: timedelta) -> bool:
        """Extend a lock that is held under this token and not overdue; ``False``: it is lost."""
        check_lease(ttl)
        return self._within("extend", self._extend, grant, ttl)

    def unlock(self, grant: LockGrant) -> bool:
        """Free a lock if it is still held under this token; ``False``: it was not, nothing changed.

        The first waiter in its queue (``wait_queues``) is notified.
        """
        return self._within("unlock", self._unlock, grant)

    def break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]:
        """Free all places of a lock, whichever sessions hold them; return what was held. The trail records it.

        A former holder finds ``extend`` and ``unlock`` refused, and the next holder has a higher token.

        Atomic: all places in one step, with the entry in the trail.
        Not prevented: a former holder that works on until its next renewal; its old token gives it away.
        """
        return self._within("break_lock", self._break_lock, name, by=by, why=why)

    def wait_queues(self) -> WaitQueues:
        """Return the wait queues of locks, which have a connection of their own; the caller closes them.

        If the store has no notifications, the queues receive nothing.
        """
        return self._within("wait_queues", self._wait_queues)

    def wake_next(self, name: str) -> None:
        """Notify the next in a lock's queue that the lock may be free. Best effort; never raises."""
        self._within("wake_next", self._wake_next, name)

    # --- people and programs ---------------------------------------------------------------------------------------

    def enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences by key, in bulk; an existing key returns the existing occurrence, in whatever state.

        Without arguments an item has the job's own. ``expires_in`` counts from the due time. Other handles are notified
        as by ``notify``.

        Atomic: all items of a call in one step.
        Idempotent: by key.

        Raises:
            UnknownJob: no such job, or retired.
            InvalidOption: a key is not valid (``check_key``); or only other programs run the job
                (``JobSpec.runs_elsewhere``), so nobody else may create runs of it. ``trigger``, ``retry`` and
                ``backfill`` refuse such a job, too.
            InvalidPayload: arguments that are not JSON.
        """
        self._check_keys(items)
        return self._within("enqueue", self._enqueue, items) if items else []

    def wake(self, occurrences: Collection[int], *, listed: int | None = None) -> int:
        """Make parked occurrences due; return how many.

        They are due as of their creation, and not before their nominal time. A batch is then claimed first, whatever
        its class. Other handles are notified as by ``notify``. Occurrences that are not parked are left alone.

        With ``listed`` the call is for a single batch whose list was made outside of a run: all of its items, so many,
        are enqueued. The number is recorded and the batch made due, but only if the batch is pending, not parked, and
        its list not complete; else the answer is 0.

        Atomic: each. Idempotent.
        Not prevented: an occurrence that is being claimed or parked in this moment stays parked; whoever parks it
        checks again.

        Raises:
            InvalidOption: ``listed`` is given with more or fewer than one occurrence.
        """
        numbers = tuple(dict.fromkeys(occurrences))
        if listed is not None and len(numbers) != 1:
            raise InvalidOption(f"listed={listed} is of one batch, whose list is complete; pass its id, and no other")
        return self._within("wake", self._wake, numbers, listed) if numbers else 0

    def trigger(
        self,
        job: str,
        *,
        by: str,
        why: str = "",
        arguments: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
        key: str | None = None,
        downstream: Sequence[str] = (),
    ) -> Enqueued:
        """Run a job now, beside its schedule: a new occurrence with origin manual; watermark and next due time stay.

        Atomic: with all of ``downstream``.
        Idempotent: by ``key``. Without a key, a second call after a lost answer may create a second run.

        Args:
            job: its name.
            by: the operator, for the trail.
            why: the reason, for the trail.
            arguments: JSON values by position and by name, in place of the job's own.
            key: an occurrence that has this key is returned, with ``created=False``, and nothing is created.
            downstream: jobs that come after it, which get a run each, too. All of these runs have the same nominal
                time, the store's now, by which the dependents' gates find their upstreams.

        Raises:
            UnknownJob: no such job, or retired; so do ``pause``, ``resume``, ``retry`` and ``backfill``.
            InvalidOption: a key that ``check_key`` does not allow.
            InvalidPayload: the arguments are not JSON, or too large.
        """
        payload = None if arguments is None else write_payload(*arguments, what=f"arguments of {job!r}")
        if key is not None:
            check_key(key)
        return self._within("trigger", self._trigger, job, payload, key, tuple(downstream), by=by, why=why)

    def pause(self, job: str, *, by: str, why: str) -> bool:
        """Stop firing a job; ``False`` if it is paused already. Nominal times that pass are skipped(paused)."""
        return self._within("pause", self._pause, job, by=by, why=why)

    def resume(self, job: str, *, by: str, why: str = "") -> bool:
        """End a pause; ``False`` if there is none. The next round writes the paused stretch into the ledger."""
        return self._within("resume", self._resume, job, by=by, why=why)

    def rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        """Take a job's schedule back; ``False``, and nothing is written, if it has changed since ``rewind`` was made.

        Atomic: watermark, next due time, eras, ranges, pauses, unstarted occurrences, and trail. Of two rewinds at the
        same instant, or of a rewind and a plan, only one is carried out. Started runs stay: a nominal time that has a
        run gets no second one.

        Raises:
            UnknownJob: no such job, or retired.
            InvalidOption: the watermark would move forward.
        """
        if rewind.watermark > rewind.watermark_seen or not rewind.eras:
            raise InvalidOption(f"rewind={rewind!r}: a schedule is taken back, to a time that an era has")
        return self._within("rewind", self._rewind, rewind, by=by, why=why)

    def cancel(self, occurrence: int, *, by: str, why: str) -> State:
        """Cancel a pending occurrence at once; ask a running one to stop (its node learns of it by ``renew``).

        A run that was asked to stop does not run again. Where it would go back to pending (a retry, a takeover, a
        release), it becomes cancelled instead, with the reason of the request.

        Raises:
            InvalidTransition: it is final.
            LookupError: there is none.
        """
        return self._within("cancel", self._cancel, occurrence, by=by, why=why)

    def retry(self, occurrence: int, *, by: str, why: str = "", again: bool = False) -> Enqueued:
        """Make a new occurrence of a final one, linked to it and with the same arguments and nominal time.

        The retry of an item of a batch is not an item: it runs alone. An occurrence is retried only once: if it was
        retried before, this returns the newest of its retries with ``created=False``; retry that to go on. The retry is
        claimed in the class of its original.

        Atomic: of two calls at the same instant one creates the run, and both return it.
        Not prevented: a second run once the first retry has been pruned.

        Args:
            occurrence: its number.
            by: the operator, for the trail.
            why: the reason, for the trail.
            again: also if it succeeded.

        Raises:
            InvalidTransition: it is not final; or it succeeded, and ``again`` is not given.
            LookupError: there is none.
        """
        return self._within("retry", self._retry, occurrence, by=by, why=why, again=again)

    def forget(
        self, job: str, key: str, *, by: str, why: str = "", running: bool = False, only: int | None = None
    ) -> State | None:
        """Delete the occurrence with a key, its runs and its logs, so that the key can be used anew.

        Returns the state in which it was; ``None``: there was none. A node that still runs it cannot record a result.

        Args:
            job: its name.
            key: not that of a nominal time.
            by: the operator, for the trail.
            why: the reason, for the trail.
            running: delete it also while it runs.
            only: delete it only if this is its id.

        Raises:
            InvalidTransition: it runs, and ``running`` is not given.
            InvalidOption: the key is that of a nominal time.
        """
        check_forgettable(key)
        return self._within("forget", self._forget, job, key, by=by, why=why, running=running, only=only)

    def backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str = "") -> list[Enqueued]:
        """Create occurrences (origin backfill) for nominal times without an active or succeeded occurrence.

        Idempotent: for a time that has an occurrence, it is returned with ``created=False``.

        Raises:
            OccurrenceTooOld: a time is at or below the pruned horizon; nothing is created.
        """
        times = [as_utc(time, what="times") for time in times]
        return self._within("backfill", self._backfill, job, times, by=by, why=why)

    # --- maintenance -----------------------------------------------------------------------------------------------

    def prune(self, before: datetime | None = None, *, limit: int = 1000, by: str = STORE_ACTOR) -> Pruned:
        """Delete final occurrences, with runs and logs, and verdict ranges that ended before ``before``; count them.

        ``None``: before the store's now minus each job's own ``keep``. At most ``limit`` per call. Ended sessions
        older than a day are deleted, too. The horizon of a job rises to the latest nominal time deleted, in the same
        step, so that a pruned occurrence can never run again. Kept are occurrences above the watermark, because only
        their key keeps a plan from creating them again, and items of a batch that is not over, or not for as long.

        By ``keep``, occurrences that an open one needs are kept. While an occurrence is parked for its upstreams, all
        occurrences with a nominal time stay that existed when it was created. A batch stays with its items while its
        retry is open, and while the retry of that retry exists. By ``before`` these are deleted, too, and
        ``Pruned.needed`` counts them: then the parked occurrence is skipped, or the retry fails, as
        ``upstream unknown: pruned``.

        Eras and pauses of a job are deleted when they have been over for its ``keep`` (``before``), and for
        ``HISTORY_KEPT`` at least, and leave no time undecided; horizon and watermark rise to the end of a deleted era.
        After ``REMEMBERED`` these are deleted: a retired job without any other rows, with its eras and pauses; entries
        of the trail; and a release without live sessions, if a later one has been known for that long. None of these
        are counted.

        With ``before`` the trail first gets an entry (``PRUNE``, under the name ``by``), which explains to the audit
        why an item or a batch is missing.
        """
        if before is not None:
            before = as_utc(before, what="before")
        return self._within("prune", self._prune_noted, before, limit, by)

    def _prune_noted(self, before: datetime | None, limit: int, by: str) -> Pruned:
        if before is not None:
            # First, so that the trail has an entry even if the prune dies half-way; once, however many calls it takes.
            act, newest = Prune(before), self._trail("", None, 1)
            is_noted = newest and (newest[0].action, newest[0].details) == (act.action, act.details)
            if not is_noted or newest[0].at < before:
                try:
                    self._note_in_trail(act, by)
                except StoreFull:  # deleting rows frees the space
                    pruned = self._prune(before, limit)
                    with suppress(StoreFull):
                        self._note_in_trail(act, by)
                    return pruned
        return self._prune(before, limit)

    def wait(self, timeout: float) -> bool:
        """Block up to ``timeout`` seconds of real time for a notification; ``True`` if one came.

        A notification says that something may have changed. It may be lost or spurious: that costs latency, never
        correctness. One thread of a handle waits at a time.
        """
        return self._within("wait", self._wait, timeout)

    def register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` on the connections of this handle, until they end; ``None``: show none.

        A handle shows the sign while a thread waits on it, and from its first renewal of the session on. Where a store
        supports it (with a lock that the server frees when the connection ends), ``View.absent`` lists sessions whose
        sign no connection shows any more.
        """
        self._within("register_presence", self._register_presence, session)

    def signs(self, sessions: Collection[str]) -> dict[str, bool]:
        """Return which of these sessions show a sign of life (``register_presence``) at this moment.

        ``False``: the session has recorded that it shows a sign, and shows none. Its process is gone, or its
        connections were cut a moment ago, so ask twice. Sessions that never showed a sign are left out. A stopped
        process still shows its sign; so does, for a while, a host that lost its network.
        """
        return self._within("signs", self._signs, sessions) if sessions else {}

    def notify(self) -> None:
        """Wake the threads that wait on other handles of this namespace. Best effort; never raises."""
        self._within("notify", self._notify)

    # --- reads: bounded, keyset paging (``after`` is the last id or name of the page before) -------------------

    def job(self, name: str) -> JobView | None:
        """Return one job, retired or not."""
        return self._within("job", self._job, name)

    def jobs(self, *, after: str = "", limit: int = 100, retired: bool = False) -> list[JobView]:
        """Return jobs by name; the retired ones only if asked for."""
        return self._within("jobs", self._jobs, after, limit, retired=retired)

    def edges(self, *, after: str = "", limit: int = 1000) -> list[JobSpec]:
        """Return the definitions of the living jobs that come after others (``JobSpec.after``), by name."""
        return self._within("edges", self._edges, after, limit)

    def history(self, job: str) -> JobHistory:
        """Return the eras and the paused stretches of a job's life; none if the job does not exist."""
        return self._within("history", self._history, job)

    def occurrence(self, id: int) -> Occurrence | None:  # noqa: A002 - the field's own word
        """Return one occurrence."""
        return self._within("occurrence", self._occurrence, id)

    def occurrences(
        self, where: OccurrenceFilter, *, after: int | None = None, limit: int = 100, newest_first: bool = True
    ) -> list[Occurrence]:
        """Return occurrences by id."""
        return self._within("occurrences", self._occurrences, where, after, limit, newest_first=newest_first)

    def runs(self, *occurrences: int) -> list[RunView]:
        """Return the attempts of up to a few hundred occurrences, in one read if possible (the audit reads millions).

        The attempts of an occurrence stand together, oldest first, with the running one last; an unknown occurrence has
        none.
        """
        return self._within("runs", self._runs, tuple(dict.fromkeys(occurrences))) if occurrences else []

    def logs(self, occurrence: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, int, LogLine]]:
        """Return log lines as (sequence, attempt, line), oldest first."""
        return self._within("logs", self._logs, occurrence, after, limit)

    def ranges(
        self,
        job: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[LedgerRange]:
        """Return the verdict ranges that touch [since, until], by id."""
        return self._within("ranges", self._ranges, job, since=since, until=until, after=after, limit=limit)

    def sessions(self, *, ended: bool = False, limit: int = 200) -> list[SessionView]:
        """Return live and overdue sessions, or the ended ones too; newest first."""
        return self._within("sessions", self._sessions, limit, ended=ended)

    def locks(self, *, name: str | None = None, limit: int = 200) -> list[LockView]:
        """Return held locks by name, or the held places of the lock ``name``."""
        return self._within("locks", self._locks, name, limit)

    def counts(self, *, limit: int = 10_000) -> Counts:
        """Return bounded counts."""
        return self._within("counts", self._counts, limit)

    def pending_of(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return how many occurrences of these jobs, retired or not, are pending; jobs with none are left out.

        A single count for all of them. It is not bounded, but it reads only entries of an index.
        """
        return self._within("pending_of", self._pending_of, jobs) if jobs else {}

    def children(self, batches: Collection[int], *, limit: int = 1) -> dict[int, Children]:
        """Return the state of batches, with their items by state, each counted up to ``limit``; in one trip."""
        numbers = tuple(dict.fromkeys(batches))
        return self._within("children", self._children, numbers, limit) if numbers else {}

    def parked(self, *, after: int = 0, limit: int = 200) -> list[Sleeper]:
        """Return parked occurrences, by id: batches with a complete list, and dependents."""
        return self._within("parked", self._parked, after, limit)

    def last_of(self, jobs: Sequence[str], *, limit: int = 30) -> dict[str, Past]:
        """Return the last ``limit`` occurrences and verdict ranges of each of up to a few dozen jobs, in one read.

        A job that is not there is left out. A batch stands for its items: the batches of a job are looked for among its
        newest few thousand occurrences, and by nominal time.
        """
        return self._within("last_of", self._last_of, tuple(dict.fromkeys(jobs)), limit) if jobs else {}

    def ran_since(self, since: datetime, *, limit: int = 600) -> list[Glance]:
        """Return what is running, and what ended since ``since`` (also without a run), the newest first.

        It reads the newest few thousand occurrences by id: an older occurrence is found only while it runs.
        """
        return self._within("ran_since", self._ran_since, as_utc(since, what="since"), limit)

    def ended_badly(self, since: datetime, *, after: int = 0, limit: int = 1000) -> list[Occurrence]:
        """Return occurrences that failed, were missed or cancelled since a moment of the store's clock, by time and id.

        ``after``: those of exactly ``since`` with an id up to this are left out, for the next page.
        """
        return self._within("ended_badly", self._ended_badly, as_utc(since, what="since"), after, limit)

    def decided(self, *, after: int = 0, limit: int = 1000) -> list[LedgerRange]:
        """Return verdict ranges of all jobs, by id; ``after=-1``: only the last one."""
        return self._within("decided", self._decided, after, limit)

    def trail(self, *, target: str | None = None, after: int | None = None, limit: int = 100) -> list[TrailEntry]:
        """Return the audit trail, newest first.

        If a store's clock was set back, the store records it here (``CLOCK_SET_BACK``) no later than with its next
        write, with the stretch that may have come twice: within it, times do not show the order of events.
        """
        return self._within("trail", self._trail, target, after, limit)

    def identity(self) -> Identity | None:
        """Return the identity of this store; ``None``: it holds nothing yet, or cannot tell.

        It is made once, with the store. A store that was emptied, or another store behind the same address, has another
        identity: so a node notices the change.
        """
        return self._within("identity", self._identity)

    def note_in_trail(self, act: Loss | Prune, *, by: str) -> None:
        """Write into the trail what the store lost or an operator pruned, for the audit and for people."""
        self._within("note_in_trail", self._note_in_trail, act, by)

    def describe(self) -> dict[str, Any]:
        """Return what ``doctor`` prints: location, schema version, relevant settings. No secrets."""
        return self._within("describe", self._describe)


def is_passing_failure(store: Store, error: BaseException) -> bool:
    """Whether this error came from ``store`` (through any of its handles) and a later attempt may succeed."""
    if not isinstance(error, StoreError):
        return False
    return error.retryable and error.came_from is store._spans  # noqa: SLF001 - of its own module
