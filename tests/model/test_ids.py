import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cronsensus.model.ids import new_id
from cronsensus.timing.clock import ManualClock

since_1970 = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - it adds it


@given(since_1970)
def test_an_id_is_a_uuid_of_version_7_with_its_millisecond(instant):
    made = uuid.UUID(new_id(ManualClock(instant)))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    millis = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert abs((made.int >> 80) - millis) <= 1


def test_ids_sort_by_the_millisecond_they_were_made_in():
    clock = ManualClock()
    ids = []
    for _ in range(100):
        ids.append(new_id(clock))
        clock.advance(0.002)
    assert ids == sorted(ids)


def test_ids_of_one_moment_differ():
    clock = ManualClock()
    assert len({new_id(clock) for _ in range(10_000)}) == 10_000


def test_without_a_clock_it_takes_the_host_s():
    assert uuid.UUID(new_id()).version == 7
