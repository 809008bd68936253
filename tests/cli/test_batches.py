"""A batch on the command line: how far it is, what failed, and what it waits for."""

from datetime import timedelta

import pytest

from cronsensus.insight.why import explain_time
from cronsensus.model.batch import item_key
from cronsensus.model.ends import End, Parked
from cronsensus.model.occurrence import Item, OccurrenceFilter, RunError
from cronsensus.model.states import Origin, State
from cronsensus.model.step import Step
from cronsensus.testing.conformance.steps import take


@pytest.fixture
def batch(cluster):
    """A scheduled batch that sleeps, with six items: two done, one failed, one running, two waiting."""
    cluster.join("node-1")
    cluster.every("close", "1h")
    cluster.time = cluster.advance(3600)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.store.enqueue(
        [
            Item(job="close", key=item_key(claim.id, shop), args=(shop,), origin=Origin.BATCH, parent=claim.id)
            for shop in ("paris", "lyon", "nice", "metz", "brest", "lille")
        ]
    )
    asleep = End.of(claim, Parked("items", 6, "waits for its items"))
    cluster.store.step(claim.session, Step(ends=(asleep,)))
    items = take(cluster.store, claim.session, 4, {"close"}, lease=timedelta(hours=10))
    cluster.advance(30)
    cluster.finish(items[0])
    cluster.finish(items[1])
    cluster.finish(items[2], State.FAILED, error=RunError(type="ValueError", message="no till"))
    return claim


def test_a_batch_shows_its_items_and_its_pace(cluster, batch):
    answer = cluster("runs", "show", str(batch.id))
    assert answer.code == 0
    assert "6 items: 2 succeeded, 1 failed, 1 running, 2 waiting" in answer.text
    assert "0.1 items/s, about 30s left" in answer.text
    assert "failed items nice" in answer.text


def test_a_batch_is_watched_as_data(cluster, batch):
    data = cluster("runs", "watch", str(batch.id), "-o", "json").data
    assert data["batch"] == {
        "listed": 6, "pending": 2, "running": 1, "succeeded": 2, "failed": 1, "cancelled": 0, "skipped": 0, "done": 3,
        "total": 6, "nodes": {"node-1": 1}, "failed_keys": ["nice"], "items_per_second": 0.1, "seconds_left": 30.0,
    }  # fmt: skip


def test_without_a_terminal_a_batch_is_drawn_once(cluster, batch):
    answer = cluster("runs", "watch", str(batch.id))
    assert answer.code == 0
    assert "50%" in answer.text
    assert "node-1 1" in answer.text


def test_the_items_of_a_batch_are_listed_by_their_keys(cluster, batch):
    answer = cluster("runs", "list", "--batch", str(batch.id), "--state", "failed")
    assert f"nice (item of {batch.id})" in answer.text
    assert "paris" not in answer.text


def test_an_item_names_its_batch(cluster, batch):
    item = cluster.store.occurrences(OccurrenceFilter(parent=batch.id), limit=1)[0]
    assert f"item of batch {batch.id}" in cluster("runs", "show", str(item.id)).text


def test_why_says_what_a_batch_waits_for(cluster, batch):
    view = cluster.store.job("close")
    sentences = " ".join(map(str, explain_time(cluster.store, view, cluster.time).sentences))
    assert "a batch of 6 items, and waits for 3 of them: 1 run, 2 wait" in sentences, sentences


def test_what_is_no_batch_is_said_to_be_none(cluster):
    cluster.join()
    cluster.every("tick", "1m")
    cluster.advance(60)
    cluster.run_once()
    answer = cluster("runs", "watch", "1")
    assert answer.code == 2
    assert "run 1 is no batch" in answer.err
    assert "runs show 1" in answer.err


def test_a_batch_can_be_watched_before_it_has_items(cluster):
    """``jobs trigger`` says how, in the moment in which it is made."""
    cluster.every("close", "1h")
    made = cluster.store.trigger("close", by="ada", why="")
    answer = cluster("runs", "watch", str(made.id))
    assert answer.code == 0
    assert "is pending, and has no items yet" in answer.text


def test_the_ledger_says_how_the_items_of_a_night_ended(cluster, batch):
    answer = cluster("ledger", "close", "--from", "2h")
    assert "6 items: 2 succeeded, 1 failed, 1 running, 2 waiting" in answer.text
    [line] = cluster("ledger", "close", "--from", "2h", "-o", "json").data["lines"]
    assert line["items"] == {"succeeded": 2, "failed": 1, "running": 1, "pending": 2}
    assert line["started_after"] == 0


def test_what_failed_is_the_batch_and_no_item_is_run_again_alone(cluster, batch):
    """Run again alone, it does its work outside of its batch, which does it once more when that is run again."""
    for claim in take(cluster.store, batch.session, 3, {"close"}, lease=timedelta(hours=10)):
        cluster.finish(claim)
    items = cluster.store.occurrences(OccurrenceFilter(parent=batch.id), limit=10)
    failed = next(one for one in items if one.state is State.FAILED)
    assert "nothing that failed is left" in cluster("runs", "failed").text
    refused = cluster("runs", "retry", str(failed.id))
    assert refused.code != 0
    assert f"cronsensus runs retry {batch.id}" in refused.text
    running = next(one for one in items if not one.state.final)
    cluster.store.cancel(running.id, by="ada", why="")
    cluster.store.wake([batch.id])
    (collecting,) = take(cluster.store, batch.session, 1, {"close"}, lease=timedelta(hours=10))
    cluster.finish(collecting, State.FAILED, error=RunError(type="BatchFailed", message="1 of 6 items failed: nice"))
    groups = cluster("runs", "failed", "-o", "json").data["groups"]
    assert [group["runs"] for group in groups] == [[batch.id]]
    assert "failed" in cluster("jobs", "list").text
    assert "succeeded" not in cluster("jobs", "list").text
    assert [run["id"] for run in cluster("jobs", "show", "close", "-o", "json").data["runs"]] == [batch.id]


def test_what_runs_of_a_batch_that_is_cancelled_is_asked_to_stop(cluster, batch):
    assert cluster("runs", "cancel", str(batch.id), "--reason", "wrong night").code == 0
    [running] = cluster.store.occurrences(OccurrenceFilter(parent=batch.id, states=(State.RUNNING,)))
    assert running.cancel_requested
