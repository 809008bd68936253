"""What does a node do next? Pure: no clock, no store, no thread, no chance.

::

    next_step ──▶ Adopt │ Release │ Work │ Look │ Sleep
                                     │      │
                               note_work    │
                                            └──▶ note_look ──▶ plan_firing ──▶ plan_upkeep ──▶ set_alarm

Each takes what earlier rounds left (``Memory``), what the store showed (``View``), what this process knows of itself
(``Facts``) and a monotonic time in seconds. ``Round`` carries out what they return. There is one alarm, ``look_at``:
the earliest moment at which something concerns this node. Correctness depends on none of it: the store carries out a
plan once, whichever node brings it. docs/who-fires-when.md has the rules in words.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.model.job import JobState, is_internal
from cronsensus.node.backoff import MOST_DOUBLINGS, random_share
from cronsensus.node.careful import plans_of
from cronsensus.node.lead_time import SLACK, ClockSample
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

INSTANT = 1e-6
"""Seconds that are not worth a sleep: no clock counts less."""
SHARED_FROM = 8
"""Occurrences fired at once from which a node leaves the others their part."""

ENSURE_RUNS_EVERY = 30.0
"""Seconds after which a node checks again that the runs which must always be there are in the store."""
RECENTLY_ACTIVE = 10.0
"""Where no notification reaches it, a node looks every ``watch_seconds`` for this long after something ran or came
due: what comes next is more likely to come soon. From then on nodes look in turns (``seconds_to_lookout``)."""
LOOK_AFTER_WORK = 0.02
"""Look this many seconds after a notification was answered by a claim. By then the claim of another node is committed,
and the thread of its own run has begun: neither meets this look."""
LOOKS_APART = 0.1
"""Least seconds between two looks for notifications."""
LATE_LOOK_SECONDS = (0.05, 0.1)
"""Least and most seconds between a notification and the look of a late node: those in front go first."""
AFTER_A_LOST_RACE = 0.01
"""Seconds until a job that another node fired is looked at again; doubles with each round in a row that brings
nothing."""
TAKEOVER_ROUND_TRIPS = 8
"""Round trips by which a look at what others run comes sooner: a takeover takes ten of them, beside its waits."""
CLOCK_SET = timedelta(seconds=5)
"""A store's clock that moved so much more or less than time passed was set."""
TIDY = 600.0
"""Most seconds between two calls of ``reclaim``: sessions that hold nothing show in no view."""
HOUSEKEEPING = 3600.0
"""Seconds between two rounds of pruning."""


# --- before a look ---------------------------------------------------------------------------------------------------


def next_step(memory: Memory, facts: Facts, now: float, *, worked: bool = False) -> tuple[Next, Memory]:
    """Decide what to do now; ``worked``: this round has given and claimed already."""
    if not worked:
        memory = replace(memory, look_at=min(memory.look_at, _look_when_woken(memory, facts, now)))
        first, memory = release_or_gather(memory, facts, now)
        if first is not None:
            return first, memory
        more, memory = plan_reserve(memory, facts, now)
        want = _claim_count(memory, facts)
        if want or more or facts.unsettled or facts.progress_in == 0.0:
            # What another node fired ahead of its time, and cannot run itself, is to begin on time here, too.
            return Work(
                want, more, memory.nodes, _lead_seconds(memory) if want and facts.notified else NO_DELAY
            ), memory
    if facts.lost:
        return Sleep(0.0), memory
    if facts.in_doubt:
        return Adopt(), memory
    if not facts.draining and now >= memory.look_at - INSTANT:
        if (wait := memory.herd.waits_for_slots(facts.free_slots, now)) > INSTANT:
            return Sleep(0.0 if facts.unsettled else wait), memory
        return Look(_lead_seconds(memory), memory.herd.job_limit(facts.free_slots), memory.herd.partition), memory
    if facts.unsettled:
        return Sleep(0.0), memory
    wait = facts.watch_seconds if facts.draining else memory.look_at - now
    return Sleep(wait if facts.progress_in is None else min(wait, facts.progress_in)), memory


def _lead_seconds(memory: Memory) -> timedelta:
    """Return how far before its due time something may be decided now."""
    return timedelta(seconds=memory.lead.seconds + SLACK)


def _look_when_woken(memory: Memory, facts: Facts, now: float) -> float:
    """Return when to look for what woke this node."""
    if memory.late and (facts.asked or facts.notified):
        least, most = LATE_LOOK_SECONDS
        return now + least + random_share(f"{facts.session} {now:.3f}") * (most - least)
    if facts.asked:
        return now
    return max(now + LOOK_AFTER_WORK, memory.looked_at + LOOKS_APART) if facts.notified else memory.look_at


def _claim_count(memory: Memory, facts: Facts) -> int:
    """Return how many runs to claim without a look.

    A notification mostly tells of work. And where more waits than was taken, a slot that got free takes the next.
    """
    if facts.in_doubt or facts.draining or facts.lost or memory.careful.results_alone:
        return 0
    reacts = facts.notified and not memory.late
    takes_next = memory.hungry and (facts.unsettled or memory.herd.partition is not None)
    return facts.free_slots if reacts or takes_next else 0


