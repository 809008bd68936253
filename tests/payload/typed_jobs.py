"""Functions with classes of their own, that a process of its own can import."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import ClassVar

from cronsensus import current_run


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Order:
    prices: list[Decimal]
    colour: Colour
    due: date


def total_of(order: Order, tax: Decimal) -> tuple[Decimal, Colour]:
    assert type(order.due) is date
    return sum(order.prices, tax), order.colour


@dataclass
class Picky:
    it: bool
    angry: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.angry:
            raise SystemExit("no")


def picky(it: Picky) -> None: ...


async def apicky(it: Picky) -> None: ...


def idempotency_key_here() -> str | None:
    run = current_run()
    return None if run is None else run.idempotency_key


def local_time_here() -> list[str | None]:
    run = current_run()
    assert run is not None
    return [None if run.local_time is None else run.local_time.isoformat(), run.zone]
