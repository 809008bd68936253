"""Each sign of a loss by itself: what is compared, between which times the loss is said to lie, and what is no sign."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cronsensus.errors import SchemaMismatch, StoreUnavailable
from cronsensus.membership import loss as module
from cronsensus.membership.loss import ABANDONED_LEASE, ASSUMED_BEFORE, ENDS_KEPT, SAME_LOSS_WITHIN, StoreWatch
from cronsensus.model.ledger import Identity, Loss
from cronsensus.model.session import Renewal
from cronsensus.process.logger import flush

START = datetime(2026, 1, 1, tzinfo=UTC)
UNKNOWN = Identity("a", START)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def renewal(beats: int | None, seconds: float, *, alive: bool = True, store: str | None = "a") -> Renewal:
    return Renewal(
        alive=alive, lease=ABANDONED_LEASE, cancel={}, drain=False, now=at(seconds), held=None, beats=beats, store=store
    )


class Watched:
    """A watch of a store of which the identity can be changed; its session ``s`` was opened at the start."""

    def __init__(self, *, stop: bool = False) -> None:
        self.identity: Identity | None = UNKNOWN
        self.woken: list[object] = []
        self.renewals: list[tuple[str, timedelta]] = []
        self.answer = renewal(0, 0)
        self.watch = StoreWatch("n", stop=stop, wake=lambda: self.woken.append(None))
        self.open()

    def open(self, session: str = "s", seconds: float = 0) -> None:
        self.watch.note_opened(self._store(), session, at(seconds))

    def check(self) -> None:
        self.watch.check_store(self._store())

    def renewed(self, *seconds: float) -> None:
        """Have renewals counted as they are to be, at these times."""
        for beats, each in enumerate(seconds, 1):
            self.watch.detect_loss("s", renewal(beats, each))

    def looked(self, seconds: float, **watermarks: float) -> None:
        jobs: Any = [
            SimpleNamespace(id=1, spec=SimpleNamespace(name=name), watermark=at(each))
            for name, each in watermarks.items()
        ]
        self.watch.compare_watermarks(jobs, at(seconds))

    def _store(self) -> Any:
        def renew(session: str, *, lease: timedelta) -> Renewal:
            self.renewals.append((session, lease))
            return self.answer

        return SimpleNamespace(identity=lambda: self.identity, renew=renew)

    @property
    def losses(self) -> list[Loss]:
        """Return what it would tell the store."""
        told: list[Loss] = []
        store: Any = SimpleNamespace(note_in_trail=lambda loss, by: told.append(loss))
        self.watch.record_losses(store)
        return told

    @property
    def times(self) -> list[tuple[float | None, float]]:
        return [
            (None if one.since is None else (one.since - START).total_seconds(), (one.until - START).total_seconds())
            for one in self.losses
        ]


# --- renewals ---------------------------------------------------------------------------------------------------------


def test_renewals_that_are_all_counted_are_no_sign() -> None:
    one = Watched()
    one.renewed(10, 20, 30)
    one.watch.detect_loss("s", renewal(3, 40, alive=False))
    assert one.losses == []
    assert one.woken == []


@pytest.mark.parametrize(
    ("answer", "since"),
    [
        (renewal(3, 40), 20),
        (renewal(2, 40), 10),
        (renewal(1, 40), -ASSUMED_BEFORE.total_seconds()),
        (renewal(2, 40, alive=False), 20),
        (renewal(0, 40, alive=False), -ASSUMED_BEFORE.total_seconds()),
    ],
)
def test_fewer_renewals_than_were_made_are_a_loss_after_the_last_that_is_counted(answer: Renewal, since: float) -> None:
    one = Watched()
    one.renewed(10, 20, 30)
    one.watch.detect_loss("s", answer)
    assert one.times == [(since, 40)]
    assert len(one.woken) == 1


def test_what_a_store_forgot_is_counted_no_more_after_the_loss_was_found() -> None:
    one = Watched()
    one.renewed(10, 20, 30)
    one.watch.detect_loss("s", renewal(2, 100))
    one.watch.detect_loss("s", renewal(3, 200))
    assert one.times == [(10, 100)]
    one.watch.detect_loss("s", renewal(2, 300))
    assert one.times == [(10, 300)]


@pytest.mark.parametrize("counted", [0, 1, 5, 50, 90, 98, 99])
def test_loss_of_more_renewals_than_are_kept_begins_no_later_than_the_last_that_is_counted(counted: int) -> None:
    one = Watched()
    one.renewed(*range(10, 1001, 10))
    assert len(one.watch._beats) <= module.MOST_RENEWALS
    one.watch.detect_loss("s", renewal(counted, 2000, alive=False))
    [(since, _)] = one.times
    assert since is not None
    last = 10 * counted if counted else -ASSUMED_BEFORE.total_seconds()
    assert last - 40 <= since <= last
    if counted == 0:
        assert since == last


def test_renewals_are_thinned_out_once_there_are_more_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RENEWALS", 5)
    for many, counted, since in ((4, 3, 30), (5, 3, 20), (5, 4, 40), (6, 5, 50)):
        one = Watched()
        one.renewed(*range(10, 10 * many + 1, 10))
        one.watch.detect_loss("s", renewal(counted, 100, alive=False))
        assert one.times == [(since, 100)], many


def test_second_loss_that_reaches_back_further_begins_earlier() -> None:
    one = Watched()
    one.renewed(10, 20, 30)
    one.watch.detect_loss("s", renewal(2, 100, alive=False))
    one.watch.detect_loss("s", renewal(1, 200, alive=False))
    one.watch.detect_loss("s", renewal(0, 300, alive=False))
    assert one.times == [(20, 100), (10, 200), (-ASSUMED_BEFORE.total_seconds(), 300)]


@pytest.mark.parametrize("answer", [renewal(None, 40), renewal(0, 40, store=None), renewal(None, 40, store=None)])
def test_renewal_that_does_not_tell_is_no_sign(answer: Renewal) -> None:
    one = Watched()
    one.renewed(10, 20)
    one.watch.detect_loss("s", answer)
    assert one.losses == []


def test_renewal_of_another_session_is_no_sign() -> None:
    one = Watched()
    one.renewed(10, 20)
    one.watch.detect_loss("before", renewal(0, 40, store="b"))
    assert one.losses == []


def test_renewal_in_another_store_tells_of_an_emptied_one_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    one = Watched()
    one.renewed(10, 20)
    one.watch.detect_loss("s", renewal(0, 40, alive=False, store="b"))
    one.watch.detect_loss("s", renewal(0, 50, alive=False, store="b"))
    [found] = one.losses
    assert (found.since, found.until, found.emptied) == (at(20), at(40), True)
    assert len(one.woken) == 1
    flush(60)
    assert "(a) is gone" in caplog.text


def test_renewals_are_counted_also_in_a_store_without_an_identity() -> None:
    one = Watched()
    one.identity = None
    one.open("other")
    one.losses  # noqa: B018 - of the other store
    one.open("s")
    one.renewed(10, 20)
    one.watch.detect_loss("s", renewal(1, 100, store="b"))
    assert one.times == [(-ASSUMED_BEFORE.total_seconds(), 100)]


def test_store_is_asked_of_the_session_that_is_given_up_before_another_is_opened() -> None:
    fresh = StoreWatch("n", stop=False)
    nowhere: Any = SimpleNamespace(renew=None)
    fresh.check_store(nowhere)
    one = Watched()
    one.renewed(10, 20)
    one.answer = renewal(1, 100, alive=False)
    one.check()
    assert one.renewals == [("s", ABANDONED_LEASE)]
    assert one.times == [(10, 100)]


# --- another store ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "emptied"), [(UNKNOWN, False), (Identity("a", at(9)), False), (Identity("b", START), True), (None, True)]
)
def test_session_opened_in_another_store_or_in_none_tells_of_an_emptied_one(
    then: Identity | None, emptied: bool
) -> None:
    one = Watched()
    one.renewed(10)
    one.identity = then
    one.open("next", 40)
    assert one.times == ([(10, 40)] if emptied else [])
    assert not one.watch.is_halted


@pytest.mark.parametrize("stop", [True, False])
def test_subject_halts_for_good_where_it_is_to_stop_and_else_begins_anew(stop: bool) -> None:
    one = Watched(stop=stop)
    for round_, known in enumerate("bcd", 1):
        one.identity = Identity(known, START)
        one.open(known, 100 * round_)
        assert one.watch.is_halted == stop
    assert len(one.losses) == (1 if stop else 3)


def test_missing_tables_are_a_sign_where_there_were_some_and_once() -> None:
    one = Watched(stop=True)
    one.renewed(10)
    assert not one.watch.note_trouble(StoreUnavailable("away"))
    assert not StoreWatch("n", stop=True).note_trouble(SchemaMismatch("no tables"))
    assert one.watch.note_trouble(SchemaMismatch("no tables"))
    assert not one.watch.note_trouble(SchemaMismatch("no tables"))
    assert one.times == [(10, 10)]
    assert one.watch.is_halted


# --- watermarks -------------------------------------------------------------------------------------------------------


def test_watermark_that_went_back_is_a_loss_after_the_last_renewal_before_it_was_seen() -> None:
    one = Watched()
    one.renewed(10, 20, 30)
    one.looked(25, a=5, b=5)
    one.looked(40, a=5, b=6)
    assert one.losses == []
    one.looked(50, a=4, b=6)
    assert one.times == [(30, 50)]
    other = Watched()
    other.renewed(10, 20, 30)
    other.looked(25, a=5)
    other.looked(50, a=4)
    assert other.times == [(20, 50)]


def test_of_many_watermarks_those_that_were_seen_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WATERMARKS", 2)
    for back, found in (({"a": 4}, 1), ({"b": 4}, 0), ({"c": 4}, 1)):
        one = Watched()
        one.looked(10, a=5, b=5)
        one.looked(20, a=5)
        one.looked(30, c=5)
        one.looked(40, **back)
        assert len(one.losses) == found, back


def test_watermarks_of_before_a_loss_are_no_sign_of_another_one() -> None:
    emptied: Callable[[Watched], object] = lambda one: one.watch.note_trouble(SchemaMismatch("no tables"))  # noqa: E731
    forgot: Callable[[Watched], object] = lambda one: one.watch.note_sign_of_loss("a sign", at(20))  # noqa: E731
    for loss in (emptied, forgot):
        one = Watched()
        one.looked(10, a=5)
        loss(one)
        assert len(one.losses) == 1
        one.looked(100, a=4)
        assert one.losses == []


# --- other signs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "before", "times"),
    [
        (100, 20, (20, 100)),
        (100, 19, (10, 100)),
        (25, 70, (20, 25)),
        (100, None, (30, 100)),
        (100, -5, (-5, 100)),
        (None, 20, (20, 90)),
        (None, None, (30, 90)),
    ],
)
def test_sign_of_another_part_lies_after_the_last_renewal_before_what_was_forgotten(
    now: float | None, before: float | None, times: tuple[float, float]
) -> None:
    one = Watched()
    one.renewed(10, 20, 90 - ENDS_KEPT, 90)
    one.watch.note_sign_of_loss("a sign", None if now is None else at(now), at=None if before is None else at(before))
    assert one.times == [times]


def test_sign_before_there_is_a_session_is_none() -> None:
    watch = StoreWatch("n", stop=False)
    watch.note_sign_of_loss("a sign", START)
    assert not watch.has_unrecorded_losses


def test_signs_soon_after_each_other_are_of_one_loss() -> None:
    one = Watched()
    soon = SAME_LOSS_WITHIN.total_seconds()
    for seconds, found in ((100, 1), (100 + soon / 2, 0), (100 + soon, 1), (100 + 2 * soon - 1, 0), (500, 1)):
        one.watch.note_sign_of_loss("a sign", at(seconds))
        assert len(one.losses) == found, seconds
    assert len(one.woken) == 3
