"""Decide what a node does next. Pure: no clock, no store, no thread, no chance.

::

    next_step ──▶ Adopt │ Release │ Work │ Look │ Sleep
                                     │      │
                               note_work    │
                                            └──▶ note_look ──▶ plan_firing ──▶ plan_upkeep ──▶ set_alarm

Each function takes what earlier rounds left (``Memory``), what the store returned (``View``), what this process knows
about itself (``Facts``) and a monotonic time in seconds. ``Round`` carries out the decisions. There is one alarm,
``look_at``: the moment at which this node looks at the store next, unless it is woken before. Correctness does not
depend on these decisions: the store carries out a plan once, whichever node sends it. docs/who-fires-when.md has the
rules in words.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.model.job import JobState, is_internal
from cronsensus.node.backoff import MOST_DOUBLINGS, random_share
from cronsensus.node.careful import plans_of
from cronsensus.node.lead_time import EARLY_SLACK, ClockSample
from cronsensus.node.reserving import plan_reserve, release_or_gather
from cronsensus.node.situation import (
    Adopt,
    Facts,
    Fired,
    Firing,
    Look,
    Memory,
    Next,
    Sleep,
    Upkeep,
    Work,
)
from cronsensus.node.turn_order import is_in_front, next_sweep, seconds_to_lookout, turn_of
from cronsensus.stores.values import NO_DELAY, View

SHORTEST_SLEEP = 1e-6
"""Shortest sleep, in seconds: no clock is more precise."""
SHARED_FROM = 8
"""From this many occurrences fired at once, a node claims only its share and leaves the rest to others."""

ENSURE_RUNS_EVERY = 30.0
"""Seconds after which a node checks again that the runs which must always be there are in the store."""
RECENTLY_ACTIVE = 10.0
"""Without notifications, a node looks every ``watch_seconds`` for this long after something ran or came due, because
more work is likely to follow. After that, nodes look in turns (``seconds_to_lookout``)."""
LOOK_AFTER_WORK = 0.02
"""Seconds from a claim that answered a notification to the next look. By then another node's claim is committed and the
thread of this node's own run has started, so neither collides with the look."""
LOOKS_APART = 0.1
"""Least seconds between two looks for notifications."""
DEFERRED_LOOK_SECONDS = (0.05, 0.1)
"""Least and most seconds between a notification and the look of a node that defers to those in front."""
LOST_RACE_PAUSE = 0.01
"""Seconds until a node looks again at a job that another node fired; doubles with each round in a row that brings no
work."""
TAKEOVER_ROUND_TRIPS = 8
"""How many round trips earlier a node looks at what others run: a takeover takes ten of them, beside its waits."""
CLOCK_SET_BY = timedelta(seconds=5)
"""If a store's clock moved by this much more or less than the elapsed time, it was set."""
RECLAIM_EVERY = 600.0
"""Most seconds between two calls of ``reclaim``: no view contains a dead session that holds nothing."""
PRUNE_EVERY = 3600.0
"""Seconds between two rounds of pruning."""


# --- before a look ---------------------------------------------------------------------------------------------------


def next_step(memory: Memory, facts: Facts, now: float, *, worked: bool = False) -> tuple[Next, Memory]:
    """Decide what to do now; ``worked``: whether this round has reported and claimed already."""
    if not worked:
        memory = replace(memory, look_at=min(memory.look_at, _look_when_woken(memory, facts, now)))
        action, memory = release_or_gather(memory, facts, now)
        if action is not None:
            return action, memory
        reserve, memory = plan_reserve(memory, facts, now)
        want = _claim_count(memory, facts)
        if want or reserve or facts.unsettled or facts.progress_in == 0.0:
            # If another node fired an occurrence ahead of its time and cannot run it, it starts on time here, too.
            return Work(
                want, reserve, memory.nodes, _lead_seconds(memory) if want and facts.notified else NO_DELAY
            ), memory
    if facts.lost:
        return Sleep(0.0), memory
    if facts.in_doubt:
        return Adopt(), memory
    if not facts.draining and now >= memory.look_at - SHORTEST_SLEEP:
        if (wait := memory.herd.waits_for_slots(facts.free_slots, now)) > SHORTEST_SLEEP:
            return Sleep(0.0 if facts.unsettled else wait), memory
        return Look(_lead_seconds(memory), memory.herd.job_limit(facts.free_slots), memory.herd.partition), memory
    if facts.unsettled:
        return Sleep(0.0), memory
    wait = facts.watch_seconds if facts.draining else memory.look_at - now
    return Sleep(wait if facts.progress_in is None else min(wait, facts.progress_in)), memory


