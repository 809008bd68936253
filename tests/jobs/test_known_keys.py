"""Enqueuing under a known key: another payload is refused, a failed run opens its key where that is asked for."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cronsensus import Cancel, PayloadMismatch, Scheduler, Skip
from cronsensus.errors import InvalidOption, RunFailed, UnknownJob
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State


@pytest.fixture
def scheduler(tmp_path: Any) -> Scheduler:
    return Scheduler(f"sqlite:///{tmp_path}/jobs.db")


def test_another_payload_under_a_known_key_is_refused_by_name_and_without_values(scheduler: Scheduler) -> None:
    @scheduler.job()
    def pay(order: int, amount: Decimal) -> None: ...

    first = pay.options(key="order:42").enqueue(42, Decimal("9.99"))
    with pytest.raises(PayloadMismatch, match=r"'order:42' with another payload.*: amount differs") as caught:
        pay.options(key="order:42").enqueue(42, Decimal(77))
    assert (caught.value.differs, caught.value.occurrence) == (("amount",), first.id)
    assert "77" not in str(caught.value)
    assert "9.99" not in str(caught.value)
    assert first.look().args == (42, "9.99")


def test_the_same_payload_written_otherwise_is_the_same(scheduler: Scheduler) -> None:
    @scheduler.job()
    def send(order: int, copies: int = 1, *, price: Decimal = Decimal("1.50")) -> None: ...

    first = send.options(key="k").enqueue(42)
    for again in (
        send.options(key="k").enqueue(order=42),
        send.options(key="k").enqueue(42, copies=1),
        send.options(key="k").enqueue(42, 1, price=Decimal("1.50")),
    ):
        assert (again.id, again.created) == (first.id, False)
    with pytest.raises(PayloadMismatch, match="copies, order differ"):
        send.options(key="k").enqueue(43, 2)


def test_another_payload_returns_the_first_run_where_the_call_says_so(scheduler: Scheduler) -> None:
    @scheduler.job()
    def pay(amount: int) -> None: ...

    first = pay.options(key="k").enqueue(1)
    again = pay.options(key="k", on_mismatch="return").enqueue(2)
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(InvalidOption, match="on_mismatch"):
        pay.options(key="k", on_mismatch="ignore")  # type: ignore[arg-type]


def test_the_other_calls_of_many_are_enqueued_before_one_is_refused(scheduler: Scheduler) -> None:
    @scheduler.job()
    def pay(amount: int) -> None: ...

    pay.options(key="a").enqueue(1)
    with pytest.raises(PayloadMismatch, match="'a'"):
        pay.enqueue_many([pay.options(key="a").call(2), pay.options(key="b").call(3)])
    with pytest.raises(PayloadMismatch, match="'c'"):
        pay.enqueue_many([pay.options(key="c").call(4), pay.options(key="c").call(5)])
    standing = {one.key: one.args for one in scheduler.store.occurrences(OccurrenceFilter(job="pay"))}
    assert standing == {"a": (1,), "b": (3,), "c": (4,)}


def test_a_process_without_the_function_compares_arguments_by_their_place(scheduler: Scheduler) -> None:
    @scheduler.job()
    def pay(order: int, amount: int) -> None: ...

    pay.options(key="k").enqueue(42, 1)
    elsewhere = Scheduler(scheduler.store)
    assert not elsewhere.options("pay", key="k").enqueue(42, 1).created
    with pytest.raises(PayloadMismatch, match="argument 2 differs"):
        elsewhere.options("pay", key="k").enqueue(42, 2)


def test_a_failed_run_opens_its_key_only_where_that_is_asked_for(scheduler: Scheduler) -> None:
    calls = []

    @scheduler.job()
    def ship(order: int) -> str:
        calls.append(order)
        if len(calls) == 1:
            raise ConnectionError("carrier away")
        return "shipped"

    with scheduler:
        first = ship.options(key="order:1").enqueue(1)
        with pytest.raises(RunFailed, match="carrier away"):
            first.result("60s")
        kept = ship.options(key="order:1").enqueue(1)
        assert (kept.id, kept.created, kept.state) == (first.id, False, State.FAILED)
        freed = ship.options(key="order:1", on_failed="free").enqueue(1)
        assert (freed.created, freed.key) == (True, "order:1")
        assert freed.result("60s") == "shipped"
        assert first.result("60s") == "shipped"
        assert not ship.options(key="order:1", on_failed="free").enqueue(1).created
    assert calls == [1, 1]
    (entry,) = [one for one in scheduler.store.trail() if one.action == "forget"]
    assert entry.why == f"enqueued again: run {first.id} is failed"


@pytest.mark.parametrize("how", [Cancel("not now"), Skip("nothing to do"), "operator", "late"])
def test_a_key_whose_run_did_not_succeed_is_freed(scheduler: Scheduler, how: Exception | str) -> None:
    """It stayed shut for thirty days: nothing could be submitted under it again."""
    calls = []

    @scheduler.job()
    def ship(order: int) -> None:
        calls.append(order)
        if len(calls) == 1 and isinstance(how, Exception):
            raise how

    if how == "late":
        first = ship.options(key="k", expires="1us").enqueue(1)
    elif how == "operator":
        first = ship.options(key="k", delay="1h").enqueue(1)
        first.cancel(reason="not this one")
    else:
        first = ship.options(key="k").enqueue(1)
    with scheduler:
        assert first.wait("30s").state not in {State.SUCCEEDED, State.FAILED}
        assert not ship.options(key="k").enqueue(1).created
        again = ship.options(key="k", on_failed="free").enqueue(1)
        assert (again.created, again.wait("30s").state) == (True, State.SUCCEEDED)


def test_a_key_whose_run_was_retried_with_success_is_not_freed(scheduler: Scheduler) -> None:
    calls = []

    @scheduler.job()
    def ship() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError

    with scheduler:
        first = ship.options(key="k").enqueue()
        first.wait("30s")
        first.retry().wait("30s")
        found = ship.options(key="k", on_failed="free").enqueue()
        assert (found.created, found.wait("30s").state) == (False, State.SUCCEEDED)
        assert not first.retry().created
    assert len(calls) == 2


def test_a_key_that_was_freed_takes_another_payload(scheduler: Scheduler) -> None:
    @scheduler.job()
    def ship(order: int) -> None:
        if order == 1:
            raise ConnectionError

    with scheduler:
        ship.options(key="k").enqueue(1).wait("60s")
        assert ship.options(key="k", on_failed="free").enqueue(2).wait("60s").state is State.SUCCEEDED


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
def test_a_key_is_found_and_its_handle_follows_the_newest_retry(kind: str, request: Any, tmp_path: Any) -> None:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    scheduler = Scheduler(urls.get(kind) or request.getfixturevalue(f"{kind}_url"))
    attempts: list[int] = []

    @scheduler.job()
    def pay(order: int) -> int:
        attempts.append(order)
        if len(attempts) < 3:
            raise RuntimeError("no funds")
        return order * 2

    assert scheduler.find(pay, key="order:42") is None
    with pytest.raises(UnknownJob, match="no job is called 'pya'"):
        scheduler.find("pya", key="order:42")
    with pytest.raises(InvalidOption, match="key=None is no text"):
        scheduler.find(pay, key=None)  # type: ignore[call-overload]  # it was the newest run, of whatever key
    with scheduler:
        made = pay.options(key="order:42").enqueue(42)
        with pytest.raises(RunFailed, match="no funds"):
            made.result("30s")
        found = scheduler.find(pay, key="order:42")
        assert found is not None
        assert (found.id, found.created, found.state) == (made.id, False, State.FAILED)
        retries = [scheduler.retry(found)]
        with pytest.raises(RunFailed, match=f"occurrence {retries[0].id} of 'pay'"):
            found.result("30s")
        retries.append(scheduler.retry(retries[0]))
        assert [found.result("30s"), made.result("30s")] == [84, 84]
        assert made.look().id == retries[1].id
        scheduler.retry(made, again=True)  # of a first one that failed, although a retry went well: the newest counts
        assert made.wait("30s").id > retries[1].id
        assert retries[1].look().id == retries[1].id
