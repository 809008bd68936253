"""``ack="stored"`` on a real broker: a message becomes a job, and is acknowledged before that runs."""

from dataclasses import dataclass
from typing import Any

import pytest

from cronsensus import Run, Scheduler
from cronsensus.errors import InvalidOption, StoreUnavailable, UnsupportedFunction
from cronsensus.integrations.rabbitmq import Message, consumer
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.integrations.rabbitmq_queue import Ledger, Queue, running, wait_for


@dataclass
class Order:
    number: int


def test_a_message_is_stored_and_acknowledged_and_then_a_node_runs_it_once(ledger: Ledger, queue: Queue) -> None:
    ran: list[tuple[int, str]] = []

    @consumer(ledger.scheduler(), queue.name, ack="stored", attempts=2, backoff="10ms")
    def charge(body: Order, run: Run) -> str:
        ran.append((body.number, run.key))
        if run.key == "declined":
            raise ValueError("card declined")
        return f"charged {body.number}"

    assert charge.job is not None
    ids = [f"m{number}" for number in range(30)]
    queue.send("declined", *ids, *ids[:5])
    ledger.job = charge.job.name
    with running(charge, queue.url):
        wait_for(lambda: all(ledger.seen(id_) for id_ in ids), "an occurrence of each")
        queue.send("last")
        wait_for(lambda: ledger.seen("last"), "the last")
    wait_for(lambda: queue.left == 0, "an acknowledgement of each")
    assert not ran  # no node has been there
    with Scheduler(ledger.url, lease="5s") as node:
        node.job(name=charge.job.name, retries=1, retry_delay="10ms")(charge.job.function)
        ends = ledger.wait_for_end("declined", "last", *ids)
    assert sorted(ran) == sorted((7, key) for key in ["declined", "declined", "last", *ids])
    declined, *others = ends
    assert (declined.state, declined.attempt) == (State.FAILED, 2)
    assert {(one.state, one.result) for one in others} == {(State.SUCCEEDED, '"charged 7"')}


def test_what_cannot_be_stored_is_put_aside_with_its_reason_and_the_rest_goes_on(ledger: Ledger, queue: Queue) -> None:
    @consumer(ledger.scheduler(), queue.name, ack="stored")
    def charge(body: Order) -> None: ...

    assert charge.job is not None
    ledger.job = charge.job.name
    queue.send("m1", None)
    queue.send("m1", body=b'{"number": 8}')
    queue.send("poison", body=b"{")
    queue.send("large", body=b'{"number": 7, "note": "%s"}' % (b"x" * 300_000))
    queue.send("m1", "m2")
    with running(charge, queue.url):
        letters = queue.dead_letters(4)
        wait_for(lambda: ledger.seen("m2"), "m2")
    reasons = {(one.message_id, one.headers["x-cronsensus-reason"]) for one, _ in letters}
    assert reasons == {(None, "no-key"), ("m1", "mismatch"), ("poison", "poison"), ("large", "too-large")}
    [run] = [one.headers["x-cronsensus-run"] for one, _ in letters if one.message_id == "m1"]
    assert (seen := ledger.seen("m1")) is not None
    assert run == seen.id
    assert queue.left == 0


def test_while_the_store_is_away_nothing_is_acknowledged_and_then_everything_is_stored(
    ledger: Ledger, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @consumer(ledger.scheduler(), queue.name, ack="stored", key="body")
    def charge(body: bytes) -> None: ...

    job = charge.job
    assert job is not None
    ledger.job = job.name
    tries: list[int] = []
    enqueue_many = job.enqueue_many

    def away_at_first(calls: Any) -> Any:
        tries.append(len(calls))
        if len(tries) <= 2:
            raise StoreUnavailable("it is away")
        return enqueue_many(calls)

    monkeypatch.setattr(job, "enqueue_many", away_at_first)
    queue.send(*["m1"] * 3, body=b"\xff")
    with running(charge, queue.url):
        wait_for(lambda: len(tries) > 2, "another try")
        [seen] = wait_for(lambda: ledger.other._opened.shared().occurrences(OccurrenceFilter()), "an occurrence")
    assert queue.left == 0
    assert seen.job == job.name
    assert caplog.text.count("nothing acknowledged until it can") == 1


def test_a_job_with_options_of_its_own_may_be_the_consumer(ledger: Ledger, queue: Queue) -> None:
    scheduler = ledger.scheduler()

    @consumer(scheduler, queue.name, ack="stored")
    @scheduler.job(timeout="1h", retries=7, concurrency=2)
    async def charge(body: Order) -> int:
        return body.number

    assert charge.job is not None
    ledger.job = charge.job.name
    assert scheduler.jobs[charge.job.name].spec.policies.retries == 7
    queue.send("m1")
    with running(charge, queue.url):
        wait_for(lambda: ledger.seen("m1"), "an occurrence")
        scheduler.start()
        [end] = ledger.wait_for_end("m1")
        scheduler.stop()
    assert end.result == "7"


def test_what_cannot_be_combined_is_refused_with_what_to_write() -> None:
    scheduler = Scheduler("memory://")

    def stored(**options: Any) -> Any:
        return consumer(scheduler, "payments", ack="stored", **options)

    with pytest.raises(InvalidOption, match=r"nodes run them: leave them out; CRONSENSUS_CONCURRENCY"):
        stored(threads=4)
    with pytest.raises(InvalidOption, match=r"with current_run\(\)\.transaction\(\) as connection"):
        stored(transaction=True)
    with pytest.raises(InvalidOption, match="ack='claimed'"):
        consumer(scheduler, "payments", ack="claimed")  # type: ignore[arg-type]

    @scheduler.job()
    def charge(body: Order) -> None: ...

    with pytest.raises(InvalidOption, match=r"attempts: '.*charge' is a job with options of its own"):
        stored(attempts=3)(charge)

    def takes_message(body: Order, message: Message) -> None: ...

    with pytest.raises(UnsupportedFunction, match=r"is to take the body alone, .* Its key is current_run\(\)\.key"):
        stored()(takes_message)

    def says_nothing(body): ...

    with pytest.raises(UnsupportedFunction, match=r"write bytes, str, dict, or a dataclass: says_nothing\(body: dict"):
        stored()(says_nothing)