def _lead_seconds(memory: Memory) -> timedelta:
    """Return how long before its due time a job may be decided now."""
    return timedelta(seconds=memory.lead.seconds + EARLY_SLACK)


def _look_when_woken(memory: Memory, facts: Facts, now: float) -> float:
    """Return when to look, given what woke this node."""
    if memory.defers and (facts.woken or facts.notified):
        least, most = DEFERRED_LOOK_SECONDS
        return now + least + random_share(f"{facts.session} {now:.3f}") * (most - least)
    if facts.woken:
        return now
    return max(now + LOOK_AFTER_WORK, memory.looked_at + LOOKS_APART) if facts.notified else memory.look_at


def _claim_count(memory: Memory, facts: Facts) -> int:
    """Return how many runs to claim without a look.

    A notification usually means work. With a backlog, a node claims the next run whenever a slot becomes free.
    """
    if facts.in_doubt or facts.draining or facts.lost or memory.careful.results_alone:
        return 0
    reacts = facts.notified and not memory.defers
    takes_next = memory.backlog and (facts.unsettled or memory.herd.partition is not None)
    return facts.free_slots if reacts or takes_next else 0


def note_work(memory: Memory, facts: Facts, now: float, *, want: int, claimed: int, pending_again: bool) -> Memory:
    """Update the memory after ``Work``.

    Args:
        memory: as it was before.
        facts: as they are now.
        now: monotonic seconds.
        want: how many runs it wanted to claim, without those to reserve.
        claimed: how many were claimed.
        pending_again: whether an occurrence that this step reported is pending again, sooner than any look has shown.
    """
    exhausted = memory.backlog and claimed < want
    return replace(
        memory,
        # With notifications of new work, the end of a run changes only this node's free slots, so it needs no look.
        look_at=min(memory.look_at, now)
        if pending_again or exhausted or not facts.hears_notifications
        else memory.look_at,
        backlog=claimed >= want if want else memory.backlog or claimed > 0,
        careful=memory.careful._replace(results_alone=False),
        pace=None if memory.pace is None else memory.pace._replace(worked_at=now),
    )


# --- after a look ----------------------------------------------------------------------------------------------------


def note_look(memory: Memory, view: View, asked_at: float, received_at: float) -> Memory:
    """Update the memory after a look that was requested and answered at these times."""
    at, seconds = (asked_at + received_at - view.age) / 2, received_at - asked_at
    return replace(
        memory,
        looked_at=at,
        look_took=seconds,
        sample=ClockSample(view.now, at),
        nodes=max(1, len(view.sessions)),
        lead=memory.lead.after_look(seconds - view.age),
        absences=memory.absences.update_absences(view, asked_at, received_at),
    )


def clock_set(before: Memory, after: Memory) -> timedelta:
    """Return by how much the store's clock was set between two looks: ahead, back (negative), or not (zero).

    A look shows only that the clock was read while it took place. If the server answered after a standstill, the moment
    of reading is uncertain by that much.
    """
    if before.sample is None or after.sample is None:
        return timedelta(0)
    shift = after.sample.now - before.sample.now - timedelta(seconds=after.looked_at - before.looked_at)
    uncertainty = timedelta(seconds=(before.look_took + after.look_took) / 2)
    return shift if abs(shift) > CLOCK_SET_BY + uncertainty else timedelta(0)


