"""What a process holds by name, step by step: no thread of its own, and a clock that stands still."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from cronsensus.errors import (
    ConfigurationError,
    LeaseLost,
    PayloadMismatch,
    StoreBusy,
    StoreEmptied,
    StoreUnavailable,
)
from cronsensus.membership.heartbeat import Heartbeat
from cronsensus.membership.session_host import SessionHost
from cronsensus.model.acquiring import NotWon
from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunError, scheduled_key
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.model.step import Step
from cronsensus.once.call_key import CallKey
from cronsensus.once.claims import MAINTAIN_EVERY, MOST_PRUNED, NOT_ASKED_FOR, Claims
from cronsensus.once.payloads import Difference
from cronsensus.outside import claims as outside_claims
from cronsensus.outside.owned_claim import CHECK_INTERVAL, RETRY_INTERVAL, OwnedClaim, Ticket
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance.fixtures import HOUR, LEASE, SECOND, START, a_session
from cronsensus.testing.conformance.steps import an_end, settle, win_named
from cronsensus.timing.clock import ManualClock

KEEP = HOUR
MICROSECOND = timedelta(microseconds=1)
SPEC = JobSpec(name="once:work", function="work", policies=Policies(keep=KEEP))
WANTED = CallKey(SPEC, "k")
SLOT = CallKey.for_slot(SPEC, START)


def payload(value: str) -> str:
    """Return the fingerprint of a call."""
    return json.dumps({"k": "", "p": {"a": value}})


class Noted:
    """Stands for the thread that watches leases, and for the waiters; notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **more: self.told.append((name, *args, *more.items()))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    made = MemoryStore("memory://", clock=clock)
    made.migrate()
    return made


