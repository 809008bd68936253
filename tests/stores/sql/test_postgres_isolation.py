"""A role's or a database's own isolation level does not reach the store: some of its statements are no transactions."""

import threading
from urllib.parse import quote

import pytest

from cronsensus import Scheduler
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres.postgres_dialect import driver_of

THREADS, ROUNDS = 6, 8


@pytest.fixture(params=["repeatable read", "serializable"])
def strict_url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    """Return a URL whose connections begin with a stricter level, as ``ALTER ROLE … SET`` would make them."""
    option = f"-c default_transaction_isolation={request.param}".replace(" ", "\\ ").replace("-c\\ ", "-c ")
    return f"{postgres_url}&options={quote(option)}"


def test_statements_without_a_transaction_read_what_is_committed(strict_url: str) -> None:
    store = PostgresStore(strict_url)
    with store._glance_transaction() as tx:
        assert driver_of(tx.connection).execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    store.close()


def test_a_lock_that_many_want_is_taken_by_one_after_the_other(strict_url: str) -> None:
    wrong: list[BaseException] = []
    taken: list[int] = []

    def work(number: int) -> None:
        scheduler = Scheduler(strict_url, node=f"w{number}")
        try:
            for _ in range(ROUNDS):
                with scheduler.lock("lock"):
                    taken.append(number)
        except BaseException as error:  # noqa: BLE001 - seen below
            wrong.append(error)
        finally:
            scheduler._opened.close()

    PostgresStore(strict_url).migrate()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(taken) == THREADS * ROUNDS
