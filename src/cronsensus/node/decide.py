"""What does a node do next? Pure: no clock, no store, no thread, no chance.

::

    before_look ─▶ settle, adopt, claim without looking; sleep on, or look
    due ─────────▶ plans for what is due, and how many runs to claim
    learn ───────▶ what came of that
    maintain ────▶ which sessions to reclaim, whether to prune
    next_look ───▶ when to look again, or how to sleep in idle mode
    ahead ───────▶ plans for what comes due soon, where this node is first in turn order
    announces ───▶ what others are to hear of what was decided

Each takes what earlier rounds left (``Memory``), what the store showed (``View``), what this process knows of itself
(``Facts``) and a monotonic time in seconds, and returns what to do (``Todo``) and the new memory. ``Round`` carries it
out. Every node computes turn order, active set and partitions alike, without a message. Correctness depends on none of
it: the store carries out a plan once, whichever node brings it. docs/who-fires-when.md has the rules in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.node import idle_mode
from cronsensus.node.backoff import MOST_DOUBLINGS
from cronsensus.node.foresight import FEW, FORECAST_OFF_FOR, HORIZON, Coming, foresee
from cronsensus.node.lead_time import SLACK, ClockSample
from cronsensus.node.pace import GATHER, STALLED, Pace
from cronsensus.node.planned import at_once, fair_part, plans_of
from cronsensus.node.situation import NEVER, Facts, Fired, Memory, Question, Todo
from cronsensus.node.turn_order import ACTIVE, STAGGER, idle_until, is_active, lookout, next_sweep, partition_of, turn
from cronsensus.stores.values import AT_ONCE, View

# --- waits ------------------------------------------------------------------------------------------------------------

POLL = 180.0
"""Most seconds between looks when nothing runs and nothing is due, where the store notifies nodes."""
TEND = 30.0
"""Seconds between two times that a node sees to what its program always needs in the store: the runs of its alerts."""
RECENTLY_ACTIVE = 10.0
"""Where no notification reaches it, a node looks every ``watch`` for so many seconds after it saw something run or come
due: what comes next is more likely to come soon. From then on nodes look in turns (``lookout``)."""
ANNOUNCE_MIN_NODES = 3
"""The fewest nodes among which a decision is announced. Of two, one decides and the other looks."""
TAKEOVER_ROUND_TRIPS = 8
"""Round trips by which a look at what others run comes sooner: a takeover takes ten of them, beside its waits."""
AFTER_A_LOST_RACE = 0.002
"""Seconds until a job that another node fired is looked at again; doubles with each race lost in a row."""
CLOCK_SET = timedelta(seconds=5)
"""A store's clock that moved so much more or less than time passed was set."""


# --- before a look ---------------------------------------------------------------------------------------------------

MOST_DUE = 200
"""Most due jobs of a look."""
LEAST_DUE = 25
"""Jobs that a node fires in a round of a partition, however few it could run now."""
INSTANT = 1e-6
"""Seconds that are not worth a sleep: no clock counts less."""
FULL = 0.05
"""Seconds that a node waits for free slots before it fires more of a partition than it can start."""

LOOK_AFTER_CLAIM = 0.02
"""Look this many seconds after claiming on a notification. By then the claim of another node is committed, and the
thread of its own run has begun: neither meets this look."""