def plan_firing(memory: Memory, view: View, facts: Facts, now: float) -> Firing:
    """Decide which plans to send, of the jobs whose turn has come here, and how many runs to claim with them."""
    if memory.herd.begins_herd(view):
        return Firing(want=facts.free_slots if view.backlog else 0)
    ready = [job for job in view.jobs if _turn_to_fire(memory, view, facts, job, EARLY_SLACK) <= view.now]
    selected, more_due = memory.careful.choose_jobs(ready, now)
    plans, not_planned = plans_of(selected, view.now)
    planned = sum(len(plan.awake) for plan in plans)
    any_ahead = any(job.due_at is not None and job.due_at > view.now for job in selected)
    any_waiting = view.backlog or any(is_internal(job.spec.name) for job in selected)
    return Firing(
        plans=plans,
        want=_fair_part(planned, view, facts.free_slots) if planned or view.backlog else 0,
        internal=facts.internal and not facts.free_slots and any_waiting,
        ahead=_lead_seconds(memory) if any_ahead else NO_DELAY,
        more_due=more_due,
        not_planned=not_planned,
    )


def _fair_part(planned: int, view: View, free_slots: int) -> int:
    """Return how many runs to claim: all free slots, or a fair share if many occurrences are fired at once."""
    nodes = len(view.sessions)
    return free_slots if planned < SHARED_FROM or nodes < 2 or view.backlog else min(free_slots, -(-planned // nodes))


def _turn_to_fire(memory: Memory, view: View, facts: Facts, job: JobState, slack: float = 0.0) -> datetime:
    """Return when this node is to fire a job.

    It fires before the due time only with a free slot, and if the plan depends on time alone: overlap is judged at the
    due time, because the earlier occurrence may end before it.
    """
    by_time_alone = job.active == 0 or job.spec.policies.overlap == "allow"
    lead = memory.lead.seconds + slack if facts.free_slots and by_time_alone else 0.0
    due = view.now if job.due_at is None else job.due_at
    return turn_of(
        facts.session, view.sessions, due, lead=timedelta(seconds=lead), hears_notifications=facts.hears_notifications
    )


def plan_upkeep(memory: Memory, view: View, facts: Facts, now: float) -> tuple[Upkeep, Memory]:
    """Decide the upkeep: dead or overdue sessions, parked occurrences, and old rows to prune.

    A node may find its own session overdue, but never dead. A round prunes a single batch of rows, so that due jobs do
    not wait.
    """
    dead: tuple[str, ...] = ()
    if facts.fast_evidence:
        others = [holder.id for holder in view.holders if holder.id != facts.session]
        dead = tuple(session for session in others if session in facts.gone or memory.absences.is_gone(session))
    overdue = any(holder.expires_in <= timedelta(0) for holder in view.holders)
    prune = now - memory.pruned_at > PRUNE_EVERY
    sweep = view.parked and is_in_front(facts.session, view.sessions, view.now)
    if not dead and not overdue and now - memory.reclaimed_at < RECLAIM_EVERY:
        return Upkeep(None, prune, sweep), memory
    return Upkeep(dead, prune, sweep), replace(memory, reclaimed_at=now)


# --- until the next look ---------------------------------------------------------------------------------------------


def set_alarm(
    memory: Memory,
    view: View,
    facts: Facts,
    now: float,
    *,
    firing: Firing,
    fired: Fired,
    firing_seconds: float,
    look_at_once: bool,
) -> Memory:
    """Update the memory after ``plan_firing``, and set the alarm: the moment of the next look.

    Args:
        memory: as ``plan_upkeep`` left it.
        view: the look of this round.
        facts: as they are now.
        now: monotonic seconds.
        firing: what was planned.
        fired: the result.
        firing_seconds: how many seconds firing took.
        look_at_once: look at once.
    """
    herd, herd_goes_on = memory.herd.advance_herd(view, facts.session, now, won=len(fired.won), lost=fired.lost)
    memory = replace(
        memory,
        herd=herd,
        backlog=view.backlog or fired.created > fired.claimed,
        misses=memory.misses + 1 if (fired.lost or view.backlog) and not (fired.won or fired.claimed) else 0,
        careful=memory.careful.after_answer(firing.plans) if firing.plans else memory.careful,
        lead=memory.lead.measured_after(memory.look_took + firing_seconds) if firing.ahead > NO_DELAY else memory.lead,
        active_at=now if view.holders or view.jobs or view.backlog else memory.active_at,
    )
    # If a store could not answer from a single moment, its answer has a next due time in the past.
    due = [view.next_job, *(plan.next_due for plan in fired.won)]
    is_due = any(at is not None and at <= view.now for at in due)
    if look_at_once or herd_goes_on or is_due or firing.more_due:
        return replace(memory, look_at=now)
    waits, coming = _seconds_to_turns(memory, view, facts, fired)
    memory = replace(memory, defers=facts.hears_notifications and not is_in_front(facts.session, view.sessions, coming))
    waits += _seconds_to_other_reasons(memory, view, facts, now, lost=fired.lost > 0)
    return replace(memory, look_at=memory.looked_at + min(waits))


def _seconds_to_turns(memory: Memory, view: View, facts: Facts, fired: Fired) -> tuple[list[float], datetime | None]:
    """Return the seconds from the look to this node's turns for known due times, and the next of these times.

    The plans that it fired itself count, too: they came after the look.
    """
    fired_jobs = {plan.job_id for plan in fired.won}
    not_fired = [job for job in view.jobs if job.id not in fired_jobs and job.due_at is not None]
    turns = [
        at for at in (_turn_to_fire(memory, view, facts, job) for job in not_fired) if at > view.now
    ]  # the others were tried in this round
    due = [plan.next_due for plan in fired.won]
    unclaimed = fired.created > fired.claimed
    starts = [occurrence.due_at for plan in fired.won for occurrence in plan.awake] if unclaimed else []
    for instants, lead in (([view.next_job, *due], memory.lead.seconds), ([view.next_pending, *starts], 0.0)):
        lead_time = timedelta(seconds=lead if facts.free_slots else 0.0)
        turns += [
            turn_of(facts.session, view.sessions, at, lead=lead_time, hears_notifications=facts.hears_notifications)
            for at in instants
            if at is not None and at > view.now
        ]
    known_times = [view.next_job, view.next_pending, *due, *starts, *(job.due_at for job in not_fired)]
    next_time = min((at for at in known_times if at is not None and at > view.now), default=None)
    return [max(0.0, (at - view.now).total_seconds()) for at in turns], next_time


def _seconds_to_other_reasons(memory: Memory, view: View, facts: Facts, now: float, *, lost: bool) -> list[float]:
    """Return the seconds until the next look for each reason other than a due job."""
    # The run that watches for alerts may be missing; otherwise polling comes far more often anyway.
    waits = [ENSURE_RUNS_EVERY if facts.internal else facts.poll_seconds]
    if not facts.hears_notifications:
        lately = now - memory.active_at <= RECENTLY_ACTIVE
        waits = [
            _seconds_between_looks(memory, facts)
            if lately
            else seconds_to_lookout(facts.session, view.sessions, view.now).total_seconds()
        ]
    if view.parked:
        waits.append((next_sweep(facts.session, view.sessions, view.now) - view.now).total_seconds())
    if lost:
        # A node that was faster knows when its jobs are due next; this node does not.
        waits.append(LOST_RACE_PAUSE * 2.0 ** min(max(0, memory.misses - 1), MOST_DOUBLINGS))
    others = [holder for holder in view.holders if holder.id != facts.session]
    for holder in others:
        # Nodes in front watch the lease of another node's runs; a node that defers only looks after its end.
        lease_left = holder.expires_in.total_seconds()
        if memory.defers:
            waits.append(max(0.0, lease_left) + facts.watch_seconds)
        else:
            waits.append(min(_seconds_between_looks(memory, facts), lease_left))
    if view.backlog and (facts.free_slots or facts.internal):
        # This node cannot claim what waits: it is blocked behind a run, or there is no function or slot for it here.
        waits.append(facts.watch_seconds * 2.0 ** min(max(0, memory.misses - 1), MOST_DOUBLINGS))
    if facts.given_up or not facts.trusted:
        waits.append(facts.watch_seconds)
    if facts.fast_evidence and (certain := memory.absences.certain_at([holder.id for holder in others])) is not None:
        waits.append(certain - memory.looked_at)
    return waits


def _seconds_between_looks(memory: Memory, facts: Facts) -> float:
    """Return the seconds between looks at what others run: more if the store is far, where takeovers take longer."""
    return max(facts.watch_seconds / 2, facts.watch_seconds - TAKEOVER_ROUND_TRIPS * memory.lead.trip_seconds)
