"""Choosing: what a claim passes over, what it learns on the way, and how much it asks for at a time."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.sql import claim_query
from cronsensus.stores.sql.claim_query import MOST_PAGE_ROWS, Selection, choose_entries, first_page, read_claimed
from cronsensus.stores.sql.schema import jobs
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.unreadable import LARGEST_COUNT, READING_RAISES, Unreadable
from cronsensus.testing.conformance.fixtures import LEASE, a_session
from cronsensus.testing.conformance.steps import take

Row = Any


def entry(number: int = 1, **differs: Any) -> Row:
    """Return an entry of the job 5 that may be taken."""
    found = {
        "id": number, "job_id": 5, "serial": 0, "key": "key", "origin": "enqueue", "scheduled_for": None, "due_at": 100,
        "attempt": 0, "crashes": 0, "failures": 0, "payload": None, "level": 4, "function": "f", "concurrency": None,
        "head": None, "busy": None, "created_at": 90, "note": None,
    }  # fmt: skip
    made = SimpleNamespace(**{**found, **differs})
    made.job = made.job_id
    return made


# --- one entry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "differs",
    [
        {"attempt": -1}, {"attempt": LARGEST_COUNT}, {"origin": "nobody"}, {"crashes": "1"}, {"failures": 1.0},
        {"scheduled_for": "soon"}, {"due_at": 2**62}, {"due_at": "soon"}, {"payload": "{"}, {"created_at": "then"},
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_of_which_something_cannot_be_read_is_not_begun(differs: dict[str, Any]) -> None:
    assert read_claimed(entry(payload='[[1],{"a":2},{"b":"3"}]')) == ((1,), {"a": 2}, {"b": "3"})
    with pytest.raises(READING_RAISES):
        read_claimed(entry(**differs))


def test_a_job_that_is_full_is_left_out_from_then_on() -> None:
    selection = Selection({"f"}, 9, jobs={5: entry(), 6: entry(job_id=6)}, runs_left={5: 1})
    for one in (entry(1), entry(2), entry(3, job_id=6), entry(4, job_id=6)):
        selection.consider_entry(one)
    assert [one.id for one in selection.chosen] == [1, 3, 4]
    assert selection.left_out == {5}


@pytest.mark.parametrize(
    ("of_job", "chosen", "blocked"),
    [
        ({"head": 2, "busy": 1}, [], {5: 0}),  # one of the line runs, so it is nobody's turn
        ({"head": 9, "busy": None}, [], {5: 9}),
        ({"head": 2, "busy": None}, [2], {5: 0}),  # it runs from now on
    ],
)
def test_a_line_is_remembered_with_the_entry_whose_turn_it_is(
    of_job: dict[str, Any], chosen: list[int], blocked: dict[int, int]
) -> None:
    selection = Selection({"f"}, 9, jobs={5: entry()})
    for number in (2, 3, 4):
        selection.consider_entry(entry(number, serial=1, **of_job))
    assert ([one.id for one in selection.chosen], selection.blocked) == (chosen, blocked)


# --- page by page -----------------------------------------------------------------------------------------------------


class Pages:
    """Stands for a transaction: gives page after page, and keeps what was asked for."""

    namespace, epoch, moment = "ours", "epoch", 1

    def __init__(self, *able: Sequence[Row]) -> None:
        """Give these entries at the beginning of each page, and then some that this node cannot run; then no more."""
        self._able = iter(able)
        self._last = 1000
        self.asked: list[dict[str, Any]] = []
        self.unreadable = Unreadable()

    @property
    def sizes(self) -> list[int]:
        return [asked["size"] for asked in self.asked]

    def instant(self, plus: int = 0) -> int:
        return 100 + plus

    def send(self, name: str, **asked: Any) -> Row:
        self.asked.append(asked)
        page = [*next(self._able, ())]
        while len(self.asked) <= 6 and len(page) < asked["size"]:
            self._last += 1
            page.append(entry(self._last, job_id=6, function="elsewhere"))
        return SimpleNamespace(rows=page)

    def send_in(self, *_: Any, **__: Any) -> list[Row]:
        return []


def chosen(pages: Any, limit: int, monkeypatch: pytest.MonkeyPatch, *levels: int) -> list[int]:
    monkeypatch.setattr(claim_query, "specs_of", lambda _tx, rows: dict.fromkeys(rows))
    selection = Selection({"f"}, limit, 100)
    choose_entries(pages, selection, first_page(pages, selection).rows, levels or (4,))
    return [one.id for one in selection.chosen]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(1, [1, 34, 100, 232, 496]), (3, [3, 38, 108, 248]), (MOST_PAGE_ROWS + 1, []), (2 * MOST_PAGE_ROWS, [])],
)
def test_pages_grow_and_are_no_larger_than_what_is_wanted_at_first_and_than_the_most_later(
    limit: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Pages()
    assert chosen(pages, limit, monkeypatch) == []
    assert pages.sizes == [*sizes, *[MOST_PAGE_ROWS] * 7][:7]


def test_a_further_page_goes_on_after_the_last_entry_and_leaves_out_what_cannot_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = Pages([entry(7)], [])
    assert chosen(pages, 2, monkeypatch) == [7]
    first, second = pages.asked[:2]
    assert first == {"space": "ours", "now": 100, "until": 200, "size": 2}
    assert second == {
        **first, "level": 4, "size": 36, "after_due": 100, "after_id": 1001, "full": [6], "blocked": [], "heads": [],
    }  # fmt: skip


def test_of_a_page_with_more_than_is_wanted_no_more_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages([], [entry(1), entry(2), entry(3)])
    assert chosen(pages, 1, monkeypatch) == [1]
    assert pages.sizes == [1, 34]


def test_an_entry_that_cannot_be_read_is_told_and_those_after_it_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages([entry(1, payload="{"), entry(2)])
    assert chosen(pages, 2, monkeypatch) == [2]
    assert [text.partition(":")[0] for text in pages.unreadable.list_texts()] == [
        "run 1 of job 5 waits, cannot be run, and"
    ]


def test_a_claim_goes_on_below_the_level_of_the_first_page_until_it_has_what_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = Pages()
    pages.asked = [{}] * 6  # no page is filled up
    pages._able = iter([[entry(7, level=6)], [entry(8, level=3)], [], [entry(9, level=1)]])
    assert chosen(pages, 3, monkeypatch, 8, 6, 3, 2, 1, 0) == [7, 8, 9]
    assert [asked.get("level") for asked in pages.asked[6:]] == [None, 3, 2, 1]


# --- definitions that cannot be read ----------------------------------------------------------------------------------


def test_work_of_a_job_whose_definition_cannot_be_read_waits_and_that_of_others_is_taken(
    open_sqlite: Callable[..., SqliteStore],
) -> None:
    store = open_sqlite()
    store.define_jobs([JobSpec(name=name, function="f") for name in ("bad", "good")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="bad"), Item(job="good")])
    with store._write_transaction() as tx:
        store._sqlalchemy_view(tx.connection).execute(update(jobs).where(jobs.c.name == "bad").values(spec="{"))
    store._definitions.specs._kept.clear()
    assert [claim.job for claim in take(store, "s1", 2, ["f"], lease=LEASE)] == ["good"]
    assert [claim.job for claim in take(store, "s1", 2, ["f"], lease=LEASE)] == []
    assert [text.partition(":")[0] for text in store.unreadable] == [
        "work of job 1 waits that cannot be run, and the job"
    ]
