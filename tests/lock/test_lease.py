"""One lease, step by step: its place does as it is told, and the clock stands still."""

import os
import threading
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.errors import LeaseLost, NotTheHolder, StoreUnavailable
from cronsensus.lock import lease as module
from cronsensus.lock.lease import NOTHING_DUE, SOONEST, Lease, LeaseBackend, LeaseRef
from cronsensus.lock.worker_pool import _pool
from cronsensus.membership.lease import UNTRUSTED_SHARE
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import flush
from cronsensus.stores.base import Store
from cronsensus.timing.clock import ManualClock

TTL = timedelta(seconds=10)
TRUSTED = TTL.total_seconds() * (1 - UNTRUSTED_SHARE)
TICK = 0.001


class Kept(LeaseBackend):
    """Notes what it is asked, and answers as told."""

    clock: ManualClock

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[Any, ...]] = []
        self.answer = True
        self.error: BaseException | None = None

    def _answer(self, *asked: Any) -> bool:
        self.told.append(asked)
        if self.error is not None:
            raise self.error
        return self.answer

    def free_lock(self, lease: Lease) -> bool:
        return self._answer("free", lease.token)

    def extend_lock(self, lease: Lease, ttl: timedelta, *, by: Store | None = None) -> bool:
        return self._answer("extend", ttl.total_seconds())

    def watch_lease(self, lease: LeaseRef) -> None:
        self.told.append(("watch",))

    def forget_lease(self, lease: LeaseRef) -> None:
        self.told.append(("forget",))

    def is_held(self, lease: Lease) -> bool:
        return self._answer("is_held")


def kept(lease: Lease) -> LeaseRef:
    """Return what the place keeps of a lease that was not released."""
    assert lease.ref is not None
    return lease.ref


@pytest.fixture
def place() -> Kept:
    return Kept()


@pytest.fixture(autouse=True)
def _nothing_is_freed_after_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what a test drops to itself, or a thread would tell of it in the log of the next test."""
    monkeypatch.setattr(module, "when_gone", lambda: lambda _: None)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is to be done by a thread of ours; nothing is."""
    given: list[Any] = []
    monkeypatch.setattr(module, "submit_drop", given.append)
    monkeypatch.setattr(module, "submit_act", given.append)
    return given


def leased(place: Kept, **more: Any) -> Lease:
    given = {"ttl": TTL, "renew": True, "bound": True, **more}
    return Lease(place, name="lock", holder="me", token=7, asked_at=place.clock.monotonic(), **given)


def someone_elses(lease: Lease) -> None:
    """Let a lease be of the process of which this one was forked."""
    lease._pid += 1


def in_another_thread(act: Any) -> Any:
    answers: list[Any] = []

    def call() -> None:
        try:
            answers.append(act())
        except Exception as error:  # noqa: BLE001 - returned
            answers.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return answers[0]


# --- trust ------------------------------------------------------------------------------------------------------------


def test_a_lease_is_trusted_until_the_moment_before_its_margin(place):
    lease = leased(place)
    place.clock.advance(TRUSTED - TICK)
    assert (lease.trusted, lease.lost.is_set(), kept(lease).lost) == (True, False, False)
    assert lease.expires_in == kept(lease).expires_in == pytest.approx(TICK)
    place.clock.advance(TICK)
    assert (lease.trusted, lease.lost.is_set(), kept(lease).lost) == (False, True, True)
    assert lease.lost.wait(0)


def test_lease_is_not_trusted_in_the_moment_its_trust_ends(place):
    lease = leased(place)
    lease._trusted_until = place.clock.monotonic()
    assert not lease.trusted


