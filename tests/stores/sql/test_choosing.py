"""Choosing: what a claim passes over, what it learns on the way, and how much it asks for at a time."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.sql.base import Executable

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.sql import choosing
from cronsensus.stores.sql.choosing import MOST_PAGE, Choice, choose_at, read_claimed
from cronsensus.stores.sql.schema import jobs
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.unreadable import MOST_COUNTED, READING_RAISES, Unreadable
from cronsensus.testing.conformance.scene import LEASE, a_session

Row = Any


def entry(number: int = 1, **differs: Any) -> Row:
    """Return an entry of the job 5 that may be taken."""
    found = {
        "id": number, "job_id": 5, "serial": 0, "key": "key", "origin": "enqueue", "scheduled_for": None, "due_at": 100,
        "attempt": 0, "crashes": 0, "failures": 0, "payload": None,
    }  # fmt: skip
    return SimpleNamespace(**{**found, **differs})


def job(number: int = 5, **differs: Any) -> Row:
    found = {"id": number, "function": "f", "concurrency": None, "head": None, "busy": None}
    return SimpleNamespace(**{**found, **differs})


# --- one entry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "differs",
    [
        {"attempt": -1}, {"attempt": MOST_COUNTED}, {"origin": "nobody"}, {"crashes": "1"}, {"failures": 1.0},
        {"scheduled_for": "soon"}, {"due_at": 2**62}, {"due_at": "soon"}, {"payload": "{"},
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_of_which_something_cannot_be_read_is_not_begun(differs: dict[str, Any]) -> None:
    assert read_claimed(entry(payload='[[1],{"a":2}]')) == ((1,), {"a": 2})
    with pytest.raises(READING_RAISES):
        read_claimed(entry(**differs))


def test_a_job_that_is_full_is_left_out_from_then_on() -> None:
    choice = Choice({"f"}, 9, 100, jobs={5: job(), 6: job(6)}, room={5: 1})
    for one in (entry(1), entry(2), entry(3, job_id=6), entry(4, job_id=6)):
        choice.consider(one)
    assert [one.id for one in choice.chosen] == [1, 3, 4]
    assert choice.left_out == {5}


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
    choice = Choice({"f"}, 9, 100, jobs={5: job(**of_job)})
    for number in (2, 3, 4):
        choice.consider(entry(number, serial=1))
    assert ([one.id for one in choice.chosen], choice.blocked) == (chosen, blocked)


# --- page by page -----------------------------------------------------------------------------------------------------


class Pages:
    """Stands for a transaction: gives page after page, and keeps what was asked for."""

    namespace, now, clocks = "ours", 100, {"lease_now": 1, "boot": "epoch"}

    def __init__(self, *able: Sequence[Row]) -> None:
        """Give these entries at the beginning of each page, and then some that this node cannot run; then no more."""
        self._able = iter(able)
        self._last = 1000
        self.asked: list[dict[str, Any]] = []
        self.unreadable = Unreadable()

    @property
    def sizes(self) -> list[int]:
        return [asked["size"] for asked in self.asked]

    def rows(self, statement: Executable, **asked: Any) -> list[Row]:
        self.asked.append(asked)
        page = [*next(self._able, ())]
        if len(self.asked) > 6:
            return page
        while len(page) < asked["size"]:
            self._last += 1
            page.append(entry(self._last, job_id=6))
        return page

    def rows_in(self, statement: Executable, name: str, values: Sequence[int], **_: Any) -> list[Row]:
        if statement is not choosing._JOBS:
            return []
        return [job(one, function="f" if one == 5 else "elsewhere") for one in values]


def chosen(pages: Pages, limit: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(choosing, "specs_of", lambda _tx, rows: dict.fromkeys(rows))
    choice = Choice({"f"}, limit, 200)
    choose_at(pages, choice, 4)  # type: ignore[arg-type]
    return [one.id for one in choice.chosen]


@pytest.mark.parametrize(
    ("limit", "sizes"), [(1, [1, 34, 100, 232, 496]), (3, [3, 38, 108, 248]), (MOST_PAGE + 1, []), (2 * MOST_PAGE, [])]
)
def test_pages_grow_and_are_no_larger_than_what_is_wanted_at_first_and_than_the_most_later(
    limit: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Pages()
    assert chosen(pages, limit, monkeypatch) == []
    assert pages.sizes == [*sizes, *[MOST_PAGE] * 7][:7]


def test_a_further_page_goes_on_after_the_last_entry_and_leaves_out_what_cannot_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = Pages([entry(7)], [])
    assert chosen(pages, 2, monkeypatch) == [7]
    first, second = pages.asked[:2]
    assert first == {"space": "ours", "level": 4, "now": 100, "until": 200, "size": 2}
    assert second == {
        **first, "size": 36, "after_due": 100, "after_id": 1001, "full": [6], "blocked": [], "heads": [],
    }  # fmt: skip


def test_of_a_page_with_more_than_is_wanted_no_more_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages([], [entry(1), entry(2), entry(3)])
    assert chosen(pages, 1, monkeypatch) == [1]
    assert pages.sizes == [1, 34]


def test_an_entry_that_cannot_be_read_is_told_and_those_after_it_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages([entry(1, payload="{"), entry(2)])
    assert chosen(pages, 2, monkeypatch) == [2]
    assert [text.partition(":")[0] for text in pages.unreadable.texts()] == ["run 1 of job 5 waits, cannot be run, and"]


# --- definitions that cannot be read ----------------------------------------------------------------------------------


def test_work_of_a_job_whose_definition_cannot_be_read_waits_and_that_of_others_is_taken(
    open_sqlite: Callable[..., SqliteStore],
) -> None:
    store = open_sqlite()
    store.put_jobs([JobSpec(name=name, function="f") for name in ("bad", "good")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="bad"), Item(job="good")])
    with store._writing() as tx:
        tx.connection.execute(update(jobs).where(jobs.c.name == "bad").values(spec="{"))
    store._definitions.specs._kept.clear()
    assert [claim.job for claim in store.claim("s1", 2, ["f"], lease=LEASE)] == ["good"]
    assert [claim.job for claim in store.claim("s1", 2, ["f"], lease=LEASE)] == []
    assert [text.partition(":")[0] for text in store.unreadable] == [
        "work of job 1 waits that cannot be run, and the job"
    ]
