"""A consumer of RabbitMQ on a real broker: what becomes of a message, whatever happens to it.

test_rabbitmq_struck.py has several processes, which are killed.
"""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from sqlalchemy import Connection, create_engine, text

from cronsensus import Alert, ConfigurationError, Scheduler
from cronsensus.alerts.events import Event
from cronsensus.errors import InvalidOption, StoreUnavailable, UnsupportedFunction, UnsupportedTransaction
from cronsensus.integrations.rabbitmq import Consumer, Message, consumer
from cronsensus.integrations.rabbitmq.messages import MessageKey
from cronsensus.metrics import metrics_wsgi
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Final
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.outside import Won
from tests.integrations.rabbitmq_queue import PATIENCE, Ledger, Queue, running, wait_for


@dataclass
class Order:
    number: int
    shop: str = "north"


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


def test_an_exception_that_has_no_text_or_no_utf8_and_a_coroutine_that_nobody_awaits_are_put_aside(
    ledger: Ledger, queue: Queue
) -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def later() -> None: ...

    @consumer(ledger.scheduler(), queue.name, attempts=1, threads=1)
    def charge(body: bytes, message: Message) -> Any:
        match message.message_id:
            case "speechless":
                raise Speechless
            case "half":
                raise ValueError("half a character: \ud800, and NUL: \0" + "x" * 1_000_000)
            case "later":
                return later()
            case _:
                return None

    queue.send("speechless", "half", "later", "m1", body=b"")
    with running(charge, queue.url):
        letters = queue.dead_letters(3)
        ledger.wait_for_end("m1")
    errors = {one.message_id: one.headers["x-cronsensus-error"] for one, _ in letters}
    assert "Speechless: (the exception's __str__ raised RuntimeError)" in errors["speechless"]
    assert errors["half"].startswith(r"ValueError: half a character: \ud800, and NUL: \x00xxx")
    assert "'coroutine', which nobody awaits" in errors["later"]
    [half] = ledger.wait_for_end("half")
    assert half.error is not None
    assert len(half.error.message) < 10_000
    assert queue.left == 0


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


