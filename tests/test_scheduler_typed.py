"""Typed arguments and results, from the call to the function and back."""

import importlib
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest

from cronsensus import Run, Scheduler, at, current_run
from cronsensus.errors import InvalidPayload
from tests.payload import typed_jobs
from tests.payload.typed_jobs import Colour, Order, total_of


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Parcel:
    size: Size
    sent: date | None = None


DAY = date(2026, 1, 31)


@pytest.fixture
def scheduler(tmp_path):
    return Scheduler(f"sqlite:///{tmp_path}/typed.db", concurrency=5)


def test_arguments_and_result_have_the_types_of_the_annotations(scheduler):
    @scheduler.job()
    def send(run: Run, parcel: Parcel, *, day: date) -> Parcel:
        assert type(parcel) is Parcel
        assert type(day) is date
        return Parcel(parcel.size, day)

    @scheduler.job()
    async def asend(parcel: Parcel, run: Run, day: date) -> tuple[Parcel, Decimal]:
        return Parcel(parcel.size, day), Decimal("0.10")

    with scheduler:
        handle = send.enqueue(Parcel(Size.LARGE), day=DAY)
        assert handle.result("60s") == Parcel(Size.LARGE, DAY)
        assert handle.look().result == '{"size":2,"sent":"2026-01-31"}'
        assert asend.enqueue(Parcel(Size.SMALL), DAY).result("60s") == (Parcel(Size.SMALL, DAY), Decimal("0.10"))
        (many,) = send.enqueue_many([send.call(parcel=Parcel(Size.SMALL), day=DAY)])
        assert many.result("60s") == Parcel(Size.SMALL, DAY)


def test_a_job_in_a_process_of_its_own_is_typed_as_well(scheduler):
    job = scheduler.job(executor="process")(total_of)
    with scheduler:
        order = Order([Decimal("1.10"), Decimal("2.20")], Colour.BLUE, DAY)
        assert job.enqueue(order, tax=Decimal("0.05")).result("60s") == (Decimal("3.35"), Colour.BLUE)


def test_the_arguments_of_schedules_and_of_jobs_that_are_added_are_typed(scheduler):
    got = []

    @scheduler.job(at("2020-01-01T00:00:00Z"), args=(DAY,), kwargs={"size": Size.LARGE})
    def scheduled(day: date, size: Size) -> date:
        got.append((day, size))
        return day

    assert scheduled.spec.args == ("2026-01-31",)
    with scheduler:
        added = scheduler.add_job("scheduled", None, name="added", args=(DAY,), kwargs={"size": Size.SMALL})
        assert added.trigger().result("60s") == DAY
        scheduler.change_job("added", kwargs={"size": Size.LARGE})
        assert added.trigger().result("60s") == DAY
        assert scheduled.trigger().result("60s") == DAY
    assert (DAY, Size.SMALL) in got
    assert got.count((DAY, Size.LARGE)) >= 2


def test_a_result_of_a_transaction_is_typed(scheduler):
    @scheduler.job()
    def book(run: Run) -> Parcel:
        with run.transaction():
            return run.complete(Parcel(Size.LARGE, DAY))

    with scheduler:
        assert book.enqueue().result("60s") == Parcel(Size.LARGE, DAY)


def test_enqueue_of_an_argument_that_needs_an_annotation_raises(scheduler):
    @scheduler.job()
    def plain(when, size: int = 0): ...

    scheduler.store.migrate()
    needs = r"is a datetime.date, which is not JSON, and has no annotation"
    with pytest.raises(
        InvalidPayload, match=rf"arguments of 'plain': when {needs}; write `when: date` in the function's"
    ):
        plain.enqueue(DAY)
    with pytest.raises(
        InvalidPayload, match=r"size is a .*Size, which .*, and its annotation is int; write `size: Size`"
    ):
        plain.enqueue(1, Size.LARGE)
    with pytest.raises(InvalidPayload, match=rf"arguments of 'elsewhere': argument 1 {needs}"):
        scheduler.enqueue("elsewhere", DAY)


def test_a_stored_argument_that_does_not_fit_fails_for_good_and_says_why(scheduler):
    ran = []

    @scheduler.job(retries=5)
    def send(day: date) -> None:
        ran.append(day)

    from cronsensus.model.occurrence import Item

    with scheduler:
        scheduler.store.enqueue([Item(job="send", key="old", args=("tomorrow",))])
        end = send.options(key="old", on_mismatch="return").enqueue(DAY).wait("60s")
    assert not ran
    assert (end.state, end.attempt, end.error.type) == ("failed", 1, "InvalidPayload")
    assert "day is stored as 'tomorrow', which does not fit its annotation date" in end.error.message


@pytest.mark.parametrize("function", [typed_jobs.picky, typed_jobs.apicky])
def test_a_class_whose_making_raises_ends_the_attempt(scheduler, function, monkeypatch):
    job = scheduler.job(name="picky")(function)
    handle = job.enqueue(typed_jobs.Picky(True))
    monkeypatch.setattr(typed_jobs.Picky, "angry", True)
    with scheduler:
        end = handle.wait("60s")
    assert (end.state, end.error.type) == ("failed", "SystemExit")


def test_annotations_that_exist_for_type_checkers_only_are_no_hindrance(scheduler, tmp_path, monkeypatch):
    (tmp_path / "checked.py").write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from shop import Order\n    from cronsensus import Run\n"
        "def book(order: Order, day: date, run: Run) -> Receipt:\n    return [order, run.attempt]\n"
        "from datetime import date\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "checked", raising=False)
    checked = importlib.import_module("checked")

    job = scheduler.job()(checked.book)
    with scheduler:
        assert job.enqueue({"id": 1}, DAY).result("60s") == [{"id": 1}, 1]


def test_a_guarded_moment_survives_the_way_there_and_back(scheduler):
    @scheduler.job()
    def later(moment: datetime, by: timedelta) -> datetime:
        assert current_run() is not None
        return moment + by

    moment = datetime(2026, 11, 22, 12, 0, 0, 1, tzinfo=UTC)
    with scheduler:
        assert later.enqueue(moment, timedelta(days=1)).result("60s") == moment + timedelta(days=1)


def test_a_path_is_refused_as_it_always_was(scheduler):
    @scheduler.job()
    def read(path: Path) -> None: ...

    with pytest.raises(InvalidPayload, match=r"is a pathlib.PosixPath, which is not JSON"):
        read.enqueue(Path("/"))
