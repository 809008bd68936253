from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pytest

from cronsensus import Scheduler
from cronsensus.errors import InvalidPayload

DAY = date(2026, 1, 31)


@dataclass
class Receipt:
    day: date
    total: Decimal


def test_a_repeat_gets_what_the_return_annotation_names(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/x.db")
    calls = []

    @scheduler.once(key="charge:{order}")
    def charge(order: int) -> Receipt:
        calls.append(order)
        return Receipt(DAY, Decimal("9.90"))

    assert [charge(1), charge(1)] == [Receipt(DAY, Decimal("9.90"))] * 2
    assert calls == [1]


def test_a_repeat_of_what_was_committed_with_its_result_is_typed_as_well(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/x.db")
    calls = []

    @scheduler.once(key="charge:{order}", transaction=True)
    def charge(connection: object, order: int) -> Receipt:
        calls.append(order)
        return Receipt(DAY, Decimal("9.90"))

    assert [charge(1), charge(1)] == [Receipt(DAY, Decimal("9.90"))] * 2
    assert calls == [1]


def test_a_result_that_needs_an_annotation_says_so():
    scheduler = Scheduler("memory://")

    @scheduler.once(key="{order}")
    def charge(order: int):
        return DAY

    with pytest.raises(
        InvalidPayload, match=r"is a datetime.date, which is not JSON, and has no annotation; write `-> date`"
    ):
        charge(1)
