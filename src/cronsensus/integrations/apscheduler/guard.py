"""The hooks into APScheduler: they replace a few methods of a scheduler object and of its executors.

::

    APScheduler names a time ──▶ submit_job ──▶ acquire ──▶ won: the executor's own submit_job
                                                   ├──▶ lost: nothing, another process runs it
                                                   └──▶ full, late: its verdict is recorded, and the event sent
    the function ends ──▶ _run_job_success / _run_job_error ──▶ the verdict is recorded

Only this object is changed, never a class or a module. Executors are given by instance, by alias, or later, and the
default executor is made inside ``start``; all of them come through ``add_executor``.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from cronsensus.errors import ConfigurationError, LeaseLost, StoreError, StoreUnavailable
from cronsensus.external.observing import Observation, wants_observing
from cronsensus.integrations.apscheduler.checks import (
    check_change,
    check_job,
    check_jobs,
    check_scheduler,
    check_threads,
    is_memory,
    job_name,
    needs_no_guard,
)
from cronsensus.integrations.apscheduler.observing import Observer
from cronsensus.integrations.apscheduler.verdicts import (
    events_of_refusals,
    is_late,
    verdict_of_error,
    verdict_of_event,
)
from cronsensus.integrations.apscheduler.views import view_of
from cronsensus.lifecycle.starting import Tries, may_come
from cronsensus.lifecycle.store_wait import StoreWait
from cronsensus.model.acquiring import Ask, Intent, NotWon
from cronsensus.model.ends import Final
from cronsensus.model.job import JobSpec, Policies
from cronsensus.outside import Answer, Outside, Refused, Won
from cronsensus.outside.outside import DRAIN
from cronsensus.process.forking import refuse_in_master, register_for_forks
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import catch_up
from cronsensus.scheduler import Scheduler
from cronsensus.timing.durations import Duration, parse_duration

_log = Logger("cronsensus.apscheduler")

LEAST_GRACE = 5
"""Least seconds that a released time is free for other processes, which search for such times once a second."""
MOST_REMEMBERED = 1000
"""Jobs that are remembered after APScheduler removed them, so that their last run can be taken over."""


def guard(
    scheduler: Any,
    url: str | None = None,
    *,
    namespace: str | None = None,
    lease: Duration | None = None,
    align: bool = False,
    observe: bool | None = None,
    wait: Duration | None = None,
) -> None:
    """Let each scheduled run of an APScheduler 3 scheduler happen in a single process, however many run this code.

    To be called before ``start()``. Nothing is opened until then, so a server may fork after it. Each (job id,
    scheduled run time) is acquired in the store before it is submitted, and is a run in the ledger: with its verdict,
    its error, and a takeover by another process if this one dies.

    Not prevented: that a process which is frozen for longer than its lease goes on with a run that another process has
    taken over; its result is refused. Runs started by hand (``job.func()``, flask-apscheduler's ``run_job``), and
    one-off jobs without an id in a memory store, belong to one process and are not guarded.

    Args:
        scheduler: a ``BackgroundScheduler``, ``BlockingScheduler`` or ``AsyncIOScheduler``; or flask-apscheduler's.
        url: of the store; ``None``: as for ``Scheduler``, from ``CRONSENSUS_URL`` or ``[tool.cronsensus]``.
        namespace: of the jobs in the store.
        lease: how long a process without a sign of life keeps what it runs.
        align: put intervals that each process counts from its own start on times that all share (multiples since 1970),
            and take ``jitter`` off; else such jobs are refused.
        observe: change nothing in what runs, and count it, for ``cronsensus audit --observed``; ``None``: as
            ``CRONSENSUS_OBSERVE`` says.
        wait: how long ``scheduler.start()`` blocks while the store cannot be reached, and then raises; 0: it raises at
            once. ``None``: it starts all the same, nothing is run, and one ERROR says why, until the store is there.

    Raises:
        ConfigurationError: it is guarded already, or was started, or is no scheduler of APScheduler 3.
        InvalidOption: an impossible option.
    """
    real_scheduler = check_scheduler(scheduler)
    own_scheduler = Scheduler(url, namespace=namespace, lease=lease)
    if wants_observing(observe):
        real_scheduler._cronsensus = Observer(real_scheduler, Observation(own_scheduler))
    else:
        real_scheduler._cronsensus = Guard(real_scheduler, own_scheduler, align=align, wait=wait)


class Guard:
    """The layer between a scheduler and its executors."""

    def __init__(self, scheduler: Any, ours: Scheduler, *, align: bool, wait: Duration | None) -> None:
        """Replace the methods of ``scheduler``; open nothing."""
        self._scheduler = scheduler
        self._ours = ours
        self._align = align
        self._wait = None if wait is None else parse_duration(wait, what="wait").total_seconds()
        self._store_wait: StoreWait | None = None
        self._participant: Outside | None = None
        self._looked: Outside | None = None
        self.forked()
        register_for_forks(self)
        self._won: dict[tuple[str, datetime], Won] = {}
        self._submitting: Counter[str] = Counter()
        """Runs on their way to an executor, which may begin before the executor counts them."""
        self._jobs: OrderedDict[str, Any] = OrderedDict()
        self._on_loop: set[Won] = set()
        """Claims that an event loop has not submitted yet."""
        self._announced: dict[str, Any] = {}
        """By job that is being submitted synchronously: the event of the claim, once it is won."""
        self._away = False
        self._closed = False
        """Whether an executor accepts no more runs."""
        self._is_ahead = False
        """Whether it is logged that this process's clock is ahead of the store's."""
        self._ends = False
        self._original = {
            name: getattr(scheduler, name)
            for name in (
                "start",
                "shutdown",
                "add_executor",
                "_real_add_job",
                "_dispatch_event",
                "_process_jobs",
                "modify_job",
            )
        }
        for name in self._original:
            setattr(scheduler, name, getattr(self, f"_on{name}" if name.startswith("_") else f"_on_{name}"))
        for executor in scheduler._executors.values():
            self._guard_executor(executor)

    def forked(self) -> None:
        """Make the lock anew; called in a forked child, and where gevent has patched the process."""
        self._lock = threading.Lock()

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def _on_start(self, *args: Any, **kwargs: Any) -> Any:
        """Open the store before the scheduler names its first time; while it is away, run nothing."""
        catch_up()
        refuse_in_master("the guarded APScheduler", "its start()", "its shutdown()")
        self._ends = self._closed = False
        check_threads(self._scheduler)
        check_jobs(self._scheduler, align=self._align)
        if self._participant is None and self._store_wait is None:
            self._open_or_wait()
        return self._original["start"](*args, **kwargs)

    def _open_or_wait(self) -> None:
        try:
            for pause in (tries := Tries(self._wait or 0.0)):
                Event().wait(pause)
                with tries:
                    self._open()
        except StoreError as error:
            if self._wait is not None or not may_come(error):
                raise
            self._store_wait = StoreWait(self._open_late, lambda: None, "the guard of APScheduler", _log)
            self._store_wait.start_waiting(error)

    def _open(self) -> None:
        self._ours._opened.shared().now()
        outside = self._ours._opened.outside()
        outside.on_leftover(self._run_leftover)
        with self._lock:
            if not self._ends:
                self._participant = outside

    def _open_late(self) -> None:
        self._open()
        if self._scheduler.running:
            self._scheduler.wakeup()  # to search for what other processes left

    def _on_shutdown(self, wait: bool = True) -> Any:  # noqa: FBT001, FBT002 - as APScheduler has it
        """Shut down, and record the verdicts of completed runs; the others are free for other processes."""
        with self._lock:
            self._ends = True
            on_loop = tuple(self._on_loop)
        if self._store_wait is not None:
            self._store_wait.cancel()
            self._store_wait = None
            if self._participant is None:
                self._ours._opened.close()  # a last try may have opened it
        self._release_from_loop(on_loop)
        result = self._original["shutdown"](wait)
        if self._participant is not None:
            closing = threading.Thread(target=self._close, args=(self._participant, wait), name="cronsensus-closing")
            closing.start()
            # On an event loop the runs that it waits for end only after this has returned. The program's end waits.
            if not any(hasattr(executor, "_eventloop") for executor in self._scheduler._executors.values()):
                closing.join()
        return result

    def _close(self, participant: Outside, wait: bool) -> None:  # noqa: FBT001 - as shutdown has it
        participant.close(wait=DRAIN if wait else timedelta(0))
        self._participant = None
        self._ours._opened.close()

    def _on_add_executor(self, executor: Any, alias: str = "default", **options: Any) -> Any:
        answer = self._original["add_executor"](executor, alias, **options)
        self._guard_executor(self._scheduler._executors[alias])
        return answer

    def _on_real_add_job(self, job: Any, jobstore_alias: str, replace_existing: bool) -> Any:  # noqa: FBT001
        check_job(self._scheduler, job, jobstore_alias, align=self._align)
        answer = self._original["_real_add_job"](job, jobstore_alias, replace_existing)
        if self._participant is not None and not needs_no_guard(self._scheduler, job):
            self._participant.declare(_spec(job))
        return answer

    def _on_modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Any:
        with self._scheduler._jobstores_lock:
            job, alias = self._scheduler._lookup_job(job_id, jobstore)
            if alias is not None:  # otherwise it is added, and checked, later
                check_change(self._scheduler, job, alias, changes, align=self._align)
        return self._original["modify_job"](job_id, jobstore, **changes)

    def _look_for_leftovers(self, participant: Outside) -> None:
        """Take over runs that were left before this process came: a deploy may have stopped all others in a run."""
        for job in self._scheduler.get_jobs():
            if not needs_no_guard(self._scheduler, job):
                participant.declare(_spec(job))
        participant.look_for_leftovers()

    def _on_dispatch_event(self, event: Any) -> Any:
        """Hold back the event of a submitted job until it is won: otherwise each replica would report each run."""
        from apscheduler.events import EVENT_JOB_SUBMITTED

        if event.code == EVENT_JOB_SUBMITTED and not getattr(event, "won", False) and self._is_asked_for(event.job_id):
            # The event of a claim that is won at once comes when APScheduler would send it: after it has removed a last
            # time.
            event = self._announced.pop(event.job_id, None)
            if event is None:
                return None
        return self._original["_dispatch_event"](event)

    def _on_process_jobs(self) -> Any:
        """Process due jobs; another replica may have removed a job from a shared store meanwhile."""
        from apscheduler.jobstores.base import JobLookupError
        from apscheduler.schedulers.base import STATE_STOPPED

        if self._closed or (self._ends and self._scheduler.state == STATE_STOPPED):
            # It processes once more as it ends, with closed executors: due times would be lost from a shared store.
            return None
        participant = self._participant
        if participant is not None and participant is not self._looked:
            self._looked = participant
            self._look_for_leftovers(participant)
        try:
            return self._original["_process_jobs"]()
        except JobLookupError as error:
            # It would end the scheduler's thread for good. The job was run or removed elsewhere: process again at once.
            _log.debug("another replica has removed a job that was due: %s", error)
            return 0

    # --- executors ----------------------------------------------------------------------------------------------------

    def _guard_executor(self, executor: Any) -> None:
        if hasattr(executor, "_cronsensus"):
            return
        executor._cronsensus = self
        submit, success, error = executor.submit_job, executor._run_job_success, executor._run_job_error
        executor.submit_job = lambda job, times: self._submit(executor, submit, job, times)
        executor._run_job_success = lambda job, events: self._succeeded(success, job, events)
        executor._run_job_error = lambda job, exc, traceback=None: self._failed(error, job, exc, traceback)
        executor._cronsensus_submit = submit

    def _submit(self, executor: Any, submit: Callable[..., Any], job: Any, times: Sequence[datetime]) -> None:
        """Acquire times, and submit those that are won.

        With a memory store on another thread: the scheduler's thread holds a lock meanwhile, or is the event loop. With
        a shared store at once: a death between moving the job to its next time and acquiring would lose the time.
        """
        if needs_no_guard(self._scheduler, job):
            submit(job, times)
            return
        from apscheduler.executors.base import MaxInstancesReachedError

        participant, named_at = self._participant, datetime.now(UTC)
        if participant is None and self._store_wait is not None:
            self._report(job, times, StoreUnavailable("it has not been reached since the start"))
            return
        if participant is None:
            raise ConfigurationError("the guarded scheduler was shut down; nothing runs unguarded")
        times = [time.astimezone(UTC) for time in times]
        late = [time for time in times if is_late(job, time, named_at)]
        in_time = [time for time in times if time not in late]
        with self._lock:
            # Its own limit first: a replica that is full does not compete, so another replica gets the time. What is
            # only being asked for does not count: where the store is slow, all replicas would hold back, and nobody run
            # it.
            full = self._is_full(executor, job)
            self._jobs[job.id] = job
            self._jobs.move_to_end(job.id)
            while len(self._jobs) > MOST_REMEMBERED:
                participant.withdraw(job_name(self._jobs.popitem(last=False)[0]))
        in_background = is_memory(self._scheduler, job._jobstore_alias)
        if late:
            self._ask(
                participant,
                job,
                late,
                "late",
                lambda answer: self._hand_out(executor, job, late, named_at, answer),
                in_background=in_background,
            )
        if in_time and full:
            # APScheduler itself sends the event.
            self._ask(
                participant, job, in_time, "full",
                lambda answer: self._wait_if_early(executor, job, in_time, named_at, answer),
                in_background=in_background,
            )  # fmt: skip
            raise MaxInstancesReachedError(job)

        def on_answer(answer: Answer | Exception) -> None:
            self._hand_out(executor, job, in_time, named_at, answer)

        if in_time and not full:
            if not in_background:
                self._announced[job.id] = None
            self._ask(participant, job, in_time, "run", on_answer, in_background=in_background)

    def _is_full(self, executor: Any, job: Any) -> bool:
        return bool(executor._instances[job.id] + self._submitting[job.id] >= job.max_instances)

    def _ask(
        self,
        participant: Outside,
        job: Any,
        times: Sequence[datetime],
        intent: Intent,
        on_answer: Callable[[Answer | Exception], object],
        *,
        in_background: bool,
    ) -> None:
        spec = _spec(job)
        ask = Ask(spec.name, tuple(times), intent)
        if in_background:
            participant.acquire_soon((spec, ask), on_answer)
            return
        try:
            [answer] = participant.acquire([(spec, ask)])
        except (StoreError, LeaseLost) as error:
            on_answer(error)
        else:
            on_answer(answer)

    def _hand_out(
        self,
        executor: Any,
        job: Any,
        times: Sequence[datetime],
        named_at: datetime,
        answers: Answer | Exception,
    ) -> None:
        """Hand over claims that are won, report refusals, and wait for times that are early."""
        self._report(job, times, answers)
        self._wait_if_early(executor, job, times, named_at, answers)
        won = [] if isinstance(answers, Exception) else [claim for claim in answers if isinstance(claim, Won)]
        if won:
            waited = (datetime.now(UTC) - named_at).total_seconds()
            self._hand_over(executor, view_of(job, waited=waited), won)

    def _wait_if_early(
        self,
        executor: Any,
        job: Any,
        times: Sequence[datetime],
        named_at: datetime,
        answers: Answer | Exception,
    ) -> None:
        """Acquire times again that came too early by the store's clock: APScheduler names no time twice."""
        participant = self._participant
        if participant is None or isinstance(answers, Exception):
            return
        early = [time for time, answer in zip(times, answers, strict=True) if _is_early(answer)]
        if not early:
            return
        if not self._is_ahead:
            self._is_ahead = True
            _log.warning(
                "the clock of this process is ahead of the store's: %s came due here too early; its times are run when "
                "the store's clock says them. Set this machine's clock",
                job.id,
            )
        for time in early:
            participant.submit_at(time, partial(self._name_again, executor, job, time, named_at))

    def _name_again(self, executor: Any, job: Any, time: datetime, named_at: datetime) -> None:
        """Acquire a time that was early. By the store's clock it is not late now."""
        participant = self._participant
        if participant is None or self._ends:
            return
        with self._lock:
            intent: Intent = "full" if self._is_full(executor, job) else "run"
        self._ask(
            participant,
            job,
            [time],
            intent,
            lambda answers: self._hand_out(executor, job, [time], named_at, answers),
            in_background=True,
        )

    def _report(self, job: Any, times: Sequence[datetime], answers: Answer | Exception) -> None:
        """Log whether the store answers, and send this replica's listeners the verdicts that it has recorded."""
        if isinstance(answers, Exception):
            if not self._away:
                self._away = True
                _log.error("the store cannot be asked, so nothing is run until it can: %s", answers)
            return
        if self._away:
            self._away = False
            _log.warning("the store answers again; what came due meanwhile was not run by this process")
        local = [time.astimezone(self._scheduler.timezone) for time in times]
        for event in events_of_refusals(job, local, answers):
            self._original["_dispatch_event"](event)

    def _hand_over(self, executor: Any, view: Any, won: Sequence[Won]) -> None:
        """Submit a view of the job to the executor, on the thread that it needs; at a stop release the claim."""
        loop: asyncio.AbstractEventLoop | None = getattr(executor, "_eventloop", None)
        if loop is None:
            self._submit_won(executor, view, won)
            return
        with self._lock:
            ends = self._ends
            if not ends:
                self._on_loop.update(won)
        try:
            if not ends:
                loop.call_soon_threadsafe(self._submit_on_loop, executor, view, won)
                return
        except RuntimeError as error:
            # The loop is closed: its program ended without a shutdown.
            self._name_no_more(error)
        self._release_from_loop(won)

    def _submit_on_loop(self, executor: Any, view: Any, won: Sequence[Won]) -> None:
        with self._lock:
            kept = [claim for claim in won if claim in self._on_loop]
            self._on_loop.difference_update(kept)
        if kept:  # otherwise a shutdown has released it
            self._submit_won(executor, view, kept)

    def _release_from_loop(self, won: Iterable[Won]) -> None:
        """Release claims that no loop will submit any more: they are free for other processes at once."""
        with self._lock:
            self._on_loop.difference_update(won)
        for claim in won:
            self._release_claims(claim)

    def _name_no_more(self, error: RuntimeError) -> None:
        """Acquire nothing more, because an executor accepts no more runs: this process is about to end."""
        with self._lock:
            was_closed, self._closed = self._closed or self._ends, True
        if not was_closed:
            _log.warning(
                "this process runs no more times, and leaves them to others: its executor is closed (%s)", error
            )

    def _submit_won(self, executor: Any, view: Any, won: Sequence[Won]) -> None:
        from apscheduler.events import EVENT_JOB_SUBMITTED, JobSubmissionEvent
        from apscheduler.executors.base import MaxInstancesReachedError

        times = [claim.time.astimezone(self._scheduler.timezone) for claim in won]
        with self._lock:
            self._won.update({(view.id, claim.time): claim for claim in won})
            self._submitting[view.id] += 1
        try:
            executor._cronsensus_submit(view, times)
        except BaseException as error:
            for claim in won:
                with self._lock:
                    self._won.pop((view.id, claim.time), None)
                self._release_claims(claim)
            at_once = self._announced.pop(view.id, self) is None
            if isinstance(error, MaxInstancesReachedError):
                if at_once:
                    raise  # APScheduler sends the event
            elif isinstance(error, RuntimeError) and "shutdown" in str(error):  # as concurrent.futures says
                self._name_no_more(error)
            else:
                _log.exception("%s could not be submitted, and is free for another process", view.id)
            return
        finally:
            with self._lock:
                self._submitting -= Counter([view.id])
        event = JobSubmissionEvent(EVENT_JOB_SUBMITTED, view.id, view._jobstore_alias, times)
        event.won = True
        if view.id in self._announced:
            self._announced[view.id] = event
            return
        self._original["_dispatch_event"](event)

    def _release_claims(self, won: Won) -> None:
        participant = self._participant
        if participant is not None:
            participant.submit(lambda: participant.release(won))

    # --- how it ended -------------------------------------------------------------------------------------------------

    def _succeeded(self, success: Callable[..., Any], job: str, events: Sequence[Any]) -> None:
        success(job, events)
        for event in events:
            verdict = None if _is_cancelled(getattr(event, "exception", None)) else verdict_of_event(event)
            self._settle((job, event.scheduled_run_time.astimezone(UTC)), verdict)

    def _failed(self, error: Callable[..., Any], job: str, exc: BaseException, traceback: Any) -> None:
        error(job, exc, traceback)
        with self._lock:
            # The executor names no time, so take the earliest of its times.
            time = min((time for name, time in self._won if name == job), default=None)
        if time is not None:
            self._settle((job, time), None if _is_cancelled(exc) else verdict_of_error(exc))

    def _settle(self, name: tuple[str, datetime], verdict: Final | None) -> None:
        """Record how a run ended; ``None``: a shutdown cut it off, and another process must run it again."""
        with self._lock:
            won = self._won.pop(name, None)
        participant = self._participant
        if won is None or participant is None:
            return
        if verdict is None:
            participant.submit(lambda: participant.cut_off(won))
        else:
            participant.settle(won, verdict)

    # --- what others left ---------------------------------------------------------------------------------------------

    def _run_leftover(self, won: Won) -> None:
        """Run a job's time that a dead process has left, whatever its grace."""
        name = won.claim.job
        job = next((job for job in self._known_jobs() if job_name(job.id) == name), None)
        executor = None if job is None else self._scheduler._executors.get(job.executor)
        if job is None or executor is None:
            _log.info("%s was left by another process, and is no job of this one any more", name)
            self._release_claims(won)
            if self._participant is not None:
                self._participant.withdraw(name)
            return
        self._hand_over(executor, view_of(job, grace=None), [won])

    def _known_jobs(self) -> list[Any]:
        with self._lock:
            remembered = dict(self._jobs)
        return [*{**remembered, **{job.id: job for job in self._scheduler.get_jobs()}}.values()]

    def _is_asked_for(self, job: str) -> bool:
        with self._lock:
            return job in self._jobs


def _is_early(answer: Won | Refused) -> bool:
    return isinstance(answer, Refused) and answer.why is NotWon.EARLY


def _is_cancelled(error: BaseException | None) -> bool:
    return isinstance(error, (asyncio.CancelledError, CancelledError))


def _spec(job: Any) -> JobSpec:
    name = job_name(job.id)
    # Only the limit decides which runs may overlap, also for runs that are taken over.
    grace = None if job.misfire_grace_time is None else timedelta(seconds=max(job.misfire_grace_time, LEAST_GRACE))
    policies = Policies(concurrency=job.max_instances, overlap="allow", grace=grace)
    return JobSpec(name=name, function=name, policies=policies, source="runtime")
