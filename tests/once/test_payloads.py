"""The same key with another payload is found out, and the same message that comes again is not."""

import dataclasses
import enum
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from cronsensus import PayloadMismatch, RunFailed, Scheduler
from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.testing.conformance.steps import an_end, settle, win_named
from tests.servers.distance import patience

PATIENCE = patience(60.0)
EAST = timezone(timedelta(hours=1))


def test_another_payload_under_one_key_is_an_error_that_tells_names_and_no_values(scheduler):
    ran = []

    @scheduler.once("charge:{order_id}")
    def charge(order_id: int, amount: float, currency: str = "EUR") -> float:
        ran.append((order_id, amount, currency))
        return amount

    assert charge(1, 9.99) == 9.99
    with pytest.raises(PayloadMismatch, match=r"'charge:1' with another payload.*amount differs.*payload=") as caught:
        charge(1, 500.125)
    assert caught.value.differs == ("amount",)
    assert caught.value.given == caught.value.recorded == ("amount", "currency", "order_id")
    assert isinstance(caught.value.occurrence, Occurrence)
    assert not [value for value in ("9.99", "500", "EUR") if value in str(caught.value)]
    with pytest.raises(PayloadMismatch) as caught:
        charge(1, 9.0, "USD")
    assert caught.value.differs == ("amount", "currency")
    assert charge(1, 9.99) == 9.99
    assert ran == [(1, 9.99, "EUR")]
    (seen,) = scheduler.store.occurrences(OccurrenceFilter(job="once:charge"))
    assert seen.fingerprint is not None
    assert "9.99" not in seen.fingerprint


def test_the_recorded_result_may_be_returned_all_the_same(scheduler):
    @scheduler.once("charge:{order_id}", on_mismatch="return")
    def charge(order_id: int, amount: float) -> float:
        return amount

    assert [charge(1, 9.99), charge(1, 500.0)] == [9.99, 9.99]


def test_another_payload_is_found_out_while_the_first_call_runs(local):
    running, go = threading.Event(), threading.Event()

    @local.once("k:{n}")
    def work(n: int, what: str) -> str:
        running.set()
        assert go.wait(PATIENCE)
        return what

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(work, 1, "a")
        assert running.wait(PATIENCE)
        with pytest.raises(PayloadMismatch, match="than the call that is running there"):
            work(1, "b")
        go.set()
        assert call.result(PATIENCE) == "a"


def test_a_key_that_is_free_after_a_failure_takes_another_payload(scheduler):
    @scheduler.once("k:{n}")
    def work(n: int, what: str) -> str:
        if what == "wrong":
            raise ValueError(what)
        return what

    with pytest.raises(ValueError, match="wrong"):
        work(1, "wrong")
    assert work(1, "right") == "right"
    with pytest.raises(PayloadMismatch):
        work(1, "wrong")


def test_a_key_that_is_kept_after_a_failure_tells_another_payload_from_a_repeat(scheduler):
    @scheduler.once("k:{n}", on_error="keep")
    def work(n: int, what: str) -> None:
        raise ValueError(what)

    with pytest.raises(ValueError, match="a"):
        work(1, "a")
    with pytest.raises(RunFailed):
        work(1, "a")
    with pytest.raises(PayloadMismatch, match="than the call that is failed there"):
        work(1, "b")


def test_key_of_a_dead_process_refuses_another_payload(shared_url):
    """It may have charged already: that it is done again is what at-least-once means, but not something else."""
    dead, alive = Scheduler(shared_url, lease="60s"), Scheduler(shared_url, lease="60s")
    guarded = [one.once("k:{n}", name="w")(lambda n, what: what) for one in (dead, alive)]
    claims = dead._opened.claims()

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    claims.note_owner_gone = die  # type: ignore[assignment, method-assign]
    claims.record_end = die  # type: ignore[assignment, method-assign]
    with pytest.raises(Died):
        guarded[0](1, "a")
    (session,) = [one.id for one in dead.store.sessions()]
    dead.store.reclaim([session])
    # Far away its own maintain was perhaps the first, and has recorded what the call came to.
    with pytest.raises(PayloadMismatch, match=r"than (an attempt that was cut off|the call that is succeeded)"):
        guarded[1](1, "b")
    assert guarded[1](1, "a") == "a"
    for one in (dead, alive):
        one._opened.close()


def test_key_of_an_older_version_matches_any_payload(scheduler):
    charge = scheduler.once("charge:{order_id}")(_charge)
    charge(0, 1)
    claims = scheduler._opened.claims()
    session = claims._host.pin_session()
    claim = win_named(claims.store, session.session, "once:_charge", key="charge:1", lease=timedelta(seconds=10))
    assert claim is not None
    from cronsensus import State

    settle(claims.store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED, result="9.99")])
    claims._host.unpin_session()
    assert [charge(1, 500.0), charge("1", 7)] == [9.99, 9.99]


def _charge(order_id, amount):
    return amount


def test_a_release_may_add_an_argument_or_compare_other_ones(shared_url):
    first = Scheduler(shared_url).once("k:{n}", name="w")(lambda n, what: what)
    more = Scheduler(shared_url).once("k:{n}", name="w")(lambda n, what, note="": what + note)
    other = Scheduler(shared_url).once("k:{n}", name="w", payload=lambda n, what: [what, "v2"])(lambda n, what: what)
    assert first(1, "a") == more(1, "a", "b") == other(1, "a") == "a"
    with pytest.raises(PayloadMismatch):
        more(1, "b")


# --- what counts ------------------------------------------------------------------------------------------------------


