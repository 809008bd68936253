from datetime import UTC, datetime, timedelta

import pytest

from cronsensus.stores import announcements
from cronsensus.stores.announcements import MOST, Announcements

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_announcement_is_read_as_it_was_written() -> None:
    decided = {1: NOON, 20: NOON + timedelta(microseconds=1)}
    assert announcements.read(announcements.written(decided)) == decided
    assert announcements.read(announcements.written(decided).encode()) == decided
    assert announcements.read("") == {}


@pytest.mark.parametrize("text", ["work", "1:2:3", "1:x", b"\xff:1"], ids=str)
def test_announcement_that_is_written_otherwise_says_nothing(text: str | bytes) -> None:
    assert announcements.read(text) == {}


def test_of_each_job_the_latest_announcement_is_kept_in_whichever_order_they_come() -> None:
    for moments in ([NOON, NOON + SECOND], [NOON + SECOND, NOON]):
        heard = Announcements()
        for moment in moments:
            heard.note({1: moment})
        assert heard.kept == {1: NOON + SECOND}


def test_of_very_many_jobs_those_are_kept_that_were_announced_last() -> None:
    heard = Announcements()
    heard.note(dict.fromkeys(range(MOST), NOON))
    assert len(heard.kept) == MOST
    heard.note({0: NOON})
    heard.note({MOST: NOON})
    assert set(heard.kept) == {*range(MOST + 1)} - {1}
