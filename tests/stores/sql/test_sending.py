"""Statements that are sent together, on each database: nothing is committed if one of them does not do what it must."""

from collections.abc import Iterator
from typing import Any

import pytest

from cronsensus.errors import InvalidOption, StoreUnavailable
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.stores import open_store
from cronsensus.stores.sql.postgres import postgres_dialect as dialect
from cronsensus.stores.sql.postgres.pipeline import part_of
from cronsensus.stores.sql.postgres.postgres_values import array_text
from cronsensus.stores.sql.queries import Query
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.transaction import Transaction, batches
from cronsensus.testing.conformance.fixtures import LEASE, a_session
from cronsensus.testing.conformance.steps import an_end, settle, take

MANY = 1100
"""More than one statement takes on MySQL, and more than a socket may hold."""


@pytest.fixture(params=["sqlite", "postgres", "postgres without pipelines", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    kind, _, without = request.param.partition(" ")
    if without:
        monkeypatch.setattr(dialect, "has_pipeline", lambda: False)
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    made = open_store(url)
    made.migrate()
    made.define_jobs([JobSpec(name="job", function="f")], release="r1")
    made.open_session(a_session("s1"), lease=LEASE)
    yield made
    made.close()


def claims(store: Any, count: int) -> list[Claim]:
    store.enqueue([Item(job="job") for _ in range(count)])
    taken: list[Claim] = take(store, "s1", count, ["f"], lease=LEASE)
    assert len(taken) == count
    return taken


def row(claim: Claim, token: int) -> tuple[Any, ...]:
    return ("succeeded", None, None, None, 1, 1, claim.id, token)


def test_a_write_that_finds_another_number_of_rows_commits_nothing_and_leaves_the_connection_good(store: Any) -> None:
    mine, other = claims(store, 2)
    before = store.occurrence(mine.id), store.occurrence(other.id)

    def close_both() -> None:
        with store._write_transaction(queued=True) as tx:
            rows = [row(mine, mine.token), row(other, other.token - 1)]
            tx.send_rows("close_runs", rows, one_each=True)

    for _ in range(2):  # prepared by then, and on the same connection
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            close_both()
        assert (store.occurrence(mine.id), store.occurrence(other.id)) == before
    assert len(store._connections._idle) == 1


def test_statements_that_wait_are_sent_with_one_whose_answer_is_wanted_and_with_the_end(store: Any) -> None:
    mine, other = claims(store, 2)
    with store._write_transaction(queued=True) as tx:
        closing = tx.send("lock_runs", ids=[mine.id, other.id], space=tx.namespace)
        tx.send_rows("close_runs", [row(mine, mine.token)], one_each=True)
        assert tx.send("read_run", occurrence=mine.id, space=tx.namespace).rows[0].state == "succeeded"
        assert [found.state for found in closing.rows] == ["running", "running"]
        tx.send_rows("close_runs", [row(other, other.token)], one_each=True)
    assert closing.count == 2
    assert {store.occurrence(one.id).state for one in (mine, other)} == {State.SUCCEEDED}


def test_step_that_only_wants_work_is_sent_in_two_parts(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store.enqueue([Item(job="job")])
    sent: list[list[str]] = []
    send = Transaction._send

    def noted(tx: Transaction, *, commit: bool) -> None:
        sent.append([one.query.name for one in tx._queue])
        send(tx, commit=commit)

    monkeypatch.setattr(Transaction, "_send", noted)
    assert len(store.step("s1", Step(want=Want(limit=5, functions=("f",), lease=LEASE))).claims) == 1
    assert [] not in sent, "a transaction that begins by itself costs a trip"
    assert len(sent) == 2 or all(len(names) == 1 for names in sent), sent


def test_more_rows_than_one_statement_takes_are_sent(store: Any) -> None:
    taken = claims(store, MANY)
    outcomes = [an_end(id=one.id, token=one.token, state=State.SUCCEEDED, result="x" * 2000) for one in taken]
    assert all(settled.accepted for settled in settle(store, outcomes))
    assert all(settled.accepted for settled in settle(store, outcomes))
    assert store.counts().running == 0


def test_a_value_that_no_column_takes_is_refused_and_nothing_is_written(store: Any) -> None:
    if store.capabilities.name == "sqlite":
        return
    (mine,) = claims(store, 1)
    with pytest.raises(InvalidOption), store._write_transaction(queued=True) as tx:
        tx.send_rows("close_runs", [("succeeded", "half \ud800", None, None, 1, 1, mine.id, mine.token)])
    if store.capabilities.name == "postgresql":
        with pytest.raises(InvalidOption, match="NUL"), store._write_transaction(queued=True) as tx:
            tx.send_rows("close_runs", [("succeeded", "cut\0off", None, None, 1, 1, mine.id, mine.token)])
    assert store.renew("s1", lease=LEASE).held == ((mine.id, mine.token),)


def test_rows_are_cut_into_pieces_that_a_server_takes() -> None:
    def cut(texts: list[str], most: int, characters: int) -> list[int]:
        return [len(piece) for piece in batches([(1, text, None) for text in texts], most, characters)]

    assert cut([], 4, 10) == []
    assert cut(["x"] * 10, 4, 100) == [4, 4, 2]
    assert cut(["xxxx"] * 5, 4, 10) == [2, 2, 1]
    assert cut(["x" * 50, "y", "z" * 50], 4, 10) == [1, 1, 1]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, -2], "{1,-2}"),
        ([1, None], "{1,NULL}"),
        ([1.5], "{1.5}"),
        (["a b", "c,d"], '{"a b","c,d"}'),
        (['"', "\\", "plain"], '{"\\"","\\\\","plain"}'),
        ([State.FAILED, None, "NULL"], '{"failed",NULL,"NULL"}'),
    ],
)
def test_arrays_are_written_as_postgresql_reads_them(values: list[Any], text: str) -> None:
    assert array_text(values) == text


def test_column_without_any_value_is_no_array() -> None:
    pending = Pending(Query("one", ":a :b", ("a", "b")), {}, [(1, None), (2, None)], None, lambda: None)
    assert part_of(pending, "public").values == [b"{1,2}", None]