def test_a_backoff_that_is_longer_than_the_delay_queue_keeps_a_message_is_waited_for(
    ledger: Ledger, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronsensus.integrations.rabbitmq.queues.DELAY_TTL", timedelta(seconds=0.2))
    attempts: list[float] = []

    @consumer(ledger.scheduler(), queue.name, threads=1, room=0, attempts=2, backoff="1s")
    def charge(body: bytes) -> None:
        attempts.append(time.monotonic())
        raise ValueError("declined")

    queue.send("m1", body=b"")
    with running(charge, queue.url):
        [(letter, _)] = queue.dead_letters(1)
    assert len(attempts) == 2
    assert attempts[1] - attempts[0] > 0.95
    assert "x-cronsensus-not-before" not in letter.headers


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


def test_with_a_prefetch_of_its_threads_a_consumer_takes_no_message_that_an_idle_one_could_run(
    ledger: Ledger, queue: Queue
) -> None:
    both_run = threading.Barrier(2)

    def make() -> Consumer[..., Any]:
        @consumer(ledger.scheduler(), queue.name, threads=1, prefetch=1)
        def charge(body: bytes) -> None:
            both_run.wait(PATIENCE)

        return charge

    with running(make(), queue.url):
        queue.send("m1", "m2", "m3", "m4", body=b"")
        wait_for(lambda: ledger.seen("m1"), "a run")
        with running(make(), queue.url):
            ends = ledger.wait_for_end("m1", "m2", "m3", "m4")
    assert [(one.state, one.attempt) for one in ends] == [(State.SUCCEEDED, 1)] * 4


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


def test_with_a_transaction_a_process_that_is_killed_around_the_commit_leaves_each_effect_once(
    ledger: Ledger, queue: Queue, tmp_path: Path
) -> None:
    engine = create_engine(ledger.url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bookings (name TEXT, pid INTEGER)"))
    environment = {
        **os.environ, "CRONSENSUS_URL": ledger.url, "BROKER": queue.url, "QUEUE": queue.name, "OUT": str(tmp_path),
    }  # fmt: skip
    app = Path(__file__).parent / "rabbitmq_booking_app.py"
    queue.send("before", "after", body=b"")
    ends: list[int] = []
    while len(ends) < 2:  # one is killed before a commit, and one after another message's commit
        with subprocess.Popen([sys.executable, app], env=environment) as started:
            ends.append(started.wait(PATIENCE))
    queue.send("m1", "m2", body=b"")
    with subprocess.Popen([sys.executable, app], env=environment) as started:
        occurrences = ledger.wait_for_end("before", "after", "m1", "m2")
        started.terminate()
        ends.append(started.wait(PATIENCE))
    assert ends == [-9, -9, 0]
    assert {one.state for one in occurrences} == {State.SUCCEEDED}
    with engine.connect() as connection:
        booked = connection.execute(text("SELECT name FROM bookings ORDER BY name")).scalars().all()
    engine.dispose()
    assert booked == ["after", "before", "m1", "m2"]
    assert queue.left == 0


def test_what_fails_in_its_transaction_leaves_nothing_and_a_store_without_transactions_is_refused(
    ledger: Ledger, queue: Queue
) -> None:
    @consumer(ledger.scheduler(), queue.name, attempts=2, backoff="50ms", transaction=True)
    def book(connection: Connection, body: Order, message: Message) -> int:
        connection.execute(text("CREATE TABLE IF NOT EXISTS bookings (name TEXT)"))
        connection.execute(text("INSERT INTO bookings VALUES (:name)"), {"name": message.message_id})
        if message.message_id == "bad":
            raise ValueError("sold out")
        return body.number

    queue.send("bad", "good")
    with running(book, queue.url):
        [(letter, _)] = queue.dead_letters(1)
        [good, bad] = ledger.wait_for_end("good", "bad")
    assert letter.headers["x-cronsensus-error"] == "ValueError: sold out"
    assert (good.state, good.result, bad.state, bad.attempt) == (State.SUCCEEDED, "7", State.FAILED, 2)
    engine = create_engine(ledger.url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT name FROM bookings")).scalars().all() == ["good"]
    engine.dispose()
    refused = consumer(Scheduler("memory://"), queue.name, transaction=True)(lambda connection, body: None)
    with pytest.raises(UnsupportedTransaction, match="use a store that has: sqlite://"):
        refused.run(queue.url)


def test_an_idle_consumer_is_listed_and_a_node_alerts_and_measures_what_failed_for_good(
    ledger: Ledger, queue: Queue
) -> None:
    @consumer(ledger.scheduler(), queue.name, attempts=1)
    def charge(body: bytes) -> None:
        raise ValueError("declined")

    alerted: list[Event] = []
    node = Scheduler(ledger.url, lease="5s", alerts=[Alert(alerted.extend, name="ops", on=["failed"])])
    with running(charge, queue.url):
        [idle] = wait_for(lambda: ledger.other._opened.shared().sessions(), "a session, although nothing has come")
        assert (idle.pid, idle.is_node, idle.holds) == (os.getpid(), False, 0)
        with node:
            watches = OccurrenceFilter(job="cronsensus:alert:ops")
            # What happens before an alert has begun to look is not told.
            wait_for(lambda: [one for one in node.store.occurrences(watches, limit=1) if one.note], "its first look")
            queue.send("m1")
            wait_for(lambda: alerted, "an alert")
            started: list[str] = []
            body = metrics_wsgi(node)(
                {"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda status, _: started.append(status)
            )
            assert f'last_failure_timestamp_seconds{{job_name="{ledger.job}"}}'.encode() in b"".join(body)
    assert (alerted[0].job, alerted[0].reason) == (ledger.job, "ValueError: declined")


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
    with pytest.raises(UnsupportedFunction, match=r"write <lambda>\(connection, body\)"):
        consumer(scheduler, "payments", transaction=True)(lambda body: None)
    for options in (
        {"dead_letter": None}, {"dead_letter": "payments"}, {"attempts": 0}, {"key": "{order}"}, {"key": "orders"},
        {"type": "stream"}, {"keep": "0s"}, {"threads": 0}, {"backoff": "2m"},
        {"prefetch": 7}, {"threads": 2, "room": 2, "prefetch": 3}, {"room": 70_000},
    ):  # fmt: skip
        with pytest.raises(InvalidOption):
            consumer(scheduler, "payments", **options)(lambda body: None)
    assert timedelta(seconds=1) == consumer(scheduler, "payments")(lambda body: None)._options.backoff