def before_look(memory: Memory, facts: Facts, now: float, claimed: int | None = None) -> tuple[Todo, Memory]:
    """Decide whether to settle, to adopt lost claims, to sleep on, to claim without looking, or to look.

    Whatever but a sleep and a look is carried out, and then asked again: ``claimed`` tells what came of a claim.
    """
    if claimed is None and facts.reserved:
        if _hands_back(facts):
            return Todo(hand_back=True), replace(memory, pace=Pace(0.0, now, facts.ends))
        if (wait := _gathers(memory, facts, now)) > 0:
            return Todo(sleep=wait), memory
    if claimed is None and (facts.unsettled or facts.progress_in == 0.0):
        if facts.unsettled:
            # There is room for something else.
            memory = replace(memory, idle=None)
        memory = replace(memory, pace=memory.pace.after(facts.ends, now, full=memory.full), stepped_at=now)
        if memory.alone:
            return Todo(settle=True), memory
        want, reserve = _without_look(memory, facts, now), _reserve(memory, facts, now)
        memory = _note_notification(memory, facts, now, want)
        return Todo(settle=True, want=want, reserve=reserve, nodes=memory.nodes), memory
    if facts.in_doubt and not facts.lost:
        return Todo(adopt=True), memory
    if facts.draining or facts.lost:
        wait = facts.watch if facts.progress_in is None else min(facts.watch, facts.progress_in)
        return Todo(sleep=0.0 if facts.unsettled or facts.lost else wait), memory
    if memory.idle is not None:
        idle, neighbours = idle_mode.go_on(memory.idle, memory.neighbours, facts, now)
        memory = replace(memory, idle=idle, neighbours=neighbours)
        if idle is not None:
            return Todo(sleep=min(idle.watch_at, idle.until) - now), memory
        memory = replace(memory, look_at=now)
    if claimed is None and (want := _without_look(memory, facts, now)):
        memory = _note_notification(memory, facts, now, want)
        return Todo(want=want, reserve=_reserve(memory, facts, now), nodes=memory.nodes), memory
    return _look_or_wait(memory, facts, now, claimed or 0)


def _look_or_wait(memory: Memory, facts: Facts, now: float, claimed: int) -> tuple[Todo, Memory]:
    """Decide whether to look, or to wait for free slots."""
    memory = _hear(memory, facts, now)
    if memory.full and (claimed or _needs_no_look(memory, facts, now)):
        if not facts.free:
            return Todo(sleep=max(0.0, min(facts.watch, memory.look_at - now))), memory
        memory = replace(memory, full=False)
    elif _foresees(memory, facts, now):
        return Todo(foreseen=True), memory
    elif (
        wait := max(_spares(memory, facts, now), 0.0 if claimed else _seconds_until_look_useful(memory, facts, now))
    ) > INSTANT:
        return Todo(sleep=wait if facts.progress_in is None else min(wait, facts.progress_in)), memory
    if memory.partition is not None:
        memory = replace(memory, waits=claimed > 0)
        left = memory.fired_at + FULL - now
        if left > 0 and facts.free < LEAST_DUE:
            return Todo(sleep=left), memory
        limit = min(MOST_DUE, max(LEAST_DUE, facts.free))
        return Todo(look=Question(limit=limit, partition=memory.partition, ahead=AT_ONCE)), memory
    wide = facts.told and not memory.in_idle_mode and now >= memory.blind_until
    within = HORIZON if wide else timedelta(seconds=memory.lead.seconds + SLACK)
    return Todo(look=Question(limit=MOST_DUE, partition=None, ahead=within)), replace(memory, wide=wide)


def _hear(memory: Memory, facts: Facts, now: float) -> Memory:
    """Go on to the next due time where this node's turn has come, and it has heard that others decided."""
    while memory.listens and memory.coming is not None and now >= memory.look_at - INSTANT:
        if _may_be_new(memory, facts) or (after := memory.coming.unless(facts.announced)) is None:
            break
        memory = _look_at_turn(memory, facts, after)
    return memory


def _seconds_until_look_useful(memory: Memory, facts: Facts, now: float) -> float:
    """Return the seconds until a look may show something new; 0: now.

    Where notifications tell of work, the end of a run changes nothing for this node but its free slots: unless more
    waited for one at the last look, the next look comes when it was to come anyway.
    """
    return 0.0 if _may_be_new(memory, facts) else memory.look_at - now


def _may_be_new(memory: Memory, facts: Facts) -> bool:
    return facts.news or not facts.told or not facts.trusted or memory.backlog or memory.partition is not None