@pytest.mark.parametrize("end", ["lose", "fork", "release"])
def test_lost_lease_is_not_trusted(place, end):
    lease = leased(place)
    before = lease.lost
    assert not before.wait(0)
    if end == "lose":
        lease.mark_lost("somebody has it")
        assert lease.expires_in == -1.0
        assert Event.is_set(before)
        del before
        assert Event.is_set(lease.lost), "also an event that is made afterwards"
    elif end == "fork":
        someone_elses(lease)
    else:
        lease.release()
        assert lease.released
    assert lease.trusted is (end == "release")
    assert lease.ref is None if end == "release" else kept(lease).lost


def test_lost_event_wakes_its_waiters(place):
    lease = leased(place)
    lost = lease.lost
    thread = threading.Thread(target=lambda: lost.wait(60))
    thread.start()
    lease.mark_lost("somebody has it")
    thread.join(60)
    assert not thread.is_alive()
    assert lost.wait(60)


def test_lost_event_before_a_loss_waits_for_its_timeout(place, monkeypatch):
    waited: list[float | None] = []

    def wait(_: Event, timeout: float | None = None) -> bool:
        waited.append(timeout)
        return True

    monkeypatch.setattr(Event, "wait", wait)
    lost = leased(place).lost
    assert lost.wait(60)
    assert waited == [60]
    place.clock.advance(TTL)
    assert lost.wait(60)
    assert waited == [60], "nothing to wait for"


def test_a_loss_that_is_set_by_hand_is_set(place):
    lease = leased(place)
    lost = lease.lost
    lost.set()
    assert lost.is_set()


def test_lease_without_a_ttl_lasts(place):
    lease = leased(place, ttl=None, renew=False)
    assert (lease.ttl, lease.expires_in) == (timedelta.max, float("inf"))
    assert leased(place).ttl == TTL
    place.clock.advance(1e9)
    assert lease.trusted


def test_the_first_reason_of_a_loss_is_the_one_that_is_told(place, caplog):
    lease = leased(place)
    lease.mark_lost("first")
    lease.mark_lost("second")
    with pytest.raises(LeaseLost, match="first"):
        lease.check()
    flush(60)
    assert [record.args[2] for record in caplog.records] == ["first"]


