from __future__ import annotations

import dataclasses
import enum
import functools
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from cronsensus.errors import InvalidPayload
from cronsensus.payload.typed import UNTYPED, Types

if TYPE_CHECKING:
    from nowhere import OnlyForCheckers  # type: ignore[import-not-found]  # noqa: F401 - in annotations that are text


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Odd(enum.Enum):
    PAIR = (1, 2)


class Point(NamedTuple):
    x: int
    on: date


class Tag(TypedDict):
    since: date


@dataclass(frozen=True)
class Order:
    id: UUID
    total: Decimal
    due: datetime
    lines: list[Line] = dataclasses.field(default_factory=list)
    before: Order | None = None


@dataclass(frozen=True)
class Line:
    what: str
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Special(Line):
    extra: int = 7


ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 11, 22, 12, 30, 1, 250, tzinfo=UTC)
ORDER = Order(ID, Decimal("9.990"), NOON, [Line("tea"), Line("cup", Colour.BLUE)], Order(ID, Decimal(1), NOON))


def through_json(annotation: Any, value: Any) -> Any:
    """Return what a function with this annotation gets of a value."""

    def function(it, *, named): ...

    function.__annotations__ = {"it": annotation, "named": annotation, "return": annotation}
    types = Types(function)
    args, kwargs = json.loads(json.dumps(types.write_arguments((value,), {"named": value})))
    (given,), named = types.read_arguments(tuple(args), kwargs)
    text = types.write_result(value)
    assert given == named["named"] == types.read_result(text)
    assert json.loads(json.dumps(types.write_arguments(args, kwargs))) == [args, kwargs], (
        "what is stored can be written again"
    )
    return given


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (date, date(2026, 1, 31)),
        (time, time(21, 30)),
        (datetime, NOON),
        (datetime, datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - naive ones, too
        (timedelta, timedelta(days=40, seconds=3, microseconds=7)),
        (timedelta, -timedelta(minutes=5)),
        (Decimal, Decimal("1.10")),
        (UUID, ID),
        (Colour, Colour.BLUE),
        (bytes, b"\0\xff"),
        (Order, ORDER),
        (Point, Point(1, date(2026, 1, 31))),
        (Tag, {"since": date(2026, 1, 31)}),
        (tuple[int, date], (1, date(2026, 1, 31))),
        (tuple[int, ...], (1, 2, 3)),
        (set[UUID], {ID}),
        (dict[int, date], {1: date(2026, 1, 31)}),
        (dict[date, Decimal], {date(2026, 1, 31): Decimal("0.1")}),
        (list[Order], [ORDER]),
        (date | None, date(2026, 1, 31)),
        ("date | None", date(2026, 1, 31)),
        ("list[Order]", [ORDER]),
        (int | Order, ORDER),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_come_back_as_the_annotation_names_them(annotation, value):
    back = through_json(annotation, value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "5"), (str, 5), (float, 1), (list, [1, [2]]), (dict, {"a": None}), (dict[str, int], {"a": "b"}), (Any, [1]),
     (object, "x"), (Path, "/tmp"), ("OnlyForCheckers", {"a": 1}), ("1 / 0", 7), (Odd, [1, 2]), (date | str, "x"),
     (None, 5), (list[str], "ab")],
    ids=str,
)  # fmt: skip
def test_where_the_annotation_says_no_more_than_json_values_pass_as_they_are(annotation, value):
    assert through_json(annotation, value) == value