@pytest.fixture
def claims(store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Claims:
    """Return claims whose threads do nothing, so that only the test does."""
    monkeypatch.setattr(Heartbeat, "_beat_once", lambda *_: None)
    made = Claims(store, clock, name="me", release=lambda: "r1", lease=LEASE, fast_evidence=True)
    made._monitor = Noted()  # type: ignore[assignment]
    monkeypatch.setattr(made.background, "add_call", lambda act: act())
    made.waiters = Noted()  # type: ignore[assignment]
    return made


def taken(claims: Claims, wanted: CallKey = WANTED, ticket: Ticket | None = None) -> tuple[OwnedClaim, Ticket]:
    ticket = ticket or Ticket()
    held = claims.acquire_claim(wanted, ticket)
    assert isinstance(held, OwnedClaim)
    held.begun = True
    return held, ticket


def holds(ticket: Ticket) -> bool:
    return ticket.held is not None


def outcome(held: OwnedClaim, state: State = State.SUCCEEDED, **more: Any) -> End:
    return an_end(id=held.claim.id, token=held.claim.token, session=held.claim.session, state=state, **more)


def recorded(claims: Claims) -> list[Occurrence]:
    return claims.store.occurrences(OccurrenceFilter(job=SPEC.name), limit=10)


def kept(claims: Claims) -> set[object]:
    return set(claims._host._held)


def away(monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception, times: int = 1000) -> list[object]:
    """Let the store refuse a verb so often; return where each call is noted."""
    calls: list[object] = []
    real = getattr(MemoryStore, verb)

    def refuse(self: MemoryStore, *args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) <= times:
            raise error
        return real(self, *args, **more)

    monkeypatch.setattr(MemoryStore, verb, refuse)
    return calls


def another(store: MemoryStore, key: str = "k", session: str = "theirs", *, fingerprint: str | None = None) -> Any:
    """Let another process win a key."""
    other = store.sibling()
    other.define_jobs([SPEC], release="r1")
    other.open_session(a_session(session), lease=LEASE)
    claim = win_named(other, session, SPEC.name, key=key, lease=LEASE, fingerprint=fingerprint)
    assert claim is not None
    return claim


# --- what is held -----------------------------------------------------------------------------------------------------


def test_a_process_is_idle_until_it_holds_asks_or_waits(claims):
    assert claims.is_idle
    held, _ = taken(claims)
    assert not claims.is_idle
    assert kept(claims) == {held}
    assert claims._monitor.told == [("monitor_lease", held)]
    claims.record_end(held, outcome(held))
    assert claims.is_idle
    asking = Ticket()
    claims._acquiring_keys[asking] = WANTED.name
    assert not claims.is_idle
    asking.over = True
    assert claims.is_idle
    claims.waiters = [1]
    assert not claims.is_idle


def test_settled_claim_is_dropped_and_waiters_are_notified(claims, clock):
    held, ticket = taken(claims)
    assert holds(ticket)
    clock.advance(2)
    assert claims.record_end(held, outcome(held)).accepted
    assert held.is_over
    assert not holds(ticket)
    assert not kept(claims)
    watched: Any = claims._monitor
    assert watched.told == [("monitor_lease", held), ("drop_lease", held)]
    number = held.claim.id
    assert claims.waiters.told == [("wake_calls", number), ("notify_of_end", number, ("ran_for", 2.0), ("attempt", 1))]
    assert [one.state for one in recorded(claims)] == [State.SUCCEEDED]


def test_a_process_that_closes_gives_everything_back_and_watches_nothing(claims, store):
    held, _ = taken(claims)
    waiters = claims.waiters
    claims.close()
    assert len(claims._host.monitor.timer) == 0
    assert waiters.told[-1] == ("close",)
    assert store.sessions() == []
    assert [one.state for one in store.occurrences(OccurrenceFilter())] == [State.PENDING]
    assert held.run.cancelled.is_set()


def test_the_session_stays_while_a_call_needs_it_and_no_longer(claims):
    held, _ = taken(claims)
    assert claims._host._pins == 0
    assert claims.acquire_claim(WANTED, Ticket()).state is State.RUNNING
    assert claims._host._pins == 0
    claims.record_end(held, outcome(held))
    assert claims._host.is_idle


def test_a_definition_is_put_once(claims, monkeypatch):
    calls = away(monkeypatch, "define_jobs", StoreUnavailable("no"), times=0)
    held, _ = taken(claims)
    claims.record_end(held, outcome(held))
    claims.acquire_claim(WANTED, Ticket())
    assert len(calls) == 1
    claims.acquire_claim(replace(WANTED, spec=replace(SPEC, policies=Policies(keep=2 * KEEP))), Ticket())
    assert len(calls) == 2


def test_a_job_that_the_store_forgot_is_defined_again(claims, monkeypatch):
    held, _ = taken(claims)
    claims.record_end(held, outcome(held))
    calls = away(monkeypatch, "define_jobs", StoreUnavailable("no"), times=0)
    acquire, answers = claims.store.acquire, [[(NotWon.UNKNOWN,)]]
    monkeypatch.setattr(claims.store, "acquire", lambda *a, **k: answers.pop() if answers else acquire(*a, **k))
    taken(claims, replace(WANTED, key="another"))
    assert len(calls) == 1


def test_into_a_store_that_was_emptied_nothing_is_written(claims, monkeypatch):
    def refuse(_: SessionHost) -> NoReturn:
        raise StoreEmptied("it was emptied")

    monkeypatch.setattr(SessionHost, "refuse_if_emptied", refuse)
    calls = away(monkeypatch, "define_jobs", StoreUnavailable("no"), times=0)
    with pytest.raises(StoreEmptied):
        claims.acquire_claim(WANTED, Ticket())
    assert calls == []


def test_an_answer_that_is_lost_leaves_a_short_lease_and_is_told(claims, monkeypatch):
    told: list[Exception] = []
    monkeypatch.setattr(SessionHost, "store_failed", lambda _, error: told.append(error))
    lost = StoreUnavailable("the answer is lost")
    away(monkeypatch, "acquire", lost, times=1)
    with pytest.raises(StoreUnavailable):
        claims.acquire_claim(WANTED, Ticket())
    assert told == [lost]
    assert claims._host._lease.length == LEASE


# --- acquiring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("busy", "wins"), [(2, True), (3, False)])
def test_a_store_that_is_busy_is_asked_three_times(claims, monkeypatch, busy, wins):
    calls = away(monkeypatch, "acquire", StoreBusy("busy"), times=busy)
    if wins:
        taken(claims)
    else:
        with pytest.raises(StoreBusy):
            claims.acquire_claim(WANTED, Ticket())
    assert len(calls) == 3


def test_a_session_that_the_store_calls_dead_is_left_for_a_new_one(claims, monkeypatch):
    first, _ = taken(claims)
    assert claims._host._lease.trusted_for <= LEASE.total_seconds()
    away(monkeypatch, "acquire", LeaseLost("dead"), times=1)
    second, _ = taken(claims, CallKey(SPEC, "other"))
    assert first.session != second.session
    assert first.run.cancelled.is_set()
    assert not second.run.cancelled.is_set()


def test_acquire_raises_when_a_second_session_is_dead_too(claims, monkeypatch):
    away(monkeypatch, "acquire", LeaseLost("dead"))
    with pytest.raises(LeaseLost):
        claims.acquire_claim(WANTED, Ticket())
    assert claims.is_idle
    assert claims._host._pins == 0


@pytest.mark.parametrize("state", [State.CANCELLED, State.FAILED])
@pytest.mark.parametrize("reason", [NOT_ASKED_FOR, "an operator said so"])
def test_only_a_key_closed_as_abandoned_is_forgotten_at_the_next_call(claims, state, reason):
    held, _ = taken(claims)
    claims.record_end(held, outcome(held, state, reason=reason))
    found = claims.acquire_claim(WANTED, Ticket())
    if state is State.CANCELLED and reason == NOT_ASKED_FOR:
        assert isinstance(found, OwnedClaim)
        assert found.claim.id != held.claim.id
        assert [one.why for one in claims.store.trail(limit=1)] == ["asked for again"]
    else:
        assert (found.id, found.state, found.reason) == (held.claim.id, state, reason)


def losing(claims, monkeypatch):
    """Let another process win each key; return the list of the tries."""
    tries = []

    def lose(*wanted):
        tries.append(wanted)
        return NotWon.LOST

    monkeypatch.setattr(claims, "_try_acquire", lose)
    return tries


def test_a_key_that_comes_and_goes_is_an_error_after_ten_looks(claims, monkeypatch):
    tries = losing(claims, monkeypatch)
    monkeypatch.setattr(claims, "_is_paused", lambda _: True)
    with pytest.raises(StoreBusy, match="acquired and freed again and again"):
        claims._acquire_once(WANTED, Ticket())
    assert len(tries) == 10


@pytest.mark.parametrize("paused", [True, False])
def test_paused_job_refuses_a_nominal_time_and_grants_a_key(claims, store, monkeypatch, paused):
    store.define_jobs([SPEC], release="r1")
    if paused:
        store.pause(SPEC.name, by="ann", why="")
    assert claims._is_paused(SPEC) is paused
    assert not claims._is_paused(replace(SPEC, name="once:unknown"))
    taken(claims)
    tries = losing(claims, monkeypatch)
    if paused:
        assert claims._acquire_once(SLOT, Ticket()) is None
        assert len(tries) == 1
    else:
        with pytest.raises(StoreBusy):
            claims._acquire_once(SLOT, Ticket())


# --- another payload --------------------------------------------------------------------------------------------------


def test_claim_with_another_payload_is_given_back(claims, store):
    first = replace(WANTED, fingerprint=payload("1"))
    held, _ = taken(claims, first)
    claims.settle_unneeded(held)
    with pytest.raises(PayloadMismatch, match="an attempt that was cut off"):
        claims._of_this_payload(taken(claims, first)[0], replace(WANTED, fingerprint=payload("2")))
    assert [one.state for one in recorded(claims)] == [State.PENDING]
    assert claims.is_idle


def test_fields_are_named_as_far_as_they_are_known():
    def told(*kinds: int, fields: tuple[str, ...] = ("a", "b"), names: tuple[str, ...] = ()) -> str:
        wanted = replace(WANTED, fields=fields)
        found = Difference(kinds=kinds, names=names, given=("x",), recorded=("y",))
        return str(wanted.payload_mismatch(found, "the other", None))

    assert "payload than the other: a, b in the key is spelled" in told(0, 1)
    assert "payload than the other: a in the key is spelled" in told(0, 2)
    assert "payload than the other: a value in the key is spelled" in told(0, fields=())
    assert "payload than the other: x differs (compared" in told(names=("x",))
    assert "payload than the other: x, y differ (compared" in told(names=("x", "y"))


# --- calls that went away ---------------------------------------------------------------------------------------------


def test_a_look_leaves_alone_what_a_call_of_this_process_runs(claims):
    held, _ticket = taken(claims)
    found = claims.read_occurrence(WANTED)
    assert (found.state, found.token) == (State.RUNNING, held.claim.token)
    assert claims.read_occurrence(replace(WANTED, key="other")) is None
    assert not claims._was_left(found)


def test_a_look_leaves_alone_what_is_over(claims, monkeypatch):
    held, _ = taken(claims)
    claims.record_end(held, outcome(held))
    calls = away(monkeypatch, "step", StoreUnavailable("away"))
    assert claims.read_occurrence(WANTED).state is State.SUCCEEDED
    assert calls == []


def test_a_look_settles_what_a_call_left_behind(claims):
    held, ticket = taken(claims)
    held.begun = False
    ticket.over = True
    assert claims.read_occurrence(WANTED).state is State.PENDING
    assert claims.is_idle


def test_a_look_gives_back_what_this_process_was_given_without_knowing(claims, monkeypatch):
    _held, _ticket = taken(claims)
    claims._held.clear()
    seen = recorded(claims)[0]
    asking = Ticket()
    for asked, over, given in (("k", False, False), ("other", False, True), ("k", True, True)):
        asking.over = over
        claims._acquiring_keys.clear()
        claims._acquiring_keys[asking] = (SPEC.name, asked)
        said: list[Step] = []
        monkeypatch.setattr(MemoryStore, "step", lambda self, session, step, said=said: said.append(step))
        assert claims._was_left(seen) is given
        assert [one.state for step in said for one in step.ends] == [State.PENDING] * given
        monkeypatch.undo()
    assert claims._host._pins == 0
    assert not claims._was_left(replace(seen, session="another's"))
    assert not claims._was_left(replace(seen, session=None))


def test_pending_key_is_left_alone_without_opening_a_session(claims, store):
    claim = another(store)
    settle(claims.store, [an_end(id=claim.id, token=claim.token, state=State.PENDING)])
    seen = recorded(claims)[0]
    assert seen.session is None
    assert not claims._was_left(seen)
    assert [one.id for one in store.sessions()] == ["theirs"]


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("reached", [True, False])
def test_a_call_that_leaves_has_its_end_recorded_or_gives_back_what_never_began(claims, monkeypatch, begun, reached):
    held, ticket = taken(claims)
    held.begun = begun
    held.end_if_left = lambda held: outcome(held, State.FAILED, reason="interrupted")
    if not reached:
        away(monkeypatch, "step", StoreUnavailable("away"), times=1)
        claims._host.discard_resource(held)
    claims.note_owner_gone(ticket)
    assert ticket.over
    assert held.is_over is reached
    assert held.owed is not reached
    assert (held in kept(claims)) is not reached
    if not reached:
        assert recorded(claims)[0].state is State.RUNNING
        assert held.renew_when_due(claims.store) == RETRY_INTERVAL
        assert held.is_over
    assert recorded(claims)[0].state is (State.FAILED if begun else State.PENDING)


def test_a_call_that_holds_nothing_leaves_nothing(claims):
    ticket = Ticket()
    claims.note_owner_gone(ticket)
    assert ticket.over


def test_a_child_of_a_fork_settles_nothing_of_its_parent(claims):
    held, ticket = taken(claims)
    assert not claims.crossed_a_fork
    claims._pid += 1
    assert claims.crossed_a_fork
    claims.note_owner_gone(ticket)
    assert not held.is_over


# --- how it ended -----------------------------------------------------------------------------------------------------


def pauses(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> list[float]:
    """Note how long is waited between two tries; the clock advances by that."""
    waited: list[float] = []

    class Waits:
        def wait(self, seconds: float) -> None:
            waited.append(seconds)
            clock.advance(seconds)

    monkeypatch.setattr(outside_claims, "Event", Waits)
    return waited


def test_result_is_retried_with_backoff_for_three_seconds_and_then_in_the_background(claims, clock, monkeypatch):
    held, _ = taken(claims)
    waited = pauses(monkeypatch, clock)
    away(monkeypatch, "step", StoreUnavailable("away"))
    claims._host.discard_resource(held)
    with pytest.raises(StoreUnavailable):
        claims.record_end(held, outcome(held))
    assert waited[:7] == [0.02, 0.04, 0.08, 0.16, 0.32, RETRY_INTERVAL, RETRY_INTERVAL]
    assert 3.0 < sum(waited) <= 3.0 + RETRY_INTERVAL
    assert (held.owed, held.unsettled) == (True, outcome(held))
    assert held in kept(claims)


def test_a_result_is_tried_until_the_very_end_of_its_patience(claims, clock, monkeypatch):
    held, _ = taken(claims)
    waited = pauses(monkeypatch, clock)
    monkeypatch.setattr(outside_claims, "PATIENCE", 0.0)
    away(monkeypatch, "step", StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        claims.record_end(held, outcome(held))
    assert waited == [0.02]


def test_a_result_that_the_store_refuses_for_good_is_not_told_twice(claims, clock, monkeypatch):
    held, _ = taken(claims)
    waited = pauses(monkeypatch, clock)
    error = StoreUnavailable("for good")
    error.retryable = False
    away(monkeypatch, "step", error)
    with pytest.raises(StoreUnavailable):
        claims.record_end(held, outcome(held))
    assert waited == []


def test_an_end_is_remembered_in_case_the_store_forgets_it(claims):
    held, _ = taken(claims)
    claims.record_end(held, outcome(held))
    key = held.claim.id, held.claim.token
    assert claims._reconciliation._accepted.pop_end(key) == outcome(held)


# --- calls that wait for calls ----------------------------------------------------------------------------------------

A, B, C = ("job", "a"), ("job", "b"), ("job", "c")


def test_a_circle_of_calls_is_found_however_long_it_is(claims):
    claims.note_waiting((), A)
    assert claims._waits == {}
    claims.note_waiting((A,), B)
    claims.note_waiting((B,), C)
    assert claims._waits == {A: [B], B: [C]}
    with pytest.raises(ConfigurationError, match="neither would ever end"):
        claims.note_waiting((C,), A)
    assert claims._waits == {A: [B], B: [C]}
    claims.note_waiting((A, B), C)
    assert claims._waits == {A: [B, C], B: [C, C]}
    claims.end_waiting((A, B), C)
    assert claims._waits == {A: [B], B: [C]}
    claims.end_waiting((A,), C)
    claims.end_waiting((C,), A)
    assert claims._waits == {A: [B], B: [C]}
    claims.end_waiting((A,), B)
    claims.end_waiting((B,), C)
    assert claims._waits == {}


def test_calls_that_wait_for_one_that_waits_for_itself_are_looked_at_once(claims):
    claims._waits = {A: [A]}
    claims.note_waiting((B,), A)
    assert claims._waits == {A: [A], B: [A]}


# --- holders ----------------------------------------------------------------------------------------------------------


def test_holder_is_reclaimed_only_with_a_reason(claims, store, monkeypatch, clock):
    another(store)
    view = claims.find_session("theirs")
    assert view is not None
    assert view.id == "theirs"
    assert claims.find_session("nobody") is None
    asked: list[Any] = []
    reclaim = MemoryStore.reclaim

    def noted(self: MemoryStore, presumed: Any = (), **more: Any) -> Any:
        asked.append(set(presumed))
        return reclaim(self, presumed, **more)

    monkeypatch.setattr(MemoryStore, "reclaim", noted)
    dead: list[bool] = [False]
    monkeypatch.setattr(outside_claims, "is_dead", lambda _: dead[0])

    def reclaim_if_dead(session: SessionView | None) -> tuple[bool, list[Any]]:
        asked.clear()
        return claims.reclaim_if_dead(session), list(asked)

    assert reclaim_if_dead(view) == (False, [])
    assert reclaim_if_dead(replace(view, expires_in=MICROSECOND)) == (False, [])
    assert reclaim_if_dead(replace(view, expires_in=timedelta(0))) == (False, [set()])
    assert reclaim_if_dead(None) == (False, [set()])
    dead[0] = True
    claims._fast_evidence = False
    assert not claims.is_gone(view)
    assert reclaim_if_dead(view) == (False, [])
    claims._fast_evidence = True
    assert claims.is_gone(view)
    assert not claims.is_gone(None)
    assert reclaim_if_dead(view) == (True, [{"theirs"}])


# --- maintenance ------------------------------------------------------------------------------------------------------


def test_maintenance_runs_every_five_minutes(claims, clock, monkeypatch):
    pruned: list[Any] = []
    closed: list[JobSpec] = []
    monkeypatch.setattr(MemoryStore, "prune", lambda self, *_, **more: pruned.append(more))
    monkeypatch.setattr(claims, "_close_abandoned", closed.append)
    claims.define_jobs(SPEC)
    claims.maintain_store()
    assert closed == [SPEC]
    clock.advance(MAINTAIN_EVERY - 0.5)
    claims.maintain_store()
    assert pruned == [{"limit": MOST_PRUNED}]
    clock.advance(0.5)
    claims.maintain_store()
    assert len(pruned) == 2


@pytest.mark.parametrize(
    ("error", "closes_after"), [(RunError(type="E", message="failed"), SECOND), (None, SECOND + KEEP)]
)
def test_abandoned_key_is_closed_after_its_keep(claims, clock, error, closes_after):
    held, _ = taken(claims)
    claims.record_end(held, outcome(held, State.PENDING, error=error, retry_in=SECOND))
    clock.advance(closes_after - MICROSECOND)
    claims._close_abandoned(SPEC)
    assert recorded(claims)[0].state is State.PENDING
    clock.advance(MICROSECOND)
    claims._close_abandoned(SPEC)
    assert (recorded(claims)[0].state, recorded(claims)[0].reason) == (State.CANCELLED, NOT_ASKED_FOR)
    assert claims.is_idle


def test_abandoned_key_that_is_acquired_elsewhere_is_not_closed(claims, clock, monkeypatch):
    held, _ = taken(claims)
    claims.record_end(held, outcome(held, State.PENDING, error=RunError(type="E", message="failed")))
    monkeypatch.setattr(MemoryStore, "acquire", lambda *_, **__: [(NotWon.LOST,)])
    claims._close_abandoned(SPEC)
    assert recorded(claims)[0].state is State.PENDING


def test_a_nominal_time_is_won_as_such(claims):
    held, _ = taken(claims, SLOT)
    assert (held.claim.key, held.claim.scheduled_for) == (scheduled_key(START), START)
    assert CHECK_INTERVAL < held.expires_in <= LEASE.total_seconds()
