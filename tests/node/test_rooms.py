"""Features stand in rooms of their own: the node names none, and a new one is a file."""

import ast
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path

import pytest

import cronsensus.node
from cronsensus import Run, Scheduler, every, rooms
from cronsensus.after.room import make_after_hooks
from cronsensus.batching.room import make_batching_hooks
from cronsensus.errors import StoreCorrupt
from cronsensus.insight.waiting import why_it_waits
from cronsensus.model.occurrence import Claim, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node import waking
from cronsensus.node.hooks import Admission, Admit, Hooks, Waker
from cronsensus.node.waking import Waking
from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance.fixtures import START
from cronsensus.timing.clock import ManualClock
from tests.after.test_dependencies import wait_until
from tests.node import waits_for_a_file
from tests.node.test_active_runs import Scene
from tests.node.waits_for_a_file import waiting_for_files, waits_for

NODE = Path(cronsensus.node.__file__).parent
FEATURES = ("batch", "upstream", "downstream", "dependent", "shard", "add_items", "celery", "rabbit", "django")


def names(tree: ast.AST) -> Iterator[str]:
    """Give each name that code uses; comments and docstrings may tell what for."""
    for one in ast.walk(tree):
        match one:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str(name)) | ast.alias(name=name):
                yield name
            case _:
                pass


def test_no_line_of_the_node_names_a_feature() -> None:
    found = {
        f"{path.relative_to(NODE)}: {name}"
        for path in NODE.rglob("*.py")
        for name in names(ast.parse(path.read_text("utf-8")))
        if any(feature in name.lower() for feature in FEATURES)
    }
    assert not found, "a feature has a room of its own, and hooks itself into the node: see node/hooks.py"


def test_a_new_thing_that_a_run_may_wait_for_is_one_short_file() -> None:
    assert len(Path(waits_for_a_file.__file__).read_text("utf-8").splitlines()) <= 120


def test_a_made_up_feature_parks_and_wakes_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "ROOMS", (*rooms.ROOMS, waiting_for_files))
    monkeypatch.setattr(waking, "SWEEP_SECONDS", 0.2)
    scheduler, path = Scheduler(f"sqlite:///{tmp_path}/jobs.db"), tmp_path / "day.csv"

    @scheduler.job()
    @waits_for(path)
    def load(run: Run) -> str:
        return str(run.extras["file"])

    @scheduler.job()
    def other() -> str:
        return "not asked"

    with scheduler:
        handle, stranger = load.enqueue(), other.enqueue()
        assert stranger.result("10s") == "not asked"
        wait_until(lambda: [one.on for one in scheduler.store.parked()] == ["file"])
        row = scheduler.store.occurrence(handle.id)
        view = scheduler.store.job("load")
        assert view is not None and row is not None  # noqa: PT018
        said = why_it_waits(scheduler.store, view, row, scheduler.store.now(), UTC).text
        assert said == "It is parked: it waits for day.csv."
        path.write_text("42", "utf-8")
        assert handle.result("10s") == "42"
        seen = scheduler.store.occurrence(handle.id)
        assert seen is not None
        assert (seen.state, seen.attempt, seen.failures) == (State.SUCCEEDED, 1, 0)


def test_what_a_feature_stumbles_over_is_not_looked_at_again_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stumbles(Waker):
        def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:
            seen.extend(told)
            raise ValueError("a mistake")

    class Goes(Waker):
        def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:
            seen.extend(told)
            told.clear()
            return ()

    seen: list[Hashable] = []
    made = Waking(open_store("memory://stumbles"), ManualClock(START), {}, lambda: None, [
        lambda _: Hooks(waker=Stumbles()), lambda _: Hooks(waker=Goes()),
    ])  # fmt: skip
    made.on_queued = lambda: None
    stumbles, goes = made.wakers
    made.queue_triggers([(stumbles, "x"), (goes, "y")])
    for _ in range(3):
        made.wake_due()
    assert seen == ["x", "y"]
    assert "a mistake in cronsensus" in caplog.text