def _foresees(memory: Memory, facts: Facts, now: float) -> bool:
    """Whether it is time to decide ahead, by what the last look showed."""
    instant = memory.ours
    if memory.coming is None or instant is None or instant == memory.decided:
        return False
    due = _time_of(memory, instant)
    begins, ends = due - memory.lead.seconds - SLACK, due + STAGGER.total_seconds()  # then it is the second's turn
    return begins <= now < min(ends, memory.else_at) and not _may_be_new(memory, facts)


def _note_notification(memory: Memory, facts: Facts, now: float, want: int) -> Memory:
    """Note since when a notification waits for its look: the first one since the last look."""
    return replace(memory, notified_at=now) if facts.notified and want and memory.notified_at == NEVER else memory


def _spares(memory: Memory, facts: Facts, now: float) -> float:
    """Return for how many seconds the look for a notification waits: all work that it told of is claimed by then.

    A claim that leaves slots free has left nothing. What else the notification may tell of can wait for a moment, but
    not what is due by then.
    """
    if not facts.free or not facts.trusted or memory.partition is not None:
        return 0.0
    return min(memory.notified_at + LOOK_AFTER_CLAIM, memory.look_at) - now


def _without_look(memory: Memory, facts: Facts, now: float) -> int:
    """Return how many runs to claim without looking.

    A notification mostly tells of work, and that waits for its start; the look comes afterwards. In a long queue a
    claim that came back full is followed by the next one, but for what is due to be fired. In a partition, what was
    created and waits is started before more is fired, in the order of due times.
    """
    if facts.in_doubt or facts.draining or memory.idle is not None:
        return 0
    waits = memory.partition is not None and memory.waits
    return facts.room if facts.notified or waits or (memory.full and _needs_no_look(memory, facts, now)) else 0


def _hands_back(facts: Facts) -> bool:
    """Whether what is reserved goes back: this node is to take nothing new, or it is slower than it was.

    Others may have free slots, and begin it at once.
    """
    stalled = facts.reserved_for is not None and facts.reserved_for > STALLED
    return stalled or facts.draining or not facts.trusted


def _gathers(memory: Memory, facts: Facts, now: float) -> float:
    """Return for how many seconds results are gathered for one step: the slots have enough to do meanwhile."""
    if facts.few_reserved or facts.in_doubt or memory.alone or not memory.full:
        return 0.0
    return min(memory.stepped_at + GATHER, memory.look_at, memory.looked_at + facts.watch) - now


def _reserve(memory: Memory, facts: Facts, now: float) -> int:
    """Return how many runs to claim for slots that are soon free, so that these need not wait for the store.

    Only in a long queue that is not shared out.
    """
    if not memory.full or memory.partition is not None or not _needs_no_look(memory, facts, now):
        return 0
    if facts.in_doubt or facts.draining or not facts.may_claim or facts.given_up or not facts.few_reserved:
        return 0
    return max(0, memory.pace.reserve - facts.reserved)


def _needs_no_look(memory: Memory, facts: Facts, now: float) -> bool:
    return now < min(memory.looked_at + facts.watch, memory.look_at)


# --- after a look ----------------------------------------------------------------------------------------------------

TIDY = 600.0
"""Most seconds between two calls of ``reclaim``: sessions that hold nothing show in no view."""
SET_ASIDE = 60.0
"""Seconds for which a job is left alone whose plan the store cannot take."""
HOUSEKEEPING = 3600.0
"""Seconds between two rounds of pruning."""


def looked(memory: Memory, view: View, asked_at: float, received_at: float) -> Memory:
    """Take in a look that was asked and answered at these times."""
    at, took = (asked_at + received_at - view.age) / 2, received_at - asked_at
    if memory.wide and (view.more or len(view.jobs) > FEW):
        memory = replace(memory, blind_until=received_at + FORECAST_OFF_FOR)
    return replace(
        memory,
        coming=None,
        looked_at=at,
        notified_at=NEVER,
        look_took=took,
        sample=ClockSample(view.now, at),
        lead=memory.lead.after_look(took - view.age, took if view.jobs else None),
        absences=memory.absences.after(view, asked_at, received_at),
        nodes=max(1, len(view.sessions)),
    )


