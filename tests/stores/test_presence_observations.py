"""What a look concludes from signs of life, from what sessions say of theirs, and from how old its connection is."""

from types import SimpleNamespace
from typing import Any

import pytest

from cronsensus.stores.presence import MOST_UNANSWERED_LOOKS, Observations, SignRecord
from cronsensus.stores.sql.mysql.mysql_presence import list_present as present_on_mysql
from cronsensus.stores.sql.postgres.postgres_presence import list_present as present_on_postgres

SHOWN, HIDDEN, SILENT = True, False, None


def test_a_session_that_is_younger_than_the_connection_and_showed_its_sign_is_missed() -> None:
    observations = Observations()
    assert observations.note([], {}, 7) == ()
    assert observations.note([], {"young": SignRecord(8, SHOWN)}, 8) == ("young",)
    assert observations.note([], {"young": SignRecord(8, SHOWN), "other": SignRecord(9, SHOWN)}, 9) == (
        "other",
        "young",
    )


def test_an_older_one_that_said_nothing_before_and_showed_its_sign_since_is_missed() -> None:
    observations = Observations()
    assert observations.note([], {"s": SignRecord(7, SILENT)}, 7) == ()
    assert observations.note([], {"s": SignRecord(7, SHOWN)}, 7) == ("s",)
    assert observations.note([], {"s": SignRecord(7, SHOWN)}, 7) == ("s",)
    assert observations.note([], {"s": SignRecord(7, HIDDEN)}, 7) == ()


@pytest.mark.parametrize("noted", [SignRecord(7, SHOWN), SignRecord(8, SILENT), SignRecord(8, HIDDEN)])
def test_a_session_that_is_older_or_silent_or_withdrew_its_sign_is_not_missed(noted: SignRecord) -> None:
    observations = Observations()
    assert observations.note([], {}, 7) == ()
    assert observations.note([], {"s": noted}, 8) == ()


@pytest.mark.parametrize(("shown", "missed"), [(SHOWN, ("s",)), (SILENT, ("s",)), (HIDDEN, ())])
def test_a_seen_session_is_missed_however_old_unless_it_withdrew_its_sign(
    shown: bool | None, missed: tuple[str]
) -> None:
    observations = Observations()
    assert observations.note(["s"], {}, 7) == ()
    assert observations.note([], {"s": SignRecord(1, shown)}, 7) == missed


def test_sessions_opened_before_the_connection_are_not_missed() -> None:
    observations = Observations()
    assert observations.note([], {"s": SignRecord(7, SHOWN)}, 7) == ()
    assert observations.note([], {"s": SignRecord(7, SHOWN)}, 9) == ()


def test_a_new_connection_asks_once_and_then_while_something_is_held_or_may_come() -> None:
    nothing: frozenset[str] = frozenset()
    observations = Observations()
    assert observations.worth_asking(nothing, nothing)
    observations.note([], {}, 0)
    assert not observations.worth_asking(nothing, nothing)
    for _ in range(MOST_UNANSWERED_LOOKS):
        assert observations.worth_asking(nothing, frozenset("s"))
        observations.note([], {"s": SignRecord(1, SILENT)}, 1)
    assert not observations.worth_asking(nothing, frozenset("s"))
    assert observations.worth_asking(frozenset("s"), frozenset("s"))
    observations.blind = True
    assert not observations.worth_asking(frozenset("s"), frozenset("s"))


class Answering:
    """A transaction that has one answer to everything."""

    def __init__(self, **row: Any) -> None:
        self.sent = SimpleNamespace(rows=[SimpleNamespace(**row)])

    def send(self, *_: object, **__: object) -> Any:
        return self.sent

    def send_rows(self, *_: object, **__: object) -> Any:
        return [self.sent]


@pytest.mark.parametrize("is_replica", [False, True])
def test_a_replica_shows_nothing_of_signs(is_replica: bool) -> None:
    driver: Any = SimpleNamespace(greeted_by=5)
    mysql: Any = Answering(is_replica=int(is_replica), thread=5, place=0, holder=9)
    postgres: Any = Answering(is_replica=is_replica, sign=None)
    place = ("database", "namespace")
    assert present_on_mysql(mysql, driver, place, ["s"]) == (None if is_replica else {"s"})
    assert present_on_postgres(postgres, place, ["s"]) == (None if is_replica else set())
