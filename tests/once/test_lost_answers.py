"""The server did it, and its answer was lost on the way: one run, one recorded result, one effect."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from cronsensus import Scheduler, State, StoreError
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from tests.once.test_once import Effects
from tests.servers.fixtures import FAR
from tests.servers.proxy import Proxy

COMMIT = {"postgresql": b"COMMIT\0", "mysql": b"COMMIT(?!TED)", "redis": b"EVALSHA"}
END = COMMIT | {"postgresql": b"succeeded"}
"""PostgreSQL ends one run by one statement, without a COMMIT."""
TRIES = 5


@pytest.fixture
def proxy(server_url: str) -> Iterator[Proxy]:
    with Proxy(server_url) as made:
        yield made


@pytest.fixture
def scheduler(proxy: Proxy) -> Iterator[Scheduler]:
    """Return a scheduler that reaches its store through the proxy only."""
    made = Scheduler(proxy.url)
    made.once("warm", name="warm")(lambda: None)()
    yield made
    proxy.pass_on()
    made._opened.close()


def lose_next(proxy: Proxy, url: str, told: dict[str, bytes] = COMMIT) -> None:
    proxy.lose_answer_to(told[url.partition(":")[0]])


def recorded(url: str) -> list[Occurrence]:
    direct = Scheduler(url).store
    try:
        return direct.occurrences(OccurrenceFilter(job="once:charge"))
    finally:
        direct.close()


def test_the_answer_to_the_end_is_lost(scheduler, proxy, server_url):
    ran = []

    @scheduler.once("k")
    def charge() -> int:
        ran.append(1)
        lose_next(proxy, server_url, END)
        return len(ran)

    assert charge() == 1
    assert proxy.struck, "the fault did not bite"
    assert charge() == 1
    assert ran == [1]
    (seen,) = recorded(server_url)
    assert (seen.state, seen.attempt) == (State.SUCCEEDED, 1)


@FAR
def test_the_answer_to_the_claim_is_lost(scheduler, proxy, server_url):
    """Its holder is unknown until the store is asked; the claim is not left to a call that knows nothing of it."""
    ran = []

    @scheduler.once("k:{n}")
    def charge(n: int) -> int:
        ran.append(n)
        return len(ran)

    charge(0)
    lose_next(proxy, server_url)
    for _ in range(TRIES):
        try:
            assert charge(1) == 2
            break
        except StoreError:  # the call may say that it does not know
            assert ran == [0]
    assert proxy.struck, "the fault did not bite"
    assert charge(1) == 2
    assert ran == [0, 1]
    assert [one.state for one in recorded(server_url)] == [State.SUCCEEDED] * 2


def test_the_answer_to_the_commit_of_an_effect_is_lost(sql_server_url):
    effects = Effects(sql_server_url)
    ran: list[int] = []
    with Proxy(sql_server_url) as proxy:
        scheduler = Scheduler(proxy.url)

        @scheduler.once("k", transaction=True)
        def charge(conn: Connection) -> int:
            ran.append(1)
            conn.execute(effects.insert, {"what": "paid"})
            conn.execute(text("SELECT 1"))
            lose_next(proxy, sql_server_url)
            return len(ran)

        assert [charge(), charge()] == [1, 1]
        assert proxy.struck, "the fault did not bite"
        proxy.pass_on()
        scheduler._opened.close()
    assert effects.all() == ["paid"]
    (seen,) = recorded(sql_server_url)
    assert seen.state is State.SUCCEEDED
    effects.drop()
