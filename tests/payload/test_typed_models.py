"""Models of pydantic as arguments and results: by annotation, like dataclasses."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import count

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator

from cronsensus import Scheduler
from cronsensus.errors import InvalidPayload
from cronsensus.payload.typed import Types

_names = count()


class Line(BaseModel):
    amount: Decimal
    due: date


class Order(BaseModel):
    id: int
    lines: list[Line] = Field(default_factory=list, alias="orderLines")

    @field_validator("id")
    @classmethod
    def positive(cls, number: int) -> int:
        if number < 1:
            raise ValueError("an order has a number")
        return number


class Special(Order):
    extra: int = 7


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    on: date


class Login(BaseModel):
    password: SecretStr


class Half(BaseModel):
    seen: int
    unseen: int = Field(default=0, exclude=True)
    _private: int = PrivateAttr(default=0)


class Letter(BaseModel):
    receiver: str = Field(validation_alias="to", serialization_alias="receiver")


@dataclass
class Parcel:
    order: Order
    label: str = ""


LINE = Line(amount=Decimal("9.90"), due=date(2026, 12, 1))
ORDER = Order(id=1, orderLines=[LINE])


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return f"memory://models-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


def add_a_line(order: Order, more: list[Line], last: Strict | None = None) -> Order:
    assert isinstance(order, Order)
    assert last is None or isinstance(last.on, date)
    return Order(id=order.id, orderLines=[*order.lines, *more])


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_models_go_in_and_come_out_as_what_they_were(url, executor):
    scheduler = Scheduler(url)
    job = scheduler.job(executor=executor)(add_a_line)
    with scheduler:
        handle = job.enqueue(ORDER, [LINE], last=Strict(on=date(2026, 12, 24)))
        assert handle.result("60s") == Order(id=1, orderLines=[LINE, LINE])
        kept = handle.look()
        assert kept.args == (
            {"id": 1, "orderLines": [{"amount": "9.90", "due": "2026-12-01"}]},
            [{"amount": "9.90", "due": "2026-12-01"}],
        )
        assert kept.kwargs == {"last": {"on": "2026-12-24"}}
        assert job.enqueue(ORDER, []).result("60s") == ORDER
    assert scheduler.options(job, key="k").call(ORDER, []).item.args == ({**kept.args[0]}, [])


def test_a_model_may_stand_in_a_dataclass_and_as_plain_json():
    def send(parcel: Parcel, order: Order) -> None: ...

    types = Types(send)
    given, _ = types.write_arguments((Parcel(ORDER), {"id": 3}), {})
    assert given[1] == {"id": 3, "orderLines": []}
    assert types.read_arguments(tuple(given), {})[0] == (Parcel(ORDER), Order(id=3))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"id": 0},
            r"order is a dict, which does not fit its annotation Order: id: Value error, an order has a number$",
        ),
        (Special(id=1), r"order is a .*Special, and \.extra of it would be lost, because its annotation Order"),
        ("x", r"order is 'x', which does not fit its annotation Order"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_where_it_is_enqueued(value, message):
    def send(order: Order) -> None: ...

    scheduler = Scheduler("memory://")
    job = scheduler.job()(send)
    scheduler.store.migrate()
    with pytest.raises(InvalidPayload, match=message):
        job.enqueue(value)


def test_what_a_model_leaves_out_of_its_json_is_not_lost_without_a_word():
    def login(who: Login, half: Half | None = None) -> None: ...

    types = Types(login)
    private = Half(seen=1)
    private._private = 1
    for args in [
        (Login(password=SecretStr("s3cret")),),
        (Login(password=SecretStr("")), Half(seen=1, unseen=2)),
        (Login(password=SecretStr("")), private),
    ]:
        with pytest.raises(
            InvalidPayload, match=r"does not come back from its own JSON as it was; a SecretStr"
        ) as error:
            types.write_arguments(args, {})
        assert "s3cret" not in str(error.value)


def test_a_model_that_cannot_read_what_it_writes_is_refused_without_its_values():
    def send(letter: Letter) -> None: ...

    with pytest.raises(InvalidPayload, match=r"cannot be read from its own JSON: to: Field required$") as error:
        Types(send).write_arguments((Letter.model_validate({"to": "ada@example.org"}),), {})
    assert "ada@" not in str(error.value)


def test_a_stored_model_that_does_not_fit_any_more_names_the_argument():
    def send(order: Order) -> None: ...

    with pytest.raises(InvalidPayload, match=r"order is stored as a dict, which does not fit its annotation Order"):
        Types(send).read_arguments(({"id": "many"},), {})


def test_without_its_annotation_a_model_is_told_to_have_it():
    def send(order) -> None: ...

    with pytest.raises(InvalidPayload, match=r"write `order: Order` in the function's signature"):
        Types(send).write_arguments((ORDER,), {})


def test_pydantic_is_not_imported_by_the_core():
    program = "import sys, cronsensus.scheduler, cronsensus.payload.typed; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