def note_work(memory: Memory, facts: Facts, now: float, *, want: int, claimed: int, again: bool) -> Memory:
    """Take in what came of ``Work``.

    Args:
        memory: as it was before.
        facts: as they are now.
        now: monotonic seconds.
        want: how many runs were asked for, beside those to reserve.
        claimed: how many came.
        again: something of it waits or is due again, sooner than any look has shown.
    """
    exhausted = memory.hungry and claimed < want
    return replace(
        memory,
        # Where notifications tell of work, the end of a run changes nothing for this node but its free slots.
        look_at=min(memory.look_at, now) if again or exhausted or not facts.hears_notifications else memory.look_at,
        hungry=claimed >= want if want else memory.hungry or claimed > 0,
        careful=memory.careful._replace(results_alone=False),
        pace=None if memory.pace is None else memory.pace._replace(worked_at=now),
    )


# --- after a look ----------------------------------------------------------------------------------------------------


def note_look(memory: Memory, view: View, asked_at: float, received_at: float) -> Memory:
    """Take in a look that was asked and answered at these times."""
    at, took = (asked_at + received_at - view.age) / 2, received_at - asked_at
    return replace(
        memory,
        looked_at=at,
        look_took=took,
        sample=ClockSample(view.now, at),
        nodes=max(1, len(view.sessions)),
        lead=memory.lead.after_look(took - view.age),
        absences=memory.absences.update_absences(view, asked_at, received_at),
    )


def clock_set(before: Memory, after: Memory) -> timedelta:
    """Return by how much the store's clock was set between two looks: ahead, or back (negative); zero: it was not.

    A look says only that the clock was read while it took place: of one that a server answered after it had stood still
    for a while, it is unknown when.
    """
    if before.sample is None or after.sample is None:
        return timedelta(0)
    by = after.sample.now - before.sample.now - timedelta(seconds=after.looked_at - before.looked_at)
    unknown = timedelta(seconds=(before.look_took + after.look_took) / 2)
    return by if abs(by) > CLOCK_SET + unknown else timedelta(0)


def plan_firing(memory: Memory, view: View, facts: Facts, now: float) -> Firing:
    """Decide which plans to bring, and how many runs to claim with them: of the jobs whose turn has come here."""
    if memory.herd.begins_herd(view):
        return Firing(want=facts.free_slots if view.backlog else 0)
    ready = [job for job in view.jobs if _turn_to_fire(memory, view, facts, job, SLACK) <= view.now]
    chosen, left = memory.careful.choose_jobs(ready, now)
    plans, not_planned = plans_of(chosen, view.now)
    planned = sum(len(each.awake) for each in plans)
    soon = any(job.due_at is not None and job.due_at > view.now for job in chosen)
    waits = view.backlog or any(is_internal(job.spec.name) for job in chosen)
    return Firing(
        plans=plans,
        want=_fair_part(planned, view, facts.free_slots) if planned or view.backlog else 0,
        internal=facts.internal and not facts.free_slots and waits,
        ahead=_lead_seconds(memory) if soon else NO_DELAY,
        left=left,
        not_planned=not_planned,
    )