def clock_set(before: Memory, after: Memory) -> timedelta:
    """Return by how much the store's clock was set between two looks: ahead, or back (negative); zero: it was not."""
    if before.sample is None or after.sample is None:
        return timedelta(0)
    by = after.sample.now - before.sample.now - timedelta(seconds=after.looked_at - before.looked_at)
    return by if abs(by) > CLOCK_SET else timedelta(0)


def due(memory: Memory, view: View, facts: Facts, now: float) -> tuple[Todo, Memory]:
    """Decide what to do about what is due: which plans to bring, and how many runs to claim with them."""
    early = timedelta(0)
    if memory.expected is not None and memory.expected <= view.now:
        early = turn(facts.session, view.sessions, memory.expected) - view.now
    jobs = view.due
    if memory.wide and view.more and len(jobs) < len(view.jobs):
        return Todo(again=True), memory  # less far: too many come due to tell whether too many are due
    if not jobs:
        memory = replace(memory, lost_races=0)
    if early > timedelta(0):
        return Todo(early=early), memory
    if memory.partition is None and jobs:
        helping = memory.helping and view.more
        partition = partition_of(facts.session, view.sessions) if view.more and not helping else None
        memory = replace(memory, helping=helping, partition=partition)
        if partition is not None:
            # The next look is at this node's partition. Idle nodes have one, too.
            want = facts.room if view.backlog else 0
            return Todo(want=want, notify=len(view.sessions) > ACTIVE, again=True, early=early), memory
    chosen, left = at_once(jobs, memory, now)
    plans, not_planned = plans_of(chosen, view.now)
    planned = sum(len(each.occurrences) for each in plans)
    want = fair_part(planned, view, facts, memory) if planned or view.backlog else 0
    internal = view.backlog and facts.internal and facts.may_claim and not facts.free
    todo = Todo(plans=plans, want=want, internal=internal, early=early, again=left, not_planned=not_planned)
    return todo, memory


def learn(memory: Memory, view: View, facts: Facts, now: float, *, todo: Todo, fired: Fired) -> tuple[bool, Memory]:
    """Take in what came of ``due``; return whether to look again at once, because more is due."""
    again, won, lost = todo.again, len(fired.won), fired.lost
    memory = replace(
        memory,
        fruitless=memory.fruitless + 1 if view.backlog and not fired.claimed else 0,
        backlog=view.backlog or fired.created > fired.claimed,
        full=not facts.free and (fired.claimed > 0 or view.backlog),
    )
    memory = _after_races(memory, lost, taken=todo.plans)
    coming = fired.coming(view.now)
    again |= coming is not None and coming <= view.now
    tried = bool(todo.plans or todo.not_planned)
    begins = todo.again and not tried
    if begins or todo.early > AT_ONCE or not (tried or memory.partition is not None):
        return again, memory
    memory = replace(
        memory,
        fired_at=now,
        waits=view.backlog or fired.created > fired.claimed,
        most_plans=min(MOST_DUE, 2 * memory.most_plans),
    )
    if memory.partition is None:
        # After more races lost than won this node is in the way of those whose partition it is.
        memory = replace(memory, helping=memory.helping and lost <= won)
        return again or (won > 0 and view.more), memory
    if won and view.more:
        return True, memory
    # Through with its partition, or it leads nowhere: the next look is at everything.
    return again or won > 0 or not view.jobs, replace(memory, partition=None, helping=True)


def settled(memory: Memory, *, ok: bool) -> Memory:
    """Take in whether a step with results was taken. If not, they are said again with nothing that could undo them."""
    return replace(memory, alone=not ok)