class Channel:
    """What a client of a broker passes."""


class Message:
    def __init__(self, body):
        self.body = body


def twice(local, first, second, **options):
    """Call a handler with one message, and with another; return whether the second was taken for the first."""
    local._guards.guarded.clear()
    ran: list[int] = []
    guarded = local.once(f"{len(local.store.jobs(retired=True))}", name=f"f{id(ran)}", **options)(
        lambda *args, **kwargs: ran.append(1)
    )
    guarded(*first[0], **first[1])
    try:
        guarded(*second[0], **second[1])
    except PayloadMismatch:
        return False
    assert ran == [1]
    return True


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"delivery_tag": 1, "redelivered": False}, {"delivery_tag": 2, "redelivered": True}),
        ({"message": {"id": 1, "deliveryTag": 1, "Redelivered": False}}, {"message": {"id": 1, "deliveryTag": 9}}),
        ({"record": {"body": "x", "receiptHandle": "a", "attributes": {"ApproximateReceiveCount": "1"}}},
         {"record": {"body": "x", "receiptHandle": "b", "attributes": {"ApproximateReceiveCount": "2"}}}),
        ({"channel": Channel(), "body": b"x"}, {"channel": Channel(), "body": b"x"}),
        ({"m": {"body": "x", "channel": Channel()}}, {"m": {"body": "x", "channel": Channel()}}),
        ({"amount": 9}, {"amount": 9.0}),
        ({"amount": Decimal("9.90")}, {"amount": 9.9}),
        ({"items": (1, 2)}, {"items": [1, 2]}),
        ({"at": datetime(2026, 3, 1, 12, tzinfo=UTC)}, {"at": datetime(2026, 3, 1, 13, tzinfo=EAST)}),
        ({"id": UUID(int=7)}, {"id": str(UUID(int=7))}),
        ({"tags": {"a", "b", "c"}}, {"tags": {"c", "b", "a"}}),
        ({"d": {"a": 1, "b": 2}}, {"d": {"b": 2, "a": 1}}),
    ],
)  # fmt: skip
def test_a_message_that_comes_again_is_the_same_message(local, first, second):
    assert twice(local, ((), first), ((), second))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Order:
    number: int
    seen: int = dataclasses.field(default=0, compare=False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"body": b"x"}, {"body": b"y"}),
        ({"amount": Decimal("9.9")}, {"amount": Decimal("9.91")}),
        ({"amount": 1}, {"amount": "1"}),
        ({"amount": 1}, {"amount": True}),
        ({"day": date(2026, 3, 1)}, {"day": date(2026, 3, 2)}),
        ({"colour": Colour.RED}, {"colour": Colour.BLUE}),
        ({"order": Order(1)}, {"order": Order(2)}),
        ({"m": {"body": "x", "channel": Channel()}}, {"m": {"body": "y", "channel": Channel()}}),
        ({"items": [1, 2]}, {"items": [2, 1]}),
    ],
)
def test_another_message_is_another_one(local, first, second):
    assert not twice(local, ((), first), ((), second))


def test_payload_compares_only_the_named_parts(local):
    @local.once("{message.body[id]}", payload=("message.body", "amount"))
    def handle(message, amount, when):
        return amount

    assert handle(Message({"id": 1}), 5, 1) == handle(Message({"id": 1}), 5, 2) == 5
    with pytest.raises(PayloadMismatch, match="amount differs"):
        handle(Message({"id": 1}), 6, 1)
    with pytest.raises(PayloadMismatch, match=r"message\.body differs"):
        handle(Message({"id": 1, "x": 2}), 5, 1)
    nothing = local.once("k", payload=(), name="nothing")(lambda what: what)
    assert [nothing(1), nothing(2)] == [1, 1]


def test_payload_may_be_a_function_of_the_call(local):
    @local.once("k", payload=lambda message: json.loads(message)["amount"])
    def handle(message):
        return message

    assert handle('{"amount": 1, "at": 1}') == handle('{"at": 2, "amount": 1}')
    with pytest.raises(PayloadMismatch, match=r"payload\(\) differs"):
        handle('{"amount": 2, "at": 1}')


def test_payload_that_cannot_be_compared_is_refused_before_the_run(local):
    ran: list[object] = []

    def noting(message: object) -> None:
        ran.append(message)

    for payload in ("message", lambda message: message):
        local._guards.guarded.clear()
        guarded = local.once("k", payload=payload, name="f")(noting)
        with pytest.raises(InvalidOption, match="a Message that cannot be compared"):
            guarded(Message(1))
    with pytest.raises(InvalidOption, match=r"payload='message\.nothing' of g\(\) is not in this call"):
        local.once("k", payload="message.nothing", name="g")(lambda message: None)(Message(1))
    assert ran == []


def test_the_object_of_a_method_is_no_payload(local):
    @dataclasses.dataclass
    class Shop:
        calls: int = 0

        @local.once("order:{order}")
        def charge(self, order: int) -> int:
            self.calls += 1
            return order

    shop = Shop()
    assert [shop.charge(1), shop.charge(1), shop.calls] == [1, 1, 1]


def test_a_call_with_many_arguments_has_a_short_fingerprint(local):
    many = {f"a{number}": number for number in range(500)}
    guarded = local.once("k", name="f")(lambda **kwargs: 1)
    guarded(**many)
    (seen,) = local.store.occurrences(OccurrenceFilter(job="once:f"))
    assert len(seen.fingerprint or "") < 2000
    with pytest.raises(PayloadMismatch):
        guarded(**many | {"a499": 0})
    assert guarded(**many) == 1
