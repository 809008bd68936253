"""The one seam around all verbs: what is entered for each of them, and when it is not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.errors import CronsensusError, DuplicateJob, InvalidOption, InvalidTransition
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.job import Era, JobSpec
from cronsensus.model.ledger import Loss
from cronsensus.model.occurrence import Item, Note, OccurrenceFilter
from cronsensus.model.rewind import Rewind
from cronsensus.model.session import LockGrant
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.stores import Store, open_store
from cronsensus.stores.backend import Backend
from cronsensus.stores.default_reads import DefaultReads
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, take

LEASE = timedelta(seconds=60)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHO: dict[str, Any] = {"by": "ada", "why": "test"}
SPEC = JobSpec(name="job", function="f")
TOO_FAR = Want(limit=1, functions=(), lease=LEASE, ahead=2 * MOST_AHEAD)
MISSED = an_end(id=1, token=1, state=State.MISSED)
GRANT = LockGrant(name="lock", holder="holder", token=1)
REWIND = Rewind(job="job", revision=1, watermark_seen=NOON, watermark=NOON, next_due=None, eras=(Era(NOON, None, 1),))
VERBS = sorted(name for name, member in vars(Store).items() if isfunction(member) and not name.startswith("_"))

Calls = dict[str, Callable[[], Any]]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/spans.db")
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def entered(store: Store) -> list[str]:
    """The spans of a store, and of its siblings, in the order in which they were entered."""
    names: list[str] = []

    @contextlib.contextmanager
    def span(verb: str) -> Iterator[None]:
        names.append(verb)
        yield

    store.span = span
    return names


def calls_on(store: Store) -> Calls:
    """Calls of every verb, each with something to do."""
    store.define_jobs([SPEC], release="r1")
    store.open_session(a_session("s"), lease=LEASE)
    store.enqueue([Item(job="job")])
    [claim] = take(store, "s", 1, ["f"], lease=LEASE)

    def transaction() -> None:
        with store.transaction(claim):
            pass

    return {
        "aenqueue_in": lambda: asyncio.run(store.aenqueue_in(object(), [Item(job="job")])),
        "enqueue_in": lambda: store.enqueue_in(object(), [Item(job="job")]),
        "acquire": lambda: store.acquire("s", [AskNamed("job", key="k")], lease=LEASE),
        "register_presence": lambda: store.register_presence("s"),
        "wake": lambda: store.wake([1]),
        "children": lambda: store.children([1]),
        "decided": store.decided,
        "ended_badly": lambda: store.ended_badly(NOON),
        "parked": store.parked,
        "backfill": lambda: store.backfill("job", [NOON], **WHO),
        "break_lock": lambda: store.break_lock("lock", **WHO),
        "wake_next": lambda: store.wake_next("lock"),
        "cancel": lambda: store.cancel(1, **WHO),
        "check": store.check,
        "close": store.close,
        "close_session": lambda: store.close_session("other"),
        "complete_in": lambda: store.complete_in(object(), claim),
        "counts": store.counts,
        "describe": store.describe,
        "drain": lambda: store.drain("s", **WHO),
        "enqueue": lambda: store.enqueue([Item(job="job")]),
        "extend": lambda: store.extend(GRANT, ttl=LEASE),
        "forget": lambda: store.forget("job", "k", **WHO),
        "edges": store.edges,
        "history": lambda: store.history("job"),
        "identity": store.identity,
        "job": lambda: store.job("job"),
        "jobs": store.jobs,
        "wait_queues": lambda: store.wait_queues().close(),
        "lock": lambda: store.lock("lock", "holder", ttl=LEASE),
        "locks": store.locks,
        "logs": lambda: store.logs(1),
        "look": store.look,
        "migrate": store.migrate,
        "note_in_trail": lambda: store.note_in_trail(Loss(None, NOON, emptied=False, why="test"), by="ada"),
        "notify": store.notify,
        "now": store.now,
        "occurrence": lambda: store.occurrence(1),
        "occurrences": lambda: store.occurrences(OccurrenceFilter()),
        "open_session": lambda: store.open_session(a_session("another"), lease=LEASE),
        "pause": lambda: store.pause("job", **WHO),
        "last_of": lambda: store.last_of(["job"]),
        "ran_since": lambda: store.ran_since(NOON),
        "pending_of": lambda: store.pending_of(["job"]),
        "prune": store.prune,
        "define_jobs": lambda: store.define_jobs([SPEC], release="r1"),
        "ranges": lambda: store.ranges("job"),
        "reclaim": store.reclaim,
        "renew": lambda: store.renew("s", lease=LEASE),
        "resume": lambda: store.resume("job", **WHO),
        "rewind": lambda: store.rewind(REWIND, **WHO),
        "retire": lambda: store.retire("job", **WHO),
        "retry": lambda: store.retry(1, **WHO),
        "runs": lambda: store.runs(1),
        "sessions": store.sessions,
        "sibling": store.sibling,
        "signs": lambda: store.signs(["s"]),
        "step": lambda: store.step("s", Step(notes=(Note(id=1, token=1),))),
        "trail": store.trail,
        "transaction": transaction,
        "trigger": lambda: store.trigger("job", **WHO),
        "unlock": lambda: store.unlock(GRANT),
        "wait": lambda: store.wait(0),
    }


def test_each_verb_enters_its_span_once_under_its_name(store, entered):
    calls = calls_on(store)
    assert sorted(calls) == VERBS, "a verb is called here once; a new one too"
    found = {}
    for verb in sorted(VERBS, key=lambda verb: verb == "close"):
        entered.clear()
        made = None
        with contextlib.suppress(CronsensusError):  # a refusal by the back end comes from within the span
            made = calls[verb]()
        found[verb] = list(entered)
        if isinstance(made, Store):
            made.close()
    assert found == {verb: [verb] for verb in VERBS}


def test_each_verb_of_a_back_end_is_that_of_a_public_one():
    hooks = {name for kind in (Backend, DefaultReads) for name, member in vars(kind).items() if isfunction(member)}
    assert hooks == {f"_{verb}" for verb in VERBS}


def test_no_store_overrides_a_public_verb(store):
    kinds = [kind for kind in type(store).__mro__ if kind not in Store.__mro__]
    assert not {verb for kind in kinds for verb in VERBS if verb in vars(kind)}


def test_a_verb_with_nothing_to_do_enters_no_span(store, entered):
    assert store.step("s", Step()) == Done()
    assert store.acquire("s", [], lease=LEASE) == store.enqueue([]) == []
    assert (store.runs(), store.signs([])) == ([], {})
    assert store.pending_of([]) == store.last_of([]) == {}
    assert entered == []


def test_an_argument_that_is_refused_enters_no_span(store, entered):
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: store.define_jobs([SPEC, SPEC], release="r1"), DuplicateJob),
        (lambda: store.step("s", Step(want=TOO_FAR)), InvalidOption),
        (lambda: store.step("s", Step(ends=(MISSED,))), InvalidTransition),
        (lambda: store.acquire("s", [AskNamed("job")], lease=LEASE), InvalidOption),
        (lambda: store.lock("", "holder", ttl=LEASE), InvalidOption),
        (lambda: store.extend(GRANT, ttl=timedelta.max), InvalidOption),
        (lambda: store.enqueue([Item(job="job", key="@key")]), InvalidOption),
        (lambda: store.forget("job", "@key", **WHO), InvalidOption),
        (lambda: store.backfill("job", [NOON.replace(tzinfo=None)], **WHO), InvalidOption),
    ]
    for call, error in refused:
        with pytest.raises(error):
            call()
    assert entered == []


def test_siblings_share_the_span_of_a_store_whenever_it_is_set(store, entered):
    sibling = store.sibling()
    sibling.now()
    assert entered == ["sibling", "now"]
    span, sibling.span = store.span, None
    store.now()
    store.span = span
    sibling.close()
    assert entered == ["sibling", "now", "close"]


def test_an_error_of_a_verb_passes_through_its_span(store):
    seen = []

    @contextlib.contextmanager
    def span(verb):
        try:
            yield
        except LookupError as error:
            seen.append((verb, str(error)))
            raise

    store.span = span
    with pytest.raises(LookupError, match="no occurrence 7"):
        store.cancel(7, **WHO)
    assert seen == [("cancel", "there is no occurrence 7")]


def test_an_enqueue_of_a_scheduler_is_one_verb_which_notifies_by_itself(store, entered):
    scheduler = Scheduler(store)

    @scheduler.job()
    def work(number: int) -> None: ...

    work.enqueue(1)  # defines the job
    entered.clear()
    work.enqueue(2)
    assert entered == ["enqueue"]