@pytest.mark.parametrize("left", [(), ("batching",), ("after",)])
def test_a_room_that_is_taken_out_takes_nothing_else_with_it(
    left: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"batching": make_batching_hooks, "after": make_after_hooks}
    monkeypatch.setattr(rooms, "ROOMS", tuple(kept[name] for name in left))
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")

    @scheduler.job()
    def plain() -> str:
        return "done"

    @scheduler.job()
    def doubled(number: int) -> int:
        return 2 * number

    @scheduler.job(every("1s"))
    def first() -> str:
        return "first"

    @scheduler.job(after=[first])
    def second(run: Run) -> str:
        return str(run.upstream[first].result)

    with scheduler:
        assert plain.enqueue().result("10s") == "done"
        if "batching" in left:
            batch = doubled.enqueue_batch([1, 2, 3])
            assert batch.wait("10s").state is State.SUCCEEDED
            assert list(batch.results()) == [2, 4, 6]
        if "after" in left:
            where = OccurrenceFilter(job="second", states=(State.SUCCEEDED,))
            wait_until(lambda: scheduler.store.occurrences(where, limit=1))


def test_what_one_feature_cannot_ask_sends_back_no_claim_of_another(tmp_path: Path) -> None:
    class Cannot(Admission):
        def concerns_claim(self, claim: Claim) -> bool:
            return claim.id == 1

        def admit_claims(
            self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
        ) -> Mapping[int, Admit]:
            raise StoreCorrupt("a result that is no JSON")

    class Can(Admission):
        def concerns_claim(self, claim: Claim) -> bool:
            return claim.id == 2

        def admit_claims(
            self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
        ) -> Mapping[int, Admit]:
            return {claim.id: Admit({"by": "can"}) for claim in claims}

    rooms_of = [lambda _: Hooks(Cannot()), lambda _: Hooks(Can())]
    made = Waking(open_store(f"memory://{tmp_path.name}"), ManualClock(START), {}, lambda: None, rooms_of)
    made.on_queued = lambda: None
    told: list[tuple[int, bool]] = []
    made.on_answer = lambda claim, answer: told.append((claim.id, isinstance(answer, Admit)))
    made.queue_claims([Scene().claim(1), Scene().claim(2)], ())
    made.wake_due()
    assert told == [(1, False), (2, True)]


def test_what_is_told_while_it_is_looked_at_waits_for_the_next_look(tmp_path: Path) -> None:
    """Each end of an item would have the database asked at once, just when it is busiest."""

    class Asks(Waker):
        def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:
            asked.append(list(told))
            told.clear()
            made.queue_triggers([(made.wakers[0], len(asked))])
            return ()

    asked: list[list[Hashable]] = []
    made = Waking(
        open_store(f"memory://{tmp_path.name}"), ManualClock(START), {}, lambda: None, [lambda _: Hooks(waker=Asks())]
    )
    made.on_queued = lambda: None
    made.queue_triggers([(made.wakers[0], 0)])
    made.wake_due()
    assert asked == [[0]]
    made.wake_due()
    assert asked == [[0], [1]]


def test_a_feature_that_is_wrong_about_a_claim_sends_it_back_and_the_thread_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Admission):
        def concerns_claim(self, claim: Claim) -> bool:
            raise ValueError("a mistake")

    made = Waking(
        open_store(f"memory://{tmp_path.name}"), ManualClock(START), {}, lambda: None, [lambda _: Hooks(Wrong())]
    )
    made.on_queued = lambda: None
    told: list[tuple[int, object]] = []
    made.on_answer = lambda claim, answer: told.append((claim.id, answer))
    made.queue_claims([Scene().claim(1)], ())
    made.wake_due()
    assert told == [(1, None)]
    assert "a mistake in cronsensus" in caplog.text