def test_a_zone_comes_back_as_its_offset():
    there = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))
    back = through_json(datetime, there)
    assert (back, back.utcoffset()) == (there, timedelta(hours=2))


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (
            None,
            date(2026, 1, 31),
            "it is a datetime.date, which is not JSON, and its annotation is None; write `it: date` in the function's",
        ),
        (str, NOON, "its annotation is str; write `it: datetime`"),
        ("OnlyForCheckers", ID, "its annotation OnlyForCheckers cannot be resolved (NameError); write `it: UUID`"),
        (date | str, date(2026, 1, 31), "cannot be carried by JSON (Type unions may not contain more than one"),
        (Odd, Odd.PAIR, "cannot be carried by JSON (Enums must contain either all str or all int values"),
        (Path, Path("/"), "pathlib.PosixPath, which is not JSON"),
        (date, "tomorrow", "it is 'tomorrow', which does not fit its annotation date: Invalid RFC3339 encoded date"),
        (date, NOON, "it is a datetime.datetime, which does not fit its annotation date"),
        (Line, Special("tea"), "and .extra of it would be lost, because its annotation Line does not name it"),
        (list[Line], [Special("tea")], "[0].extra of it would be lost"),
        (Colour, "green", "Invalid enum value 'green'"),
        (Decimal, "ten", "does not fit its annotation Decimal"),
        (list[float], [float("nan")], "JSON has no such number"),
        (Order, dataclasses.replace(ORDER, lines=[Line("\ud800")]), "cannot be written as JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_value_of_another_type_is_refused_with_what_to_write(annotation, value, words):
    def function(it): ...

    if annotation is not None:
        function.__annotations__ = {"it": annotation}
    with pytest.raises(InvalidPayload) as refused:
        Types(function).write_arguments((value,), {})
    if annotation is None:
        words = words.replace("its annotation is None", "has no annotation")
    assert words in str(refused.value)


def test_what_is_stored_and_does_not_fit_is_refused_by_arguments_and_kept_by_results():
    def function(day: date) -> date:
        return day

    types = Types(function)
    with pytest.raises(InvalidPayload, match=r"day is stored as 5, which does not fit its annotation date"):
        types.read_arguments((5,), {})
    assert types.read_result('"soon"') == "soon"
    assert types.write_result("soon") == '"soon"'
    with pytest.raises(InvalidPayload, match=r"result is a .*Colour.*write `-> Colour`"):
        types.write_result(Colour.RED)


def test_each_parameter_has_its_own_annotation():
    def function(first: date, /, second: Decimal, *rest: UUID, third: Colour, run: object, **others: time) -> None: ...

    types = Types(function, "run")
    args = (date(2026, 1, 31), Decimal(2), ID, ID)
    kwargs = {"third": Colour.RED, "at": time(12), "until": time(13)}
    given, named = types.write_arguments(args, kwargs)
    assert given == ["2026-01-31", "2", str(ID), str(ID)]
    assert named == {"third": "red", "at": "12:00:00", "until": "13:00:00"}
    assert types.read_arguments(tuple(given), named) == (args, kwargs)


def test_a_run_that_stands_first_is_no_argument():
    def function(run: object, day: date) -> None: ...

    assert Types(function, "run").read_arguments(("2026-01-31",), {}) == ((date(2026, 1, 31),), {})


def test_a_class_that_is_defined_later_is_found_then():
    names: dict[str, Any] = {"__name__": "later"}
    exec("from __future__ import annotations\ndef function(it: Later): ...", names)
    types = Types(names["function"])
    assert types.read_arguments(("2026-01-31",), {}) == (("2026-01-31",), {})
    names["Later"] = date
    assert types.read_arguments(("2026-01-31",), {}) == ((date(2026, 1, 31),), {})


def test_wrapped_and_partial_functions_are_typed_by_the_function_itself():
    def function(day: date) -> None: ...

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    for one in (wrapper, functools.partial(function)):
        assert Types(one).read_arguments(("2026-01-31",), {}) == ((date(2026, 1, 31),), {})


@pytest.mark.parametrize("function", [None, print, dict, 7])
def test_what_has_no_signature_or_no_annotations_takes_json(function):
    types = UNTYPED if function is None else Types(function)
    assert types.read_arguments(([1],), {"a": 2}) == (([1],), {"a": 2})
    assert types.write_arguments(((1, 2),), {"a": 2}) == ([(1, 2)], {"a": 2})


def test_no_class_is_built_but_those_that_the_annotations_name():
    def function(it: Line) -> None: ...

    (line,), _ = Types(function).read_arguments(({"what": "tea", "colour": "red", "__class__": "Special"},), {})
    assert type(line) is Line
