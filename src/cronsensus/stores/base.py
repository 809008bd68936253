"""The store's verbs: the one seam between decisions and where state lives.

Verbs are transitions, not create-read-update-delete. Each is one atomic step: one transaction, one conditional
statement, or one script. Losing a race is a return value; losing a lease is an exception.

Time is the store's: the server's clock where there is a server, the host's where the store is a file. A ``Store``
made with a ``clock`` uses that instead, which is how tests and simulations decide what time it is; callers never pass
a time to a verb. Leases and due times are read *inside* the step, after any wait for a lock.

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
from cronsensus.model.job import JobHistory, JobSpec, JobView, check_different
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
from cronsensus.stores.clock_watch import BY_ITSELF
from cronsensus.stores.transacting import RunTransaction
from cronsensus.stores.values import NO_DELAY, DefineResult, Partition, Pruned, View, check_ahead
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.instants import as_utc

P = ParamSpec("P")
Answer = TypeVar("Answer")
Span: TypeAlias = Callable[[str], AbstractContextManager[object]]


class _Spans:
    """What a handle and its siblings share."""

    span: Span | None = None


class Store(Backend):
    """Where jobs, occurrences, sessions, locks and the ledger live.

    A public verb checks its arguments, returns at once where nothing is to do, enters its span, and calls the back
    end's verb, which has an underscore before its name and its contract here.

    """

    _spans: _Spans

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make a handle that nothing measures."""
        made = super().__new__(cls)
        made._spans = _Spans()
        return made

    @property
    def span(self) -> Span | None:
        """What is called with the name of each verb, and gives what is entered around its back end's part; see ADR 27.

        Siblings share it, whichever of them it is set on, and when.
        """
        return self._spans.span

    @span.setter
    def span(self, span: Span | None) -> None:
        self._spans.span = span

    def _within(self, verb: str, do: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            # Asked for once: another thread may take it away.
            if (span := self._spans.span) is None:
                return do(*args, **kwargs)
            with span(verb):
                return do(*args, **kwargs)
        except StoreError as error:
            error.came_from = self._spans
            raise

    @contextmanager
    def _within_span(self, verb: str) -> Iterator[None]:
        """Enter a span around a verb that is awaited."""
        try:
            with nullcontext() if (span := self._spans.span) is None else span(verb):
                yield
        except StoreError as error:
            error.came_from = self._spans
            raise

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return, in words, what this handle has left out so far because it cannot be read; each is logged once.

        An unreadable row concerns one job, occurrence, session or lock. Verbs that work on many leave it out and do the
        rest; a read of that one thing raises ``StoreCorrupt``.
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
            StoreUnavailable, StoreCorrupt, StoreReadOnly: as they say.
        """
        self._within("check", self._check)

    def close(self) -> None:
        """Close connections and wake-up channels; end a ``wait`` in another thread. Idempotent."""
        self._within("close", self._close)

    def sibling(self) -> Self:
        """Return a handle on the same store with connections of its own.

        So a busy pool can never starve a lease.
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

        A new job's watermark is the store's now, so it starts after its registration and not in the past; for a
        trigger that has only times in the past (a one-off ``at``) it lies one microsecond before the last of them,
        which therefore still runs. Its first era begins at that watermark. A changed definition is a new revision
        whose era begins at the store's now (never before the watermark); the watermark stays. The next due time is
        the first nominal time after the watermark, under the eras that hold. A retired job that is defined again
        comes back; its watermark moves to now, so that the time for which it was retired is not caught up.

        A ``release`` is known from its first ``define_jobs`` or ``open_session``. While a session of a release that was
        first known *later* is alive, definitions of the earlier release that differ are left alone (``superseded``),
        so a node of the old version that restarts during a rolling deploy changes nothing; once no such session
        lives, they win again (a rollback). Jobs with ``source="runtime"`` follow no release: the last writer wins.

        With ``complete=True`` the specs are all that the release declares: jobs with ``source="code"`` that are not
        among them are retired, unless a live session of another release is there (it may still declare them:
        ``kept``). What waits of a job that is retired so is kept for ``retire_after``: it can be claimed where a node
        has the function, it is there when the job is defined again, and after that time ``prune`` cancels it.

        Atomic: all or nothing. A release is one unit, so it is not defined in pieces. The slow part is worked out
        first; then other writers wait for some 50 µs for each job that is new, changed or gone.
        Idempotent: equal definitions write nothing. Only the next due time is set anew where the trigger depends on a
        time zone and the rules of this machine give another instant (``moved``), unless the watermark moves meanwhile:
        whoever moves it computes the next due time, too.

        Raises:
            DuplicateJob: two of ``specs`` have one name.
            InvalidPayload: arguments that are not JSON.
        """
        check_different(specs)
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
        """Stop a job for good, keeping its watermark and its ledger; ``False`` where there is nothing to stop.

        Its pending occurrences become cancelled(retired); of a job that is retired already those that were kept
        (``retire_after``). Running ones go on. From now on its era has no trigger (or from when its last era begins,
        where the clock was set back to before that). Nominal times up to then that were not decided yet become one
        range missed(retired), and the watermark moves to the last of them.

        The trail has it even where there was nothing to stop: of a job that a release dropped it says that this is
        meant.
        """
        return self._within("retire", self._retire, job, by=by, why=why)

    # --- the scheduling round --------------------------------------------------------------------------------------

    def look(self, *, limit: int = 100, partition: Partition | None = None, ahead: timedelta = NO_DELAY) -> View:
        """Read which jobs are due, what waits, and which sessions hold runs. It writes nothing and blocks no verb.

        ``jobs`` are also those that come due within ``ahead`` (not negative), the earliest first, so that a node can
        plan them before their due time. The answer promises nothing: ``step`` checks again whether a plan holds.

        With a ``partition``, ``jobs`` and ``more`` are of that part of the jobs alone, so that nodes that look at
        different partitions do not plan the same job. Each job is in exactly one of ``of`` partitions, always the same.

        It is one statement when no job is due, so that looking is cheap.

        Raises:
            InvalidOption: ``ahead`` is negative.
        """
        if ahead < NO_DELAY:
            raise InvalidOption(f"ahead={ahead!r}: a look goes forward; pass a timedelta that is not negative")
        return self._within("look", self._look, limit, partition, ahead)

    def step(self, session: str, step: Step) -> Done:
        """Write the report of a node: notes, results and released claims; then plans; then claim work.

        - Notes, ends and claims that are given back are accepted by token and session, also where ``session`` is
          not alive: each only if its occurrence is still running under its token. A refused one stops none of the
          others.
        - Notes are progress and log lines of running attempts.
        - Ends tell what becomes of occurrences (``model.ends``). ``Final`` is written with reason, result and error.
          ``Again`` puts the occurrence back, due at the store's now + ``after``, and forgets its fingerprint: with one
          failure more if it ``failed``, else without the attempt, and with its ``note`` for the next one. ``Parked``
          puts it back due never, until ``wake``, with all counts at their beginning. One that was asked to stop is
          cancelled instead of put back.
          Each that is accepted leaves a run record with its token, but for what ``recorded_as`` says leaves none.
          Reasons, errors and log lines may be any text: what a store cannot keep of it (NUL, half characters) it keeps
          as an escape, so that no message costs a result; and secrets in it are masked (``codec.clean``), as in all
          that operators say.
        - A claim that is given back is pending, due as before. ``cut=None``: it was not begun. The attempt is given
          back too, so the next one has its number again. ``cut="stopped"``: it had begun, and its node stopped it in
          order. The attempt counts, because its number belongs to a run that began; it is no crash. ``cut="crashed"``:
          it had begun, and the lease of its node ended. It is a crash, like a takeover. With ``on_crash="fail"``, or if
          this crash reaches ``max_crashes``, it does not go back but becomes failed(crashed), as in ``close_session``
          and ``reclaim``.
        - A plan is carried out if the job's watermark, revision and number of active occurrences are still what the
          plan saw, its ``not_before`` has come, and the job is neither paused nor retired. Otherwise nothing of it is
          written. Its occurrences and verdicts are inserted, watermark and next due time are moved, and if it says so
          earlier occurrences are asked to cancel (pending ones become cancelled(cancel_previous) at once). An
          occurrence whose key exists already, because it was backfilled ahead of its time, is left as it is. Plans are
          compared with the state after the parts before them: an occurrence that those ended is no longer active.
        - Up to ``want.limit`` due pending occurrences of ``want.functions`` are claimed: highest priority first, then
          by class (the schedule and people, then what was enqueued, then items and backfill: ``model.claim_order``),
          then earliest due, then oldest; with ``want.oldest`` the class has no say. Among them are those that this
          step's plans made, that its ends put back, and that its ends freed a slot for. One past its
          ``expires_at`` that never started becomes missed(late) instead.
          Limits: per job ``concurrency`` over all live sessions (a dead session's runs do not count); for occurrences
          subject to overlap (all policies but ``allow``), one at a time and in order of creation: one waits while an
          earlier one of its job is active. A claimed occurrence is running, attempt + 1, under a new token. A claim
          that takes any sets the session's lease to now + ``want.lease``, also when that is sooner than before:
          an idle node holds a long lease that costs nothing, a working one a short lease.
        - Up to ``want.reserve`` more are claimed to wait at the caller for a free slot (``Claim.reserved``): only those
          that are retried after a crash, whose job has no ``concurrency`` and no turns, and of which no attempt was cut
          off. None is overtaken for that. Where there are fewer, the caller gets only its part, 1 of ``want.nodes``.
          Such an attempt counts as begun only when a note (``Note.ran``) or the result says so; if its session ends
          before that, it is no crash. It is not reserved a second time, so a job that ends the process of its node is
          counted from the second time on.
        - ``want.ahead`` lets both look that much further than the store's now: a plan whose ``not_before``, and an
          occurrence whose ``due_at``, comes within it counts as due. The commit then lies before the due time, not
          after it. Such an attempt counts as started when it is due; ``claimed_at`` says when it was claimed, so that
          the caller knows how long to wait.
        - If there are plans or a ``want``, and ``session`` is not alive, ``Done.lost`` says so: the results stand, no
          plan was carried out, nothing was claimed. This is judged in the same step, so nothing is ever claimed for a
          dead session.

        An empty step does nothing, and does not ask the store.

        Atomic: plans and claims in one step, and never without the results that they come after. An occurrence is
        inserted if and only if the watermark moves; none is claimed by two callers. A claim never waits for rows that
        another node holds.
        Idempotent: ends and claims given back by their tokens (a repeated end gets its first answer, and
        nothing is written), plans by their watermark. Claims are not: they stand although the answer was lost, and
        ``renew`` lists them. So a step whose answer was lost can be sent again; log lines of its notes may then be
        written twice.
        Not prevented: a wrong plan, which is carried out as it is (planning is pure and tested elsewhere); a caller
        that starts a run before its due time, which the store cannot see; plans or claims that fail each time (a row
        that cannot be read, a lock timeout, a full store).
        After an error any part of the step may have been written. So the caller sends the results again alone, at once,
        and then the rest in halves. Results alone are refused neither for a plan nor, on Redis, for want of memory.

        Raises:
            InvalidTransition: an end names a state that no run can end in (``RUNNING``, ``MISSED``); nothing was
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
        """Win occurrences now, for hosts where another program keeps time; answers are in the order of ``asks``.

        An ``AskNamed`` wants one occurrence, by its nominal time or its key. The occurrence is created if it does not
        exist, and taken if it is pending, whatever waits before it and however much of its job runs; it becomes due now
        if it was due later. One with a key that ended longer ago than its job's ``keep`` counts as pruned: it is
        deleted and created anew in the same step. The fingerprint is stored with the occurrence, and the claim carries
        the stored one: that of this ask, unless an earlier attempt began with another and was cut off. An outcome
        ``PENDING`` clears it. A time at or below the pruned horizon is ``PRUNED``; a new one of a paused job is
        ``LOST``.

        An ``Ask`` wants nominal times of a job within its ``concurrency``, over all live sessions: the times of one ask
        need one free run together, and each counts while it runs. A time that is not run gets its verdict here:
        skipped(overlap) if the job is full, skipped(paused) if it is paused, missed(late) if the caller says so. One
        that waits is taken if it is due and ``concurrency`` allows it; else it goes on waiting, without a verdict. What
        is given back before it began is missed(late) when the job's ``grace`` since its nominal time is over. A time
        that lies more than ``MOST_EARLY`` (1 s) ahead of the store's now is ``EARLY``, whatever is asked of it, and
        leaves no trace: a caller whose clock is fast would run it too soon for all.

        A nominal time in a period for which the job has or had a trigger is ``LOST``: plans decide those times, and
        nodes run them by the job's policies. A time above the watermark, won or given a verdict, moves the watermark of
        a job without a trigger, unless an earlier trigger left undecided times before it. What cannot be acquired
        hinders no other; of two asks for one occurrence the first wins it.

        Atomic: all of it. A job is locked while its runs are counted and its keys are read, so two callers do not both
        get the last place, or one key; they may name the same in any order. The lease is set if something is won.
        Idempotent: verdicts; repeated, the times are ``LOST``. Claims stand although the answer was lost, and ``renew``
        lists them.
        Not prevented: that a key is done a second time once the job's ``keep`` is over, or after ``forget``.

        Raises:
            LeaseLost: the session is not alive; nothing was done.
            InvalidOption: a time lies more than ``MOST_IN_FUTURE`` (366 days) after the store's now, or has no zone; a
                key is none that ``check_key`` allows; an ``AskNamed`` has neither time nor key, or both. Nothing was
                done.
        """
        wanted = [ask.checked() for ask in asks]
        return self._within("acquire", self._acquire, session, wanted, lease) if wanted else []

    @contextmanager
    def transaction(self, claim: Claim) -> Iterator[RunTransaction]:
        """Open a transaction in which a running attempt writes its effects, and then that it succeeded (G5).

        It commits if the block is left without an exception after ``complete``; from then on an outcome under the same
        token is answered with "succeeded", whatever it says. In every other case it is rolled back.

        Atomic: effects, run record and final state commit together, only if the run is current at that moment: the
        token is checked when the transaction begins, and again, under a lock, by ``complete``.
        Not prevented: effects outside of this database; a commit whose answer is lost raises although it took place (a
        step with its outcome then tells). Until ``complete`` the run may still be taken over; its effects are then
        rolled back.

        Raises:
            UnsupportedTransaction: the store has none (``capabilities.transactional_finish`` says so).
            LeaseLost: the run is not current.
        """
        with ExitStack() as open_now:
            if (span := self.span) is not None:
                open_now.enter_context(span("transaction"))
            yield open_now.enter_context(self._transaction(claim))

    def complete_in(self, connection: Any, claim: Claim, result: str | None = None, notes: Sequence[Note] = ()) -> None:
        """Write that an attempt succeeded in a transaction of the caller's own, on the store's database (G5).

        The caller's commit decides; after a rollback the attempt is running as before.

        Atomic: as ``transaction``, from here to the caller's commit.
        Not prevented: a caller that commits nevertheless after ``LeaseLost``.

        Raises:
            UnsupportedTransaction: the store has none, cannot use such a connection, or it leads to another database.
            LeaseLost: the run is not current; nothing was written.
        """
        self._within("complete_in", self._complete_in, connection, claim, result, notes)

    def enqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences by key, as ``enqueue``, in a transaction of the caller's own on the store's database.

        Nobody sees them before the caller's commit, which notifies nodes where the database can; after a rollback they
        never were. Due times count from this call, also of what is committed much later. It locks no job, so schedules
        and other calls go on while the caller's transaction is open.

        Atomic: with the caller's transaction.
        Idempotent: by key. Where another open transaction has the key, this one waits for its end for a few seconds.
        Not prevented: a run of a job that is retired between this call and the commit; ids that become visible in
        another order than they were given.

        Raises:
            UnsupportedTransaction: the store has none, cannot use such a connection, it commits each statement by
                itself, or it leads to another database.
            UnknownJob, InvalidOption, InvalidPayload: as ``enqueue``.
            StoreBusy: another open transaction has a key for too long, or the database ended this one in favour of
                another. The caller has to roll back.
        """
        self._check_keys(items)
        return self._within("enqueue_in", self._enqueue_in, connection, items) if items else []

    async def aenqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:
        """Do what ``enqueue_in`` does on a connection that is awaited.

        Raises:
            UnsupportedTransaction, UnknownJob, InvalidOption, InvalidPayload, StoreBusy: as there.
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

        A session that is not a node belongs to no release, whatever it says: no definition waits for it.

        Idempotent: repeated while the session lives, it only sets the lease.

        Raises:
            LeaseLost: the id is that of a session that is over.
        """
        return self._within("open_session", self._open_session, session, lease)

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        """Set the lease anew if it has not run out; never revives a dead session.

        While the session holds a running occurrence its lease is set to now + ``lease``, else to now + ``idle_lease``
        (``lease`` if that is not given); the answer says which. The store decides this in the same step, because the
        caller cannot know: a renewal that timed out may be carried out long after the caller claimed work.

        The answer lists the runs that the session holds, with their tokens. A store that lost its last moment (a
        failover, a restored backup) may know of other runs than the caller; the caller finds that out by this list.
        """
        return self._within("renew", self._renew, session, lease, lease if idle_lease is None else idle_lease)

    def close_session(self, session: str) -> list[Takeover]:
        """End a session in order. Its remaining runs go back as in ``reclaim``, but that counts as no crash.

        With ``on_crash="fail"`` a run that was cut off is failed(crashed) here too: it may have begun its work.
        """
        return self._within("close_session", self._close_session, session)

    def reclaim(self, presumed_dead: Collection[str] = ()) -> list[Takeover]:
        """End sessions whose lease ran out, and those in ``presumed_dead``; return what became of their runs.

        A run goes back to pending with one crash more (``on_crash="retry"``, and with this one fewer than
        ``max_crashes``) or is failed(crashed). Its run record says crashed. Their locks are free.

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
        """Take a place of the named lock for ``holder`` if one is free or overdue; ``None``: all are held.

        A lock has ``limit`` places, counted from 0; each has one holder. Where callers pass different limits, the
        smallest of the caller's and all holders' limits counts: in a deploy that lowers a limit to 1, a holder that
        asked for exclusive access never shares the lock.

        A lock of a ``session`` also ends with that session. The token grows with every grant of the name, also after
        an expiry. Not re-entrant: the holder of the last place gets ``None`` too.

        Atomic: never the same place to two callers.

        Raises:
            LeaseLost: ``session`` is not alive.
            InvalidOption: ``name``, ``holder`` or ``ttl`` is none that ``check_lock`` allows.
        """
        check_lock(name, holder, ttl)
        return self._within("lock", self._lock, name, holder, ttl=ttl, session=session, limit=limit)

    def extend(self, grant: LockGrant, *, ttl: timedelta) -> bool:
        """Extend a lock that is still held under this token and not overdue; ``False``: it is lost."""
        check_lease(ttl)
        return self._within("extend", self._extend, grant, ttl)

    def unlock(self, grant: LockGrant) -> bool:
        """Free a lock, only if it is still held under this token; ``False``: it was not ours, nothing changed.

        The first waiter in its queue (``wait_queues``) is notified.
        """
        return self._within("unlock", self._unlock, grant)

    def break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]:
        """Free all places of a lock, whichever sessions hold them; return what was held. The trail records it.

        A former holder finds ``extend`` and ``unlock`` refused, and the next holder has a higher token.

        Atomic: all places in one step, with the entry in the trail.
        Not prevented: a former holder that works on until its next renewal; its token tells it apart.
        """
        return self._within("break_lock", self._break_lock, name, by=by, why=why)

    def wait_queues(self) -> WaitQueues:
        """Return the wait queues of locks, which receive on a connection of their own; the caller closes them.

        The queues of a store without notifications receive nothing.
        """
        return self._within("wait_queues", self._wait_queues)

    def wake_next(self, name: str) -> None:
        """Notify the next in a lock's queue that the lock may be free. Best effort; never raises."""
        self._within("wake_next", self._wake_next, name)

    # --- people and programs ---------------------------------------------------------------------------------------

    def enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences by key, in bulk; an existing key returns the existing occurrence, in whatever state.

        Arguments that are left out are the job's own. ``expires_in`` counts from the due time. It wakes other
        handles as ``notify`` does.

        Atomic: all items of a call in one step.
        Idempotent: by key.

        Raises:
            UnknownJob: no such job, or retired.
            InvalidOption: a key is none that ``check_key`` allows; or only other programs run a job
                (``JobSpec.runs_elsewhere``), of which nobody else makes runs. ``trigger``, ``retry`` and ``backfill``
                refuse such a job, too.
            InvalidPayload: arguments that are not JSON.
        """
        self._check_keys(items)
        return self._within("enqueue", self._enqueue, items) if items else []

    def wake(self, occurrences: Collection[int], *, listed: int | None = None) -> int:
        """Make due those of these occurrences that are parked; return how many.

        They are due as of their creation, and not before their nominal time. A batch goes first then, whatever its
        class was. Other handles are notified as by ``notify``. One that is not parked is left alone.

        With ``listed`` the call is for one batch whose list was made outside of a run: all its items, so many, are
        enqueued. It is noted and the batch made due, only if it is pending, not parked, and its list not complete; else
        the answer is 0.

        Atomic: each. Idempotent.
        Not prevented: one that is claimed, or parked, in this moment stays parked: who parks it asks again.

        Raises:
            InvalidOption: ``listed`` is given, and not exactly one occurrence.
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
        Idempotent: by ``key``. Without one, where the answer was lost, the run may be there, and a second call makes
        another.

        Args:
            job: its name.
            by: the operator, for the trail.
            why: the reason, for the trail.
            arguments: JSON values by position and by name, in place of the job's own.
            key: what stands under it is returned, with ``created=False``, and nothing is made.
            downstream: jobs that come after it, which get a run each, too. All of these have one nominal time, the
                store's now, and the gates of these see by it what they come after.

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
        """Stop firing a job; ``False`` when it is paused already. Nominal times that pass are skipped(paused)."""
        return self._within("pause", self._pause, job, by=by, why=why)

    def resume(self, job: str, *, by: str, why: str = "") -> bool:
        """End a pause; ``False`` when there is none. The next round writes the paused stretch into the ledger."""
        return self._within("resume", self._resume, job, by=by, why=why)

    def rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        """Take a job's schedule back; ``False``, and nothing is written, if it has changed since the step read it.

        Atomic: watermark, next due time, eras, ranges, pauses, what never began, and trail. Of two at the same instant,
        or of one and a plan, one is carried out. What began stays: no time that has a run gets another.

        Raises:
            UnknownJob: no such job, or retired.
            InvalidOption: it would go forward.
        """
        if rewind.watermark > rewind.watermark_seen or not rewind.eras:
            raise InvalidOption(f"rewind={rewind!r}: a schedule is taken back, to a time that an era has")
        return self._within("rewind", self._rewind, rewind, by=by, why=why)

    def cancel(self, occurrence: int, *, by: str, why: str) -> State:
        """Cancel a pending occurrence at once; ask a running one to stop (``renew`` tells its node).

        A run that was asked to stop does not run again: where it would go back to pending (a retry, a takeover, a
        release), it becomes cancelled instead, with the reason of the request.

        Raises:
            InvalidTransition: it is final.
            LookupError: there is none.
        """
        return self._within("cancel", self._cancel, occurrence, by=by, why=why)

    def retry(self, occurrence: int, *, by: str, why: str = "", again: bool = False) -> Enqueued:
        """Make a new occurrence of a final one, linked to it and with the same arguments and nominal time.

        That of an item of a batch is no item any more: it runs alone. A run is retried once: of one that was, this
        returns the newest of its retries with ``created=False``, and a further one is a retry of that. It is claimed in
        the class of what it repeats.

        Atomic: of two calls at the same instant one makes the run, and the other returns it.
        Not prevented: a second run where the first retry is no longer kept.

        Args:
            occurrence: its number.
            by: the operator, for the trail.
            why: the reason, for the trail.
            again: also if it succeeded.

        Raises:
            InvalidTransition: it is not final yet; or it succeeded, and ``again`` is not given.
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
            only: delete it only if this is its id; else there is none.

        Raises:
            InvalidTransition: it runs, and ``running`` is not given.
            InvalidOption: the key is one of a nominal time.
        """
        check_forgettable(key)
        return self._within("forget", self._forget, job, key, by=by, why=why, running=running, only=only)

    def backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str = "") -> list[Enqueued]:
        """Create occurrences (origin backfill) for nominal times that have no active or succeeded one.

        Idempotent: a time that has one returns it with ``created=False``.

        Raises:
            OccurrenceTooOld: a time is at or below the pruned horizon; nothing is created.
        """
        times = [as_utc(time, what="times") for time in times]
        return self._within("backfill", self._backfill, job, times, by=by, why=why)

    # --- maintenance -----------------------------------------------------------------------------------------------

    def prune(self, before: datetime | None = None, *, limit: int = 1000, by: str = BY_ITSELF) -> Pruned:
        """Delete final occurrences, with runs and logs, and verdict ranges that ended before ``before``; count them.

        ``None``: before the store's now minus each job's own ``keep``. At most ``limit`` per call. Ended sessions
        older than a day go too. The horizon of a job rises to the latest nominal time deleted, in the same step, so
        that a pruned occurrence can never run again. An occurrence above the watermark stays, because only its key
        keeps a plan from making it a second time. So do the items of a batch that is not over, or not for
        as long.

        By ``keep``, what something open needs stays. While an occurrence is parked until its upstreams are over, all
        stays that has a nominal time and was kept still when the parked one was created. A batch stays with its items
        while its retry is open, and while its retry was itself retried and is there. By ``before`` all of that goes
        too, and ``Pruned.needed`` says how many there were: the parked one is then skipped, or the retry fails, as
        ``upstream unknown: pruned``.

        Eras and pauses of a job go when they have been over for its ``keep`` (``before``), and for ``HISTORY_KEPT`` at
        least, and leave no time undecided; horizon and watermark rise to the end of an era that goes. After
        ``REMEMBERED`` these go: a retired job of which nothing else is left, with its eras and pauses; entries of the
        trail; and a release of which no session lives, if a later one has been known for that long. None of these are
        counted.

        With ``before`` the trail first gets an entry (``PRUNE``, under the name ``by``). The audit then knows why an
        item or a batch is not there.
        """
        if before is not None:
            before = as_utc(before, what="before")
        return self._within("prune", self._prune_noted, before, limit, by)

    def _prune_noted(self, before: datetime | None, limit: int, by: str) -> Pruned:
        if before is not None:
            # Noted first, so that the trail knows of a prune that dies half-way; and once, however often it goes on.
            act, newest = Prune(before), self._trail("", None, 1)
            is_noted = newest and (newest[0].action, newest[0].details) == (act.action, act.details)
            if not is_noted or newest[0].at < before:
                try:
                    self._note_in_trail(act, by)
                except StoreFull:  # what is deleted frees the space
                    pruned = self._prune(before, limit)
                    with suppress(StoreFull):
                        self._note_in_trail(act, by)
                    return pruned
        return self._prune(before, limit)

    def wait(self, timeout: float) -> bool:
        """Block up to ``timeout`` seconds of real time for a notification; ``True``: there was one.

        A notification says that something may have changed. It may be lost or spurious: that costs latency, never
        correctness. One thread of a handle waits at a time.
        """
        return self._within("wait", self._wait, timeout)

    def register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` on the connections of this handle, until they end; ``None``: show none.

        A handle shows the sign while a thread waits on it, and from its first renewal of the session on. Where a store
        can do that (with a lock that the server frees when the connection ends), ``View.absent`` tells others when no
        connection shows the sign any more.
        """
        self._within("register_presence", self._register_presence, session)

    def signs(self, sessions: Collection[str]) -> dict[str, bool]:
        """Return which of these sessions show a sign of life (``register_presence``) at this moment.

        A session that wrote down that it shows one, and shows none, is ``False``: its process is gone, or its
        connections were cut a moment ago, so ask twice. Of others without a sign nothing is known, and they are left
        out. A process that is stopped still shows its sign; so does a host that is gone without a word, for a while.
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
        """Return the attempts of up to a few hundred occurrences, together if the store can: the audit reads millions.

        Those of one stand together, oldest first, with the running one last; an occurrence that is not there has none.
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
        """Return held locks by name, or the held places of one."""
        return self._within("locks", self._locks, name, limit)

    def counts(self, *, limit: int = 10_000) -> Counts:
        """Return bounded counts."""
        return self._within("counts", self._counts, limit)

    def pending_of(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return how many occurrences of these jobs, retired or not, are pending; jobs with none are left out.

        One count for all of them. It is not bounded: what is counted are entries of an index.
        """
        return self._within("pending_of", self._pending_of, jobs) if jobs else {}

    def children(self, batches: Collection[int], *, limit: int = 1) -> dict[int, Children]:
        """Return where batches stand, with their items by state, each counted up to ``limit``; in one trip."""
        numbers = tuple(dict.fromkeys(batches))
        return self._within("children", self._children, numbers, limit) if numbers else {}

    def parked(self, *, after: int = 0, limit: int = 200) -> list[Sleeper]:
        """Return what is parked, by id: batches with a complete list, and what waits for other jobs."""
        return self._within("parked", self._parked, after, limit)

    def last_of(self, jobs: Sequence[str], *, limit: int = 30) -> dict[str, Past]:
        """Return the last ``limit`` occurrences and verdict ranges of each of up to a few dozen jobs, in one read.

        A job that is not there is left out. A batch stands for its items: of a job that has any, it is looked for among
        the newest few thousand occurrences, and by nominal time.
        """
        return self._within("last_of", self._last_of, tuple(dict.fromkeys(jobs)), limit) if jobs else {}

    def ran_since(self, since: datetime, *, limit: int = 600) -> list[Glance]:
        """Return what runs, and what ended since, run or not, the newest first.

        Of the newest few thousand occurrences by id: what was created long before them is found only while it runs.
        """
        return self._within("ran_since", self._ran_since, as_utc(since, what="since"), limit)

    def ended_badly(self, since: datetime, *, after: int = 0, limit: int = 1000) -> list[Occurrence]:
        """Return what has failed, or was missed or cancelled, since a moment by the store's clock, by time and id.

        ``after``: those of exactly ``since`` with an id up to this are left out; so a page follows on another.
        """
        return self._within("ended_badly", self._ended_badly, as_utc(since, what="since"), after, limit)

    def decided(self, *, after: int = 0, limit: int = 1000) -> list[LedgerRange]:
        """Return verdict ranges of all jobs, by id; ``after=-1``: only the last one."""
        return self._within("decided", self._decided, after, limit)

    def trail(self, *, target: str | None = None, after: int | None = None, limit: int = 100) -> list[TrailEntry]:
        """Return the audit trail, newest first.

        A store whose clock was set back says so here (``CLOCK_SET_BACK``) no later than with the next thing that it
        writes, with the stretch that may have come twice: times in it say nothing about what came first.
        """
        return self._within("trail", self._trail, target, after, limit)

    def identity(self) -> Identity | None:
        """Return which store this is; ``None``: it holds nothing yet, or cannot tell.

        It is made once, with the store. One that was emptied, or another one behind the same address, has another: so a
        node that knew the first finds out.
        """
        return self._within("identity", self._identity)

    def note_in_trail(self, act: Loss | Prune, *, by: str) -> None:
        """Write into the trail what the store lost or an operator pruned, for the audit and for people."""
        self._within("note_in_trail", self._note_in_trail, act, by)

    def describe(self) -> dict[str, Any]:
        """Return what ``doctor`` shows: where, schema version, settings that matter. No secrets."""
        return self._within("describe", self._describe)


def is_passing_failure(store: Store, error: BaseException) -> bool:
    """Whether ``store`` raised this error, by whatever handle on it, and may do what was asked later."""
    if not isinstance(error, StoreError):
        return False
    return error.retryable and error.came_from is store._spans  # noqa: SLF001 - of its own module