def _fair_part(planned: int, view: View, free_slots: int) -> int:
    """Return how many runs to claim: all free slots, or a fair part where many are fired at once."""
    nodes = len(view.sessions)
    return free_slots if planned < SHARED_FROM or nodes < 2 or view.backlog else min(free_slots, -(-planned // nodes))


def _turn_to_fire(memory: Memory, view: View, facts: Facts, job: JobState, slack: float = 0.0) -> datetime:
    """Return when this node is to fire a job.

    Before its due time only with a free slot, and where nothing that may yet happen has a say in what comes of it: the
    occurrence before may be over by then, and overlap is judged at the due time.
    """
    by_time_alone = job.active == 0 or job.spec.policies.overlap == "allow"
    lead = memory.lead.seconds + slack if facts.free_slots and by_time_alone else 0.0
    due = view.now if job.due_at is None else job.due_at
    return turn_of(
        facts.session, view.sessions, due, lead=timedelta(seconds=lead), hears_notifications=facts.hears_notifications
    )


def plan_upkeep(memory: Memory, view: View, facts: Facts, now: float) -> tuple[Upkeep, Memory]:
    """Decide the upkeep: dead or overdue sessions, parked occurrences, and old rows to prune.

    A node may find its own session overdue, and never dead. One batch is pruned a round, so that nothing due waits.
    """
    dead: tuple[str, ...] = ()
    if facts.fast_evidence:
        others = [holder.id for holder in view.holders if holder.id != facts.session]
        dead = tuple(one for one in others if one in facts.gone or memory.absences.is_gone(one))
    overdue = any(holder.expires_in <= timedelta(0) for holder in view.holders)
    prune = now - memory.pruned_at > HOUSEKEEPING
    sweep = view.parked and is_in_front(facts.session, view.sessions, view.now)
    if not dead and not overdue and now - memory.reclaimed_at < TIDY:
        return Upkeep(None, prune, sweep), memory
    return Upkeep(dead, prune, sweep), replace(memory, reclaimed_at=now)


# --- until the next look ---------------------------------------------------------------------------------------------


def set_alarm(
    memory: Memory, view: View, facts: Facts, now: float, *, firing: Firing, fired: Fired, took: float, again: bool
) -> Memory:
    """Take in what came of ``plan_firing``, and set the alarm: the earliest moment that concerns this node.

    Args:
        memory: as ``plan_upkeep`` left it.
        view: what the look of this round showed.
        facts: as they are now.
        now: monotonic seconds.
        firing: what was to be done.
        fired: what came of it.
        took: how many seconds that took.
        again: look at once.
    """
    herd, more = memory.herd.advance_herd(view, facts.session, now, won=len(fired.won), lost=fired.lost)
    memory = replace(
        memory,
        herd=herd,
        hungry=view.backlog or fired.created > fired.claimed,
        misses=memory.misses + 1 if (fired.lost or view.backlog) and not (fired.won or fired.claimed) else 0,
        careful=memory.careful.after_answer(firing.plans) if firing.plans else memory.careful,
        lead=memory.lead.measured_after(memory.look_took + took) if firing.ahead > NO_DELAY else memory.lead,
        active_at=now if view.holders or view.jobs or view.backlog else memory.active_at,
    )
    # A store whose answer could not be told from one moment says so by a next due time that has come.
    due = [view.next_job, *(each.next_due for each in fired.won)]
    is_due = any(at is not None and at <= view.now for at in due)
    if again or more or is_due or firing.left:
        return replace(memory, look_at=now)
    waits, coming = _seconds_to_turns(memory, view, facts, fired)
    memory = replace(memory, late=facts.hears_notifications and not is_in_front(facts.session, view.sessions, coming))
    waits += _seconds_to_other_reasons(memory, view, facts, now, lost=fired.lost > 0)
    return replace(memory, look_at=memory.looked_at + min(waits))


def _seconds_to_turns(memory: Memory, view: View, facts: Facts, fired: Fired) -> tuple[list[float], datetime | None]:
    """Return the seconds from the look to this node's turns for what is known to come, and when the next of it is due.

    What it fired itself is known further: the look was before.
    """
    won = {each.job_id for each in fired.won}
    left = [job for job in view.jobs if job.id not in won and job.due_at is not None]
    turns = [
        at for at in (_turn_to_fire(memory, view, facts, job) for job in left) if at > view.now
    ]  # the rest was tried
    due = [each.next_due for each in fired.won]
    unclaimed = fired.created > fired.claimed
    begins = [one.due_at for each in fired.won for one in each.awake] if unclaimed else []
    for instants, lead in (([view.next_job, *due], memory.lead.seconds), ([view.next_pending, *begins], 0.0)):
        before = timedelta(seconds=lead if facts.free_slots else 0.0)
        turns += [
            turn_of(facts.session, view.sessions, at, lead=before, hears_notifications=facts.hears_notifications)
            for at in instants
            if at is not None and at > view.now
        ]
    known = [view.next_job, view.next_pending, *due, *begins, *(job.due_at for job in left)]
    coming = min((at for at in known if at is not None and at > view.now), default=None)
    return [max(0.0, (at - view.now).total_seconds()) for at in turns], coming


def _seconds_to_other_reasons(memory: Memory, view: View, facts: Facts, now: float, *, lost: bool) -> list[float]:
    """Return the seconds until the next look that has another reason than a due job."""
    # What watches for alerts may be gone; else it is looked for far more often.
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
        waits.append(AFTER_A_LOST_RACE * 2.0 ** min(max(0, memory.misses - 1), MOST_DOUBLINGS))
    others = [holder for holder in view.holders if holder.id != facts.session]
    for holder in others:
        # The lease of another node's runs: those in front watch them, a late node only comes after its end.
        left = holder.expires_in.total_seconds()
        waits.append(
            max(0.0, left) + facts.watch_seconds if memory.late else min(_seconds_between_looks(memory, facts), left)
        )
    if view.backlog and (facts.free_slots or facts.internal):
        # What waits and is not for this node to claim: blocked behind a run, or no function or no slot for it here.
        waits.append(facts.watch_seconds * 2.0 ** min(max(0, memory.misses - 1), MOST_DOUBLINGS))
    if facts.given_up or not facts.trusted:
        waits.append(facts.watch_seconds)
    if facts.fast_evidence and (certain := memory.absences.certain_at([holder.id for holder in others])) is not None:
        waits.append(certain - memory.looked_at)
    return waits


def _seconds_between_looks(memory: Memory, facts: Facts) -> float:
    """Return the seconds between looks at what others run: fewer far from the store, where a takeover takes longer."""
    return max(facts.watch_seconds / 2, facts.watch_seconds - TAKEOVER_ROUND_TRIPS * memory.lead.trip_seconds)