@pytest.mark.parametrize(("renew", "released", "told"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_loss_of_a_renewed_lease_is_logged(place, caplog, renew, released, told):
    lease = leased(place, renew=renew)
    if released:
        lease.release()
    lease.expire()
    flush(60)
    assert len(caplog.records) == told
    assert bool(lease._why) is not released
    lease.mark_lost("again")
    assert len(caplog.records) == told


def test_check_of_a_lost_lease_names_the_reason(place):
    lease = leased(place)
    lease.check()
    place.clock.advance(TTL)
    with pytest.raises(LeaseLost, match="its time is over"):
        lease.check()
    someone_elses(lease)
    with pytest.raises(LeaseLost, match="the parent process's"):
        lease.check()


# --- as its place keeps it --------------------------------------------------------------------------------------------


def test_lease_ref_passes_a_loss_on(place):
    lease = leased(place)
    kept(lease).expire()
    assert lease._why == "it could not be renewed in time"
    other = leased(place)
    kept(other).mark_lost("its session is over")
    assert other._why == "its session is over"
    assert kept(other).renew_when_due() == pytest.approx(TTL.total_seconds() / 3)


def test_lease_ref_passes_the_end_of_a_thread_on(place, acts):
    lease = of_a_thread_that_ended(place)
    ref = kept(lease)
    ref.thread_ended()
    assert len(acts) == 1
    acts.clear()
    lease.mark_lost("somebody has it")  # or it would be freed in the background
    del lease
    ref.thread_ended()
    assert acts == []


def test_released_lease_leaves_its_thread_and_is_not_renewed(place):
    lease = leased(place)
    ref = kept(lease)
    of_thread: dict[LeaseRef, None] = {}
    ref.ends_with(of_thread)
    assert of_thread == {ref: None}
    assert not ref.lost
    lease.release()
    assert of_thread == {}
    assert ref.lost


@pytest.mark.parametrize("over", [True, False])
def test_dropped_lease_is_not_freed_after_its_session(place, monkeypatch, over):
    dropped: list[Any] = []
    monkeypatch.setattr(module, "when_gone", lambda: dropped.append)
    ref = kept(leased(place))
    assert dropped == [ref]
    if over:
        ref.mark_lost("this process let go of its session")
    ref.free_abandoned()
    assert [what for what, *_ in place.told] == ([] if over else ["forget", "free"])
    assert ref.renew_when_due() == NOTHING_DUE


def test_dropped_lease_needs_its_session_until_its_ttl(place, acts):
    lease = leased(place, renew=False)
    ref = kept(lease)
    del lease
    assert ref.expires_in == NOTHING_DUE
    assert ref.lost
    ref.expire()
    assert ref.renew_when_due() == TTL.total_seconds()
    place.clock.advance(TTL.total_seconds())
    assert place.told == []
    assert ref.renew_when_due() == NOTHING_DUE
    assert place.told == [("forget",)]
    ref._left = None
    assert ref.renew_when_due() == NOTHING_DUE


@pytest.mark.parametrize(
    ("options", "after", "freed"),
    [
        ({}, 0.0, True),
        ({}, TRUSTED, False),
        ({"renew": False}, 0.0, False),
        ({"renew": False, "ttl": None}, 0.0, True),
    ],
)
def test_dropped_lease_is_freed_if_it_would_have_lasted(place, caplog, options, after, freed):
    lease = leased(place, **options)
    ref = kept(lease)
    assert ref in _pool.held
    place.clock.advance(after)
    ref.free_abandoned()
    assert place.told == [("forget",), ("free", 7)] * freed
    assert ("was dropped" in caplog.text) is freed
    assert ref not in _pool.held
    ref.free_abandoned()
    assert place.told == [("forget",), ("free", 7)] * freed


def test_released_lease_is_dropped_silently(place):
    lease = leased(place)
    ref = kept(lease)
    lease.released = True
    ref.free_abandoned()
    assert place.told == []
    assert ref._left is None
    assert ref not in _pool.held


# --- the end ----------------------------------------------------------------------------------------------------------


def test_release_frees_once(place):
    lease = leased(place)
    ref = kept(lease)
    lease.release()
    assert place.told == [("forget",), ("free", 7)]
    assert ref not in _pool.held
    with pytest.raises(NotTheHolder, match="released already"):
        lease.release()
    with pytest.raises(NotTheHolder, match="released already"):
        lease.end()
    lease.abandon()
    assert len(place.told) == 2


@pytest.mark.parametrize("why", ["", "somebody has it"])
def test_release_of_an_expired_lease_raises(place, why):
    lease = leased(place)
    place.answer = False
    if why:
        lease.mark_lost(why)
    with pytest.raises(LeaseLost, match=why or "it had run out"):
        lease.release()


def test_a_release_that_is_interrupted_is_done_all_the_same(place, acts):
    lease = leased(place)
    place.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    assert place.told == [("forget",), ("free", 7), ("free", 7)]
    assert acts == [lease.abandon]


def test_a_release_that_the_store_refuses_is_not_tried_again(place, acts):
    lease = leased(place)
    place.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        lease.release()
    assert place.told == [("forget",), ("free", 7)]
    assert acts == []


@pytest.mark.parametrize(
    ("why", "before", "told"),
    [
        ("nobody uses it", "", True),
        ("", "", False),
        ("nobody uses it", "released", False),
        ("nobody uses it", "lost", False),
    ],
)
def test_abandoned_lease_is_freed_and_logged_if_held(place, caplog, why, before, told):
    lease = leased(place, renew=False)
    if before == "lost":
        lease.mark_lost("somebody has it")
    elif before:
        lease.end()
        place.told.clear()
    lease.abandon(why)
    assert place.told == [("forget",), ("free", 7)][before == "released" :]
    assert lease.released
    assert ("is freed" in caplog.text) is told


def test_abandon_that_fails_may_be_repeated(place, caplog):
    lease = leased(place)
    place.error = StoreUnavailable("away")
    lease.abandon()
    assert "ends with its TTL" in caplog.text
    place.error = None
    lease.abandon()
    lease.abandon()
    assert place.told == [("forget",), ("free", 7), ("free", 7)]


def test_a_child_of_a_fork_frees_nothing_of_its_parent(place):
    lease = leased(place)
    assert lease.is_ours
    assert lease._pid == os.getpid()
    someone_elses(lease)
    lease.abandon()
    for act in (lease.release, lambda: lease.extend(1), lease.require_holder):
        with pytest.raises(NotTheHolder, match="of which this one"):
            act()
    assert not lease.owned()
    assert place.told == []


def test_a_lease_of_a_thread_is_released_and_extended_there(place):
    lease = leased(place)
    for act in (lease.release, lambda: lease.extend(1), lease.reacquire):
        assert isinstance(in_another_thread(act), NotTheHolder)
    assert place.told == []
    assert lease.extend(1)
    lease.unbind()
    assert in_another_thread(lambda: lease.extend(1)) is True
    other = leased(place, bound=False)
    assert in_another_thread(lambda: other.extend(1)) is True


# --- renewing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "options", "asks"),
    [(4, {}, 7.0), (4, {"replace_ttl": True}, 1.0), (12, {}, 1.0)],
)
def test_extended_lease_lasts_so_much_longer(place, after, options, asks):
    lease = leased(place)
    place.clock.advance(after)
    assert lease.extend(1, **options) is True
    assert ("extend", asks) in place.told
    assert lease.expires_in == pytest.approx(asks * (1 - UNTRUSTED_SHARE))


def test_extend_without_a_ttl_asks_no_store(place):
    lease = leased(place, ttl=None)
    assert lease.extend(1) is True
    assert lease.reacquire() is True
    assert place.told == []


def test_reacquired_lease_lasts_its_whole_ttl(place):
    lease = leased(place)
    place.clock.advance(4)
    assert lease.reacquire() is True
    assert place.told == [("extend", 10.0)]
    assert lease._ends == place.clock.monotonic() + 10


def test_a_shorter_lease_is_believed_in_for_less_before_it_is_asked_for(place):
    lease = leased(place)
    lease._extend_lease(TTL)
    assert place.told == [("extend", 10.0)]
    place.told.clear()
    place.error = StoreUnavailable("the answer is lost")
    with pytest.raises(StoreUnavailable):
        lease._extend_lease(TTL / 2)
    assert place.told == [("watch",), ("extend", 5.0)]
    assert lease.expires_in == pytest.approx(TRUSTED / 2)


def test_a_renewal_that_makes_nothing_longer_asks_nothing(place):
    lease = leased(place)
    lease._extend_lease(TTL, only_longer=True)
    assert place.told == []
    place.clock.advance(TICK)
    lease._extend_lease(TTL, only_longer=True)
    assert place.told == [("extend", 10.0)]


def test_extend_of_a_lock_held_elsewhere_loses_the_lease(place):
    lease = leased(place)
    place.answer = False
    with pytest.raises(LeaseLost, match="another process has it, or it had run out"):
        lease.extend(1)
    assert not lease.trusted


def test_owned_asks_the_store_only_for_a_held_lease(place):
    lease = leased(place)
    assert lease.owned()
    place.answer = False
    assert not lease.owned()
    place.answer = True
    lease.release()
    place.told.clear()
    assert not lease.owned()
    assert place.told == []


def test_lease_is_renewed_after_a_third_of_its_ttl(place):
    lease = leased(place)
    third = TTL.total_seconds() / 3
    assert lease.renew_when_due() == pytest.approx(third)
    assert place.told == []
    place.clock.advance(third + TICK)
    assert lease.renew_when_due() == pytest.approx(third)
    assert place.told == [("extend", 10.0)]


def test_lease_is_renewed_in_the_moment_its_renewal_is_due(place):
    lease = leased(place, ttl=timedelta(seconds=3))
    place.clock.advance(1)
    assert lease.renew_when_due() == 1.0
    assert place.told == [("extend", 3.0)]


@pytest.mark.parametrize(("ttl", "again"), [(60, 1.0), (10, 0.5), (0.1, SOONEST)])
def test_a_renewal_that_the_store_did_not_hear_is_tried_again_soon(place, ttl, again):
    lease = leased(place, ttl=timedelta(seconds=ttl))
    place.clock.advance(ttl / 2)
    place.error = StoreUnavailable("away")
    assert lease.renew_when_due() == again
    assert lease.trusted


def test_lost_lease_is_not_renewed(place):
    lease = leased(place)
    ref = kept(lease)
    place.clock.advance(5)
    place.answer = False
    lease.renew_when_due()
    assert place.told[-1] == ("forget",)
    assert ref not in _pool.held


@pytest.mark.parametrize(
    ("options", "released", "wait"),
    [
        ({"ttl": None}, False, 3600.0),
        ({"ttl": None}, True, 3600.0),
        ({"renew": False}, False, 10.0),
        ({}, True, 10.0),
    ],
)
def test_lease_without_renewal_is_not_renewed(place, options, released, wait):
    lease = leased(place, **options)
    lease.released = released
    place.clock.advance(9)
    assert lease.renew_when_due() == wait
    assert place.told == []


def of_a_thread_that_ended(place: Kept, **more: Any) -> Lease:
    lease = leased(place, **more)
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    lease._thread = thread
    return lease


def test_lease_of_an_ended_thread_is_freed_instead_of_renewed(place, acts, caplog):
    lease = of_a_thread_that_ended(place)
    assert 0 < lease.renew_when_due() < 10
    assert acts == []
    place.clock.advance(5)
    assert lease.renew_when_due() == 10.0
    assert place.told == []
    [act] = acts
    act()
    assert place.told == [("forget",), ("free", 7)]
    assert "the thread that acquired it ended" in caplog.text
    alive = leased(place, bound=False)
    place.clock.advance(5)
    alive.renew_when_due()
    assert place.told[-1] == ("extend", 10.0)


@pytest.mark.parametrize("end", ["released", "lost", "not renewed"])
def test_lease_that_needs_no_freeing_outlives_its_thread(place, acts, end):
    lease = of_a_thread_that_ended(place, renew=end != "not renewed")
    if end == "released":
        lease.end()
    elif end == "lost":
        lease.mark_lost("somebody has it")
    lease.thread_ended()
    assert acts == []
    forever = of_a_thread_that_ended(place, renew=False, ttl=None)
    forever.thread_ended()
    assert len(acts) == 1


# --- async twins ------------------------------------------------------------------------------------------------------


async def said(act: Any) -> str:
    try:
        return str(await act())
    except NotTheHolder as error:
        return type(error).__name__


def test_async_twins_of_a_lease_do_the_same():
    import asyncio

    async def scenario() -> None:
        place = Kept()
        lease = leased(place, bound=False)
        place.clock.advance(4)
        assert await lease.areacquire() is True
        assert await lease.aextend(1) is True
        assert await lease.aowned()
        await lease.arelease()
        assert place.told == [("extend", 10.0), ("extend", 11.0), ("is_held",), ("forget",), ("free", 7)]
        forever = leased(place, ttl=None, bound=False)
        assert await forever.areacquire() is True
        theirs = leased(place, bound=False)
        someone_elses(theirs)
        asked = len(place.told)
        assert [await said(act) for act in (theirs.arelease, theirs.areacquire)] == ["NotTheHolder"] * 2
        assert not theirs.released
        assert len(place.told) == asked

    asyncio.run(scenario())