def failed(memory: Memory, plans: Sequence[Plan], now: float, *, passing: bool) -> Memory:
    """Take in that a step with these plans failed; ``passing``: for a reason that passes, as a lock or an outage.

    One plan that the store cannot take must not stop the others. So the next step has half as many plans, and the job
    of one that fails alone is set aside for a while; if the reason passes, it only comes after the others, because
    nothing is to be late after an outage.
    """
    if len(plans) == 1 and passing:
        return replace(memory, most_plans=1, behind=memory.behind | {plans[0].job_id})
    if len(plans) == 1:
        alone = plans[0].job_id, plans[0].revision, now + SET_ASIDE
        still = tuple(one for one in memory.set_aside if now < one[2])
        return replace(memory, set_aside=(*still, alone))
    return replace(memory, most_plans=len(plans) // 2) if plans else memory


def learn_ahead(memory: Memory, facts: Facts, fired: Fired, took: float, now: float, *, foreseen: bool) -> Memory:
    """Take in what came of ``ahead``, and how many seconds the step took.

    The look before it is a part of the way, unless the plans were ``foreseen``.
    """
    memory = replace(memory, lead=memory.lead.after(took if foreseen else memory.look_took + took))
    if facts.lost:
        return memory
    memory = _after_races(memory, fired.lost, taken=fired.won)
    coming, instant = memory.coming, memory.decided
    if coming is None or instant is None:
        return memory
    if foreseen and fired.lost:
        # Something is not as it was foreseen: perhaps there is the time to look, and to decide it ahead after all.
        return replace(memory, coming=None, ours=None, decided=None, look_at=now)
    if {job.id for job in coming.at(instant)} != {each.job_id for each in fired.won} or fired.created > fired.claimed:
        return _at_its_time(memory, instant)
    return _look_at_turn(memory, facts, coming.after(instant))


def announces(view: View, fired: Fired, *, told: bool, foreseen: bool) -> dict[int, datetime]:
    """Return what others are to hear of what this node decided: where three nodes or more may have foreseen it."""
    if not told or len(view.sessions) < ANNOUNCE_MIN_NODES or view.more or view.backlog or len(view.jobs) > FEW:
        return {}
    if not foreseen and all(each.next_due is None or each.next_due > view.now + HORIZON for each in fired.won):
        return {}
    return {each.job_id: each.watermark for each in fired.won}


def _look_at_turn(memory: Memory, facts: Facts, coming: Coming) -> Memory:
    memory, at = _await(memory, facts, coming)
    before = 0.0 if memory.ours is None else memory.lead.seconds
    return replace(memory, look_at=min(memory.else_at, _time_of(memory, at) - before))


def _at_its_time(memory: Memory, instant: datetime) -> Memory:
    """Look when ``instant`` has come, for what could not be decided ahead."""
    return replace(memory, coming=None, ours=None, look_at=min(memory.else_at, _time_of(memory, instant)))


def _time_of(memory: Memory, instant: datetime) -> float:
    return memory.look_at if memory.sample is None else memory.sample.time_of(instant)


def _after_races(memory: Memory, lost: int, taken: Iterable[Plan]) -> Memory:
    # A node that was faster knows when its jobs are due next; this node does not. A job whose plan the store took waits
    # behind no other any more.
    behind = memory.behind - {each.job_id for each in taken}
    return replace(memory, lost_races=memory.lost_races + 1 if lost else 0, behind=behind)


def maintain(memory: Memory, view: View, facts: Facts, now: float) -> tuple[Todo, Memory]:
    """Decide what to do about what others left: overdue or dead sessions, what is parked, what was kept long enough.

    A node may find its own session overdue, and never dead. One batch is pruned a round, so that nothing due waits.
    """
    dead: tuple[str, ...] = ()
    if facts.fast_evidence:
        others = [holder.id for holder in view.holders if holder.id != facts.session]
        dead = tuple(one for one in others if one in facts.gone or memory.absences.is_gone(one))
    overdue = any(holder.expires_in <= timedelta(0) for holder in view.holders)
    prune = now - memory.pruned_at > HOUSEKEEPING
    sweep = view.parked and is_active(facts.session, view.sessions, view.now)
    if not dead and not overdue and now - memory.reclaimed_at < TIDY:
        return Todo(prune=prune, sweep=sweep), memory
    return Todo(reclaim=dead, prune=prune, sweep=sweep), replace(memory, reclaimed_at=now)


# --- until the next look ---------------------------------------------------------------------------------------------


def next_look(
    memory: Memory, view: View, facts: Facts, now: float, *, early: timedelta, coming: datetime | None, again: bool
) -> tuple[Todo, Memory]:
    """Decide when to look again: at the earliest of the moments at which something concerns this node.

    Args:
        memory: after ``learn``.
        view: what the look of this round showed.
        facts: as they are now.
        now: monotonic seconds.
        early: how long this node leaves what is due to nodes before it in turn order.
        coming: when the next of what it fired itself is due.
        again: look at once.
    """
    if again or facts.unsettled or facts.lost:
        return Todo(sleep=0.0), replace(memory, look_at=memory.looked_at)
    renew = not facts.trusted
    waits, memory = _waits_anyway(memory, view, facts, now)
    memory, until_due = _waits_for_due_times(memory, view, facts, early, coming)
    others = [holder.expires_in.total_seconds() for holder in view.holders if holder.id != facts.session]
    for left in others:
        # The lease of another node's runs: the active set watches them, an idle node only comes after its end.
        waits.append(max(0.0, left) + facts.watch if memory.in_idle_mode else min(_watch(memory, facts), left))
    if view.backlog and (facts.free or facts.internal):
        # What waits and is not for this node to claim: blocked behind a run, or no function or no slot for it here.
        waits.append(facts.watch * 2.0 ** min(max(0, memory.fruitless - 1), MOST_DOUBLINGS))
    if facts.progress_in is not None:
        waits.append(facts.progress_in)
    if facts.given_up or renew:
        waits.append(facts.watch)
    if facts.fast_evidence:
        holders = [holder.id for holder in view.holders if holder.id != facts.session]
        if (certain := memory.absences.certain_at(holders)) is not None:
            waits.append(certain - memory.looked_at)
    memory = replace(
        memory, else_at=memory.looked_at + min(waits), look_at=memory.looked_at + min([*waits, *until_due])
    )
    if not memory.in_idle_mode:
        return Todo(renew=renew), memory
    return idle_mode.begin(memory, view, facts, now, runs=bool(others))


def _watch(memory: Memory, facts: Facts) -> float:
    """Return the seconds between looks at what others run: fewer far from the store, where a takeover takes longer."""
    return max(facts.watch / 2, facts.watch - TAKEOVER_ROUND_TRIPS * memory.lead.trip)


def _waits_anyway(memory: Memory, view: View, facts: Facts, now: float) -> tuple[list[float], Memory]:
    """Return the seconds from the look to the next one where nothing comes due."""
    if view.holders or view.jobs or view.backlog:
        memory = replace(memory, active_at=now)
    # What watches for alerts may be gone; else it is looked for far more often.
    waits = [TEND if facts.internal else POLL]
    if not facts.told:
        lately = now - memory.active_at <= RECENTLY_ACTIVE
        waits = [_watch(memory, facts) if lately else lookout(facts.session, view.sessions, view.now).total_seconds()]
    if view.parked:
        waits.append((next_sweep(facts.session, view.sessions, view.now) - view.now).total_seconds())
    if memory.lost_races:
        waits.append(AFTER_A_LOST_RACE * 2.0 ** min(memory.lost_races, MOST_DOUBLINGS))
    return waits, memory


def _waits_for_due_times(
    memory: Memory, view: View, facts: Facts, early: timedelta, coming: datetime | None
) -> tuple[Memory, list[float]]:
    """Return the seconds from the look to this node's turn for what is due next."""
    if early > AT_ONCE and (view.due or view.backlog):
        return replace(memory, ours=None), [early.total_seconds()]
    foreseen = foresee(view) if memory.wide and coming is None and not memory.lost_races else None
    if foreseen is not None and is_active(facts.session, view.sessions, foreseen.instant):
        memory, at = _await(replace(memory, in_idle_mode=False), facts, foreseen)
        return memory, [(at - view.now).total_seconds()]
    expected = min((at for at in (view.next_job, view.next_pending, coming) if at is not None), default=None)
    idle = facts.told and not is_active(facts.session, view.sessions, expected)
    ours, waits = None, []
    if expected is not None:
        at = (idle_until if idle else turn)(facts.session, view.sessions, expected)
        waits.append((at - view.now).total_seconds())
        if at == expected and expected in {view.next_job, coming}:
            ours = expected
    return replace(memory, expected=expected, in_idle_mode=idle, ours=ours), waits


def _await(memory: Memory, facts: Facts, coming: Coming) -> tuple[Memory, datetime]:
    """Return when this node's next turn is, of what is foreseen; ``coming`` is kept where it may do without a look."""
    lead, trip = timedelta(seconds=memory.lead.seconds + SLACK), timedelta(seconds=memory.lead.trip)
    next_turn = coming.turn_of(facts.session, lead, trip)
    ours = next_turn.instant if next_turn.first else None
    kept = coming if next_turn.first or next_turn.listens else None
    memory = replace(memory, coming=kept, listens=next_turn.listens, expected=next_turn.instant, ours=ours)
    return memory, next_turn.at


def ahead(memory: Memory, view: View, facts: Facts, now: float) -> tuple[Todo, Memory]:
    """Decide what comes due next shortly before it does, if this node is first in turn order for it.

    Each instant is decided ahead once: whatever comes of it, the rest is for the look at the due time.
    """
    instant = memory.ours
    if instant is None or instant == memory.decided:
        return Todo(), memory
    if memory.coming is not None:
        view = memory.coming.view
    begins = _time_of(memory, instant) - memory.lead.seconds
    if now < begins - SLACK:
        return Todo(), replace(memory, look_at=min(memory.look_at, begins))
    if instant != memory.sought and all(job.due_at != instant for job in view.jobs):
        # The look did not go so far, since the round has taken long; or the job was fired in this very round.
        return Todo(), replace(memory, sought=instant, look_at=now)
    memory = replace(memory, decided=instant)
    if not facts.room:
        return Todo(), _at_its_time(memory, instant)
    comes = [job for job in view.jobs if job.due_at is not None and view.now < job.due_at <= instant]
    chosen, _ = at_once([job for job in comes if _is_decided_by_time_alone(job)], memory, now)
    plans, not_planned = plans_of(chosen, instant)
    within = timedelta(seconds=memory.lead.seconds + SLACK)
    if not plans:
        memory = _at_its_time(memory, instant)
    planned = sum(len(each.occurrences) for each in plans)
    want = fair_part(planned, view, facts, memory) if planned else 0
    return Todo(plans=plans, want=want, ahead=within, not_planned=not_planned), memory


def _is_decided_by_time_alone(job: JobState) -> bool:
    """Whether nothing that may yet happen before its due time has a say in what comes of it.

    The occurrence before may be over by then, and overlap is judged at the due time.
    """
    return job.active == 0 or job.spec.policies.overlap == "allow"


def sleep(memory: Memory, facts: Facts, now: float) -> tuple[float, Memory]:
    """Return the seconds to sleep until the next look."""
    look_at = memory.look_at
    if facts.begins_in is not None:
        # A run that waits for its due time begins a little after it by the best guess: one look for both is enough.
        look_at = max(look_at, now + facts.begins_in)
    return max(0.0, look_at - now), replace(memory, look_at=look_at)
