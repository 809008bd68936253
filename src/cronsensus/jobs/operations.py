"""The acts of people and programs on jobs and occurrences, with or without a node in this process.

Every act is a single verb of the store. Each blocking method has an ``a…`` twin that does the same on a thread.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar

from cronsensus.after.downstream import list_names_after, plan_retry, plan_trigger
from cronsensus.batching.batch import Batch
from cronsensus.declared.declarations import Named, name_of
from cronsensus.errors import InvalidOption, UnknownJob
from cronsensus.jobs.acting import MOST_AT_ONCE, unknown_job
from cronsensus.jobs.enqueuing import Enqueuing
from cronsensus.jobs.handle import Handle, cancel_occurrence, retry_occurrence
from cronsensus.jobs.rewinding import rewind_job
from cronsensus.model.job import refuse_run_by_hand
from cronsensus.model.occurrence import Enqueued
from cronsensus.model.states import State
from cronsensus.node.executors.importing import refuse_while_loading
from cronsensus.process.twins import require_reason, twin
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, rules_of
from cronsensus.stores.retries import retry_chain
from cronsensus.timing.instants import format_instant, read_instant
from cronsensus.triggers import Trigger

_LISTED_WITHIN = timedelta(hours=1)
MOST_BACKFILLED = 10_000
"""Most nominal times of a backfill."""

P = ParamSpec("P")
T = TypeVar("T")
_MICROSECOND = timedelta(microseconds=1)


class Operations(Enqueuing):
    """Enqueue, pause, resume, trigger, backfill jobs; cancel and retry occurrences; break locks."""

    # --- jobs --------------------------------------------------------------------------------------------------------

    @require_reason
    def pause(self, job: str | Named, *, reason: str, by: str | None = None) -> bool:
        """Stop firing a job; ``False`` if it is paused already. Times that pass meanwhile are skipped(paused).

        Args:
            job: a job, or its name.
            reason: shown beside the job until it is resumed.
            by: the operator, for the trail; defaults to this node's name.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidOption: no reason.
            StoreError: the store could not do it.
        """
        if not reason.strip():
            raise InvalidOption('a pause needs a reason, for whoever finds the job paused; write reason="…"')
        name, operator = name_of(job), self._acts.operator_name(by)
        return self._acts.act_and_notify({name}, lambda store: store.pause(name, by=operator, why=reason))

    @twin(pause)
    def apause(self) -> None:
        """Do what ``pause`` does without blocking the event loop."""

    def resume(self, job: str | Named, *, by: str | None = None, reason: str = "") -> bool:
        """End a pause; ``False`` when there is none.

        Raises:
            UnknownJob, StoreError: as ``pause``.
        """
        name, operator = name_of(job), self._acts.operator_name(by)
        return self._acts.act_and_notify({name}, lambda store: store.resume(name, by=operator, why=reason))

    @twin(resume)
    def aresume(self) -> None:
        """Do what ``resume`` does without blocking the event loop."""

    @require_reason
    def rewind(self, job: str | Named, *, reason: str, by: str | None = None) -> datetime:
        """Take a job's schedule back to now, after the store's clock was set back; return when it goes on.

        A time that ran while the clock was ahead does not run again; other times run when they come.

        Args:
            job: a job, or its name.
            reason: for the trail.
            by: the operator, for the trail; defaults to this node's name.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidTransition: the job does not stand still, or is paused, or each of its times has run.
            InvalidOption: no reason.
            StoreError: the store could not do it.
        """
        if not reason.strip():
            raise InvalidOption('a schedule is taken back for a reason; write reason="…"')
        name, operator = name_of(job), self._acts.operator_name(by)
        return self._acts.act_and_notify(
            {name}, lambda store: rewind_job(store, name, by=operator, why=reason).watermark
        )

    @twin(rewind)
    def arewind(self) -> None:
        """Do what ``rewind`` does without blocking the event loop."""

    def trigger(
        self,
        job: str | Named,
        *,
        downstream: bool = False,
        key: str | None = None,
        by: str | None = None,
        reason: str = "",
    ) -> Handle:
        """Run a job now, beside its schedule, with its own arguments. The overlap policy still holds.

        Args:
            job: a job, or its name.
            downstream: run also the jobs that come after it, by the definitions in the store, in a single step. All get
                the same nominal time, now. Jobs that come after other times, or also after jobs that do not run now,
                are left out.
            key: as in ``options``: a second call with the same key makes nothing and returns the run of the first.
            by: the operator, for the trail; defaults to this node's name.
            reason: kept in the audit trail.

        Raises:
            UnknownJob, StoreError: as ``pause``.
            InvalidOption: its function needs arguments that the job does not have; ``enqueue`` it with them. Or
                ``downstream``, and it comes after another job itself.
        """
        name, operator = name_of(job), self._acts.operator_name(by)
        refuse_while_loading("triggers")
        function, spec = self._acts.declared.function_of(name), self._acts.declared.spec(name)
        if function is not None and spec is not None and function.registered.part_of(Batch) is None:
            function.bind(spec.args, spec.kwargs, hint="; the job has none of its own: enqueue it with them")
        # With all downstream jobs, in case this process is the first to declare them.
        jobs_to_declare = (
            {name, *list_names_after(rules_of(self._acts.declared.specs()), name)} if downstream else {name}
        )

        def carry_out(store: Store) -> Enqueued:
            dependents = plan_trigger(rules_of(every_edge(store)), name).jobs if downstream else ()
            return store.trigger(name, by=operator, why=reason, key=key, downstream=dependents)

        return self._acts.handle_of(self._acts.act_and_notify(jobs_to_declare, carry_out))

    @twin(trigger)
    def atrigger(self) -> None:
        """Do what ``trigger`` does without blocking the event loop."""

    def backfill(
        self,
        job: str | Named,
        start: datetime | str,
        end: datetime | str,
        *,
        by: str | None = None,
        reason: str = "",
    ) -> list[Handle]:
        """Run a job for its nominal times from ``start`` to ``end``, both included.

        Times with an active or a succeeded run are left as they are. The times are by the job's present trigger.

        Atomic: for each thousand of them, not for all. Idempotent: repeat the call if it failed half-way.

        Raises:
            InvalidOption: the job has no trigger, ``end`` is in the future, or there are more than 10,000 times.
            OccurrenceTooOld: ``start`` is before times that were pruned.
            UnknownJob, StoreError: as ``pause``.
        """
        name = name_of(job)
        since, until = read_instant(start, what="start"), read_instant(end, what="end")
        if since > until:
            raise InvalidOption(
                f"start={format_instant(since)} is after end={format_instant(until)}; write them the other way"
            )

        def carry_out(store: Store) -> list[Enqueued]:
            now = store.now()
            if until > now:
                raise InvalidOption(
                    f"end={format_instant(until)} lies in the future; backfill up to {format_instant(now)}"
                )
            times = nominal_times(name, _trigger_of(store, name), since, until)
            chunks = [times[index : index + MOST_AT_ONCE] for index in range(0, len(times), MOST_AT_ONCE)]
            return [
                enqueued
                for chunk in chunks
                for enqueued in store.backfill(name, chunk, by=self._acts.operator_name(by), why=reason)
            ]

        return [self._acts.handle_of(enqueued) for enqueued in self._acts.act_and_notify({name}, carry_out)]

    @twin(backfill)
    def abackfill(self) -> None:
        """Do what ``backfill`` does without blocking the event loop."""

    # --- occurrences -------------------------------------------------------------------------------------------------

    @require_reason
    def cancel(self, occurrence: int | Handle, *, reason: str, by: str | None = None) -> State:
        """Cancel a pending occurrence at once, or ask a running occurrence to stop; return its state now.

        Of a batch no further item is started, and running items are asked to stop.

        Args:
            occurrence: a handle, or its id.
            reason: kept with the occurrence.
            by: the operator, for the trail; defaults to this node's name.

        Raises:
            InvalidTransition: it is final.
            LookupError: there is none.
            StoreError: the store could not do it.
        """
        return self._acts.act_and_notify(
            (), lambda store: cancel_occurrence(store, _id_of(occurrence), by=self._acts.operator_name(by), why=reason)
        )

    @twin(cancel)
    def acancel(self) -> None:
        """Do what ``cancel`` does without blocking the event loop."""

    @require_reason
    def break_lock(self, name: str, *, reason: str, by: str | None = None) -> int:
        """Free a lock in place of its holders, and return how many there were; for a holder that hangs.

        A former holder notices at its next renewal, within a third of the lock's TTL (``lease.lost``), and may work on
        until then. The protected resource can refuse it by the token, which is higher for the next holder.

        Args:
            name: of the lock.
            reason: kept in the audit trail.
            by: the operator, for the trail; defaults to this node's name.

        Raises:
            StoreError: the store could not do it.
        """
        return len(
            self._acts.act_and_notify(
                (), lambda store: store.break_lock(name, by=self._acts.operator_name(by), why=reason)
            )
        )

    @twin(break_lock)
    def abreak_lock(self) -> None:
        """Do what ``break_lock`` does without blocking the event loop."""

    def retry(
        self,
        occurrence: int | Handle,
        *,
        downstream: bool = False,
        again: bool = False,
        by: str | None = None,
        reason: str = "",
    ) -> Handle:
        """Run a final occurrence once more: a new occurrence, linked to the old, with its arguments and nominal time.

        An occurrence that was retried already is not run again: the handle is that of the newest retry, with
        ``created`` ``False``. Of two calls at the same instant, only the first makes a run.

        Args:
            occurrence: its number, or its handle.
            downstream: retry also the final runs of downstream jobs for the same nominal time. It is not atomic: repeat
                it if it failed half-way.
            again: retry even if it succeeded or was retried already: the newest retry is retried, once it has ended.
            by: the operator, for the trail; defaults to this node's name.
            reason: kept in the audit trail.

        Raises:
            InvalidOption: ``downstream``, and it has no nominal time.
            InvalidTransition: it is not final yet; it succeeded, and ``again`` is not given; or it is an item of a
                batch, which is run again as a whole.
            LookupError: there is none.
            StoreError: the store could not do it.
        """
        run_id, operator = _id_of(occurrence), self._acts.operator_name(by)
        refuse_while_loading("retries")

        def carry_out(store: Store) -> Enqueued:
            original = store.occurrence(run_id) if downstream else None
            if original is not None and again:
                original = retry_chain(store, original)[-1]
            runs = () if original is None else plan_retry(store, rules_of(every_edge(store)), original).runs
            enqueued = retry_occurrence(store, run_id, by=operator, why=reason, again=again)
            for downstream_run in runs:
                if original is not None and downstream_run.id != original.id:
                    with suppress(LookupError):  # pruned meanwhile
                        store.retry(downstream_run.id, by=operator, why=reason, again=True)
            return enqueued

        return self._acts.handle_of(self._acts.act_and_notify((), carry_out))

    @twin(retry)
    def aretry(self) -> None:
        """Do what ``retry`` does without blocking the event loop."""


def _id_of(occurrence: int | Handle) -> int:
    return occurrence.id if isinstance(occurrence, Handle) else occurrence


def _trigger_of(store: Store, job: str) -> Trigger | None:
    view = store.job(job)
    if view is None or view.retired_at is not None:
        raise UnknownJob(unknown_job(job))
    refuse_run_by_hand(view.spec)
    return view.spec.trigger


def nominal_times(job: str, trigger: Trigger | None, since: datetime, until: datetime) -> list[datetime]:
    """Return a job's nominal times from ``since`` to ``until``, both included.

    Raises:
        InvalidOption: there is no trigger, or there are more than ``MOST_BACKFILLED``.
    """
    if trigger is None:
        raise InvalidOption(f"{job!r} has no trigger, so it has no nominal times; enqueue it instead")
    times: list[datetime] = []
    nominal = trigger.next_after(since - _MICROSECOND)
    while nominal is not None and nominal <= until:
        if len(times) == MOST_BACKFILLED:
            raise InvalidOption(
                f"more than {MOST_BACKFILLED:,} nominal times of {job!r} lie between {format_instant(since)} and "
                f"{format_instant(until)}; backfill up to {format_instant(times[-1])} first"
            )
        times.append(nominal)
        nominal = trigger.next_after(nominal)
    return times
