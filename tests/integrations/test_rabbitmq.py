"""A consumer of RabbitMQ on a real broker: what becomes of a message, whatever happens to it.

test_rabbitmq_struck.py has several processes, which are killed.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import pytest

from cronsensus import ConfigurationError, Scheduler
from cronsensus.errors import InvalidOption, StoreUnavailable, UnsupportedFunction
from cronsensus.integrations.rabbitmq import Consumer, Message, consumer
from cronsensus.integrations.rabbitmq.messages import MessageKey
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Final
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.outside import Won
from tests.scratch import scratch_folder

PATIENCE = 20.0


@pytest.fixture
def folder():
    with scratch_folder() as empty:
        yield empty


@dataclass
class Order:
    number: int
    shop: str = "north"


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


class Queue:
    """A queue of one test on the broker of the run, with the two queues beside it."""

    def __init__(self, url: str, kind: str = "quorum") -> None:
        self.url, self.name, self.kind = url, f"test-{uuid.uuid4().hex[:8]}", kind
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        for name in (self.name, f"{self.name}.failed"):  # both, or a broker may be asked for one that is being made
            self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})

    def send(self, *ids: str | None, body: bytes = b'{"number": 7}', **properties: Any) -> None:
        for id_ in ids:
            shown = pika.BasicProperties(message_id=id_, delivery_mode=2, **properties)
            self.channel.basic_publish("", self.name, body, shown, mandatory=True)

    def dead_letters(self, count: int) -> list[Any]:
        """Wait for so many, and take them out: their properties and bodies."""
        found: list[Any] = []

        def has_more() -> bool:
            got, shown, body = self.channel.basic_get(f"{self.name}.failed", auto_ack=True)
            if got is not None:
                found.append((shown, body))
            return len(found) >= count

        wait_for(has_more, f"{count} dead letters")
        return found

    @property
    def left(self) -> int:
        """How many messages are there, of which none is with a consumer; ask when none runs."""
        channel = self.connection.channel()
        count = channel.queue_declare(self.name, passive=True).method.message_count
        channel.close()
        return int(count)

    def close(self) -> None:
        for queue in (self.name, f"{self.name}.failed", f"{self.name}.held"):
            self.connection.channel().queue_delete(queue)
        self.connection.close()


@pytest.fixture
def queue(rabbitmq_url: str) -> Iterator[Queue]:
    queue = Queue(rabbitmq_url)
    yield queue
    queue.close()


class Ledger:
    """The store of a test, as another process sees it."""

    def __init__(self, folder: Path, queue: Queue) -> None:
        self.url, self.job = f"sqlite:///{folder}/messages.db", f"rabbitmq:{queue.name}"
        self.other = Scheduler(self.url, lease="5s", node="other")

    def scheduler(self) -> Scheduler:
        return Scheduler(self.url, lease="5s")

    def seen(self, key: str) -> Occurrence | None:
        found = self.other._opened.shared().occurrences(OccurrenceFilter(job=self.job, key=key), limit=1)
        return found[0] if found else None

    def wait_for_end(self, *keys: str) -> list[Occurrence]:
        def ended() -> list[Occurrence]:
            found = [self.seen(key) for key in keys]
            return [one for one in found if one is not None and one.state.final and len(found) == len(keys)]

        wait_for(lambda: len(ended()) == len(keys), f"an end of {keys}")
        return ended()


@pytest.fixture
def ledger(folder: Path, queue: Queue) -> Iterator[Ledger]:
    ledger = Ledger(folder, queue)
    yield ledger
    ledger.other._opened.close()


@contextmanager
def running(made: Consumer[..., Any], url: str) -> Iterator[None]:
    errors: list[Exception] = []

    def run() -> None:
        try:
            made.run(url)
        except Exception as error:  # noqa: BLE001 - raised where the test ends
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        made.stop()
        thread.join(PATIENCE)
        made._scheduler._opened.close()
    assert not thread.is_alive()
    assert not errors, errors


def test_a_message_that_comes_five_times_to_two_consumers_runs_once(ledger: Ledger, queue: Queue) -> None:
    begun: list[tuple[Order, str | None]] = []
    goes_on = threading.Event()

    def make() -> Consumer[..., Any]:
        @consumer(ledger.scheduler(), queue.name)
        def charge(body: Order, message: Message) -> str:
            begun.append((body, message.message_id))
            if message.message_id == "m1":
                goes_on.wait(PATIENCE)
            return f"charged {body.number}"

        return charge

    queue.send(*["m1"] * 5)
    with running(make(), queue.url), running(make(), queue.url):
        wait_for(lambda: begun, "a run")
        queue.send("m2")
        ledger.wait_for_end("m2")
        goes_on.set()
        [m1] = ledger.wait_for_end("m1")
        queue.send("m1", "m3")
        ledger.wait_for_end("m3")
    assert (m1.state, m1.result, m1.attempt) == (State.SUCCEEDED, '"charged 7"', 1)
    assert sorted(id_ or "" for _, id_ in begun) == ["m1", "m2", "m3"]
    assert begun[0][0] == Order(7)
    assert queue.left == 0


def test_what_fails_is_tried_again_and_at_last_put_aside_with_its_error(ledger: Ledger, queue: Queue) -> None:
    attempts: list[int] = []

    @consumer(ledger.scheduler(), queue.name, attempts=3, backoff="50ms")
    def charge(body: Order) -> None:
        attempts.append(body.number)
        raise ValueError(f"card of {body.number} declined")

    queue.send("m1", headers={"shop": "north"}, user_id="guest", expiration="60000")
    with running(charge, queue.url):
        [(properties, body)] = queue.dead_letters(1)
        queue.send("m1")
        [(again, _)] = queue.dead_letters(1)
    assert attempts == [7, 7, 7]
    assert body == b'{"number": 7}'
    assert properties.headers.pop("x-cronsensus-run") == ledger.wait_for_end("m1")[0].id
    assert {name: value for name, value in properties.headers.items() if name != "x-delivery-count"} == {
        "shop": "north",
        "x-cronsensus-reason": "failed",
        "x-cronsensus-error": "ValueError: card of 7 declined",
        "x-cronsensus-attempts": 3,
        "x-cronsensus-queue": queue.name,
        "x-cronsensus-key": "m1",
        "x-cronsensus-user-id": "guest",
    }
    assert (properties.message_id, properties.expiration, properties.delivery_mode) == ("m1", None, 2)
    assert again.headers["x-cronsensus-error"] == "ValueError: card of 7 declined"
    assert queue.left == 0


def test_no_id_no_json_another_body_and_an_end_by_hand_are_put_aside_and_the_rest_goes_on(
    ledger: Ledger, queue: Queue
) -> None:
    done: list[int] = []

    @consumer(ledger.scheduler(), queue.name)
    def charge(body: Order) -> None:
        done.append(body.number)

    outside = ledger.other._opened.outside()
    [[won]] = outside.acquire([(charge._options.spec, AskNamed(ledger.job, key="by-hand"))])
    assert isinstance(won, Won)
    assert outside.settle_now(won, Final(State.CANCELLED, "by an operator"))
    with running(charge, queue.url):
        queue.send(None, "by-hand", "m1")
        queue.send("poison", body=b"\xff{")
        queue.send("no-order", body=b'{"shop": 3}')
        ledger.wait_for_end("m1")
        queue.send("m1", body=b'{"number": 8}')
        letters = queue.dead_letters(5)
        queue.send("m2")
        ledger.wait_for_end("m2")
    reasons = {one.message_id: one.headers["x-cronsensus-reason"] for one, _ in letters}
    assert reasons == {
        None: "no-key", "by-hand": "by an operator", "poison": "poison", "no-order": "poison", "m1": "mismatch",
    }  # fmt: skip
    [text] = [one.headers["x-cronsensus-error"] for one, _ in letters if one.message_id is None]
    assert "has no message_id: set it where it is published" in text
    assert done == [7, 7]
    assert [one.reason for one in ledger.wait_for_end("poison")] == ["poison"]


def test_what_runs_elsewhere_waits_in_the_delay_queue_where_there_is_no_room(ledger: Ledger, queue: Queue) -> None:
    done: list[str | None] = []

    @consumer(ledger.scheduler(), queue.name, threads=1, room=0)
    def charge(body: Order, message: Message) -> None:
        done.append(message.message_id)

    outside = ledger.other._opened.outside()
    [[won]] = outside.acquire([(charge._options.spec, AskNamed(ledger.job, key="m1"))])
    assert isinstance(won, Won)
    with running(charge, queue.url):
        queue.send("m1", "m2")
        ledger.wait_for_end("m2")
        assert outside.settle_now(won, Final(State.SUCCEEDED))
    assert done == ["m2"]
    channel = queue.connection.channel()
    held = channel.queue_declare(f"{queue.name}.held", passive=True).method.message_count
    assert held + queue.left == 1  # it comes back after some seconds, and is then found to have succeeded


def test_messages_that_have_crashed_twice_do_not_run_beside_each_other(ledger: Ledger, queue: Queue) -> None:
    met: list[bool] = []
    meeting = threading.Barrier(2)

    @consumer(ledger.scheduler(), queue.name)
    def charge(body: bytes) -> None:
        try:
            meeting.wait(0.3)
        except threading.BrokenBarrierError:
            meeting.reset()
        else:
            met.append(True)

    outside, store = ledger.other._opened.outside(), ledger.other._opened.shared()
    asks = [(charge._options.spec, AskNamed(ledger.job, key=key)) for key in ("m1", "m2")]
    for _ in range(2):
        [[won], _] = outside.acquire(asks)
        assert isinstance(won, Won)
        store.reclaim({won.claim.session})
    queue.send("m1", "m2", body=b"")
    with running(charge, queue.url):
        ends = ledger.wait_for_end("m1", "m2")
    assert [(one.state, one.crashes) for one in ends] == [(State.SUCCEEDED, 2)] * 2
    assert not met


def test_while_the_store_is_away_nothing_runs_and_then_everything_does(
    ledger: Ledger, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str | None] = []
    asked: list[int] = []

    @consumer(ledger.scheduler(), queue.name)
    def charge(body: bytes, message: Message) -> None:
        done.append(message.message_id)

    claims = charge._scheduler._opened.outside()._claims
    acquire = claims.acquire_claims

    def away_at_first(wanted: Any) -> Any:
        asked.append(len(wanted))
        if len(asked) <= 3:
            assert not done
            raise StoreUnavailable("it is away")
        return acquire(wanted)

    monkeypatch.setattr(claims, "acquire_claims", away_at_first)
    ids = [f"m{number}" for number in range(30)]
    queue.send(*ids, body=b"")
    with running(charge, queue.url):
        ledger.wait_for_end(*ids)
    assert sorted(key or "" for key in done) == sorted(ids)
    assert queue.left == 0
    assert caplog.text.count("nothing acknowledged until it can") == 1
    assert caplog.text.count("the store answers again") == 1


def test_stopped_it_finishes_what_runs_and_gives_back_what_it_had_acquired_ahead(ledger: Ledger, queue: Queue) -> None:
    begun: list[str | None] = []
    both, goes_on = threading.Semaphore(0), threading.Event()

    @consumer(ledger.scheduler(), queue.name, threads=2, room=20)
    def charge(body: bytes, message: Message) -> str:
        begun.append(message.message_id)
        both.release()
        goes_on.wait(PATIENCE)
        return body.decode()

    ids = [f"m{number}" for number in range(10)]
    queue.send(*ids)

    def running_keys() -> list[str]:
        return [key for key in ids if (seen := ledger.seen(key)) is not None and seen.state is State.RUNNING]

    with running(charge, queue.url):
        assert both.acquire(timeout=PATIENCE)
        assert both.acquire(timeout=PATIENCE)
        wait_for(lambda: len(running_keys()) == 8, "messages that are acquired ahead")
        charge.stop()
        wait_for(lambda: len(running_keys()) == 2, "messages that others may run, while what was begun goes on")
        goes_on.set()
    assert len(begun) == 2
    assert {one.state for one in ledger.wait_for_end(*(key or "" for key in begun))} == {State.SUCCEEDED}
    wait_for(lambda: queue.left == 8, "messages that went back")


def test_messages_acknowledged_together_leave_out_one_before_them_that_is_not_done(
    ledger: Ledger, queue: Queue
) -> None:
    @consumer(ledger.scheduler(), queue.name, backoff="1m")
    def charge(body: bytes, message: Message) -> None:
        if message.message_id == "m5":
            raise ValueError(message.message_id)

    ids = [f"m{number}" for number in range(40)]
    queue.send(*ids)
    with running(charge, queue.url):
        ledger.wait_for_end(*(key for key in ids if key != "m5"))
    wait_for(lambda: queue.left == 1, "the one that is to be tried again")
    _, properties, _ = queue.channel.basic_get(queue.name, auto_ack=True)
    assert properties.message_id == "m5"


def test_a_queue_of_another_type_and_a_refused_login_say_what_to_do(ledger: Ledger, queue: Queue) -> None:
    @consumer(ledger.scheduler(), queue.name, type="classic")
    def charge(body: bytes) -> None: ...

    with pytest.raises(ConfigurationError, match=r"is there with other arguments .*: declare=False takes it as it is"):
        charge.run(queue.url)
    with pytest.raises(ConfigurationError, match=r"broker at amqp://guest:\*\*\*@127.* refused the login") as refused:
        charge.run(queue.url.replace("guest:guest", "guest:wrong"))
    assert "wrong" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="is no broker: write amqp://"):
        charge.run("http://rabbit")
    charge._scheduler._opened.close()


@pytest.mark.parametrize(
    ("key", "spelled"),
    [
        ("{properties.message_id}", "m1"),
        ("{headers.shop}/{body.order.id}", "north/7"),
        (lambda message: message.body.decode()[:5], '{"ord'),
        ("body", None),
    ],
)
def test_a_key_is_made_of_properties_headers_and_body(key: Any, spelled: str | None) -> None:
    properties = pika.BasicProperties(message_id="m1", headers={"shop": "north"})
    message = Message(json.dumps({"order": {"id": 7}}).encode(), properties, "orders")
    made = MessageKey(key, "charge", "orders")(message)
    assert made == (spelled or message.fingerprint)


def test_what_cannot_be_declared_says_what_to_write() -> None:
    scheduler = Scheduler("memory://")

    async def later(body: bytes) -> None: ...

    with pytest.raises(UnsupportedFunction, match="later is async: pika runs threads"):
        consumer(scheduler, "payments")(later)
    with pytest.raises(UnsupportedFunction, match=r"write <lambda>\(body\)"):
        consumer(scheduler, "payments")(lambda: None)
    for options in (
        {"dead_letter": None}, {"dead_letter": "payments"}, {"attempts": 0}, {"key": "{order}"}, {"key": "orders"},
        {"type": "stream"}, {"keep": "0s"}, {"threads": 0},
    ):  # fmt: skip
        with pytest.raises(InvalidOption):
            consumer(scheduler, "payments", **options)(lambda body: None)
    assert timedelta(seconds=1) == consumer(scheduler, "payments")(lambda body: None)._options.backoff
