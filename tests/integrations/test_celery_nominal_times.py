"""The times of a schedule of Celery: the same on every beat, and where no clock changes those that Celery means."""

import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import crontab, schedule
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.integrations.celery.nominal_times import shared_form

BERLIN = ZoneInfo("Europe/Berlin")


def app_in(zone: str) -> Celery:
    app = Celery("times", set_as_current=False)
    app.conf.timezone = zone
    return app


def shared(found, now: datetime, zone: str = "UTC"):
    return shared_form(found, app_in(zone), lambda: now)


def local_times(form, start: datetime, end: datetime) -> list[str]:
    found, at = [], start
    while (at := form.next_after(at)) is not None and at <= end:
        found.append(f"{at.astimezone(BERLIN):%H:%M%z}")
    return found


@pytest.mark.parametrize("seconds", [0.5, 1, 7, 90, 86_400])
def test_an_interval_is_due_at_its_multiples_whenever_it_was_sent_last(seconds):
    now = datetime(2026, 11, 28, 12, 0, 0, 300_000, tzinfo=UTC)
    form = shared(schedule(seconds), now)
    latest = form.latest_until(now, datetime(1970, 1, 1, tzinfo=UTC))
    assert latest.timestamp() % seconds == 0
    assert timedelta(0) <= now - latest < timedelta(seconds=seconds)
    # A beat that has sent it a moment ago, and one that comes later, go on to the same time.
    for last in (latest, now):
        due, wait = form.is_due(last)
        assert (due, now + timedelta(seconds=wait)) == (False, latest + timedelta(seconds=seconds))
    assert form.is_due(latest - timedelta(microseconds=1))[0]


FIELDS = {
    "minute": st.sampled_from(["*", "*/7", "0", "5,35", "10-20"]),
    "hour": st.sampled_from(["*", "*/5", "3", "22-2"]),
    "day_of_week": st.sampled_from(["*", "mon-fri", "sun", "*/2"]),
    "day_of_month": st.sampled_from(["*", "1", "13-15", "*/9", "28-31"]),
    "month_of_year": st.sampled_from(["*", "2", "*/3", "jan,dec"]),
}


@given(
    fields=st.fixed_dictionaries(FIELDS),
    last=st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)),  # noqa: DTZ001 - hypothesis wants it so
)
def test_a_crontab_has_the_times_that_celery_gives_it_in_utc(fields, last):
    last = last.replace(tzinfo=UTC)
    theirs = crontab(**fields, app=app_in("UTC"), nowfun=lambda: last)
    ours = shared(crontab(**fields), last)
    assert ours.next_after(last) == last + theirs.remaining_estimate(last)


def test_a_crontab_that_is_a_frequency_loses_no_time_in_a_repeated_hour():
    form = shared(crontab(minute="*/30", hour="*"), datetime(2026, 10, 25, tzinfo=UTC), "Europe/Berlin")
    night = datetime(2026, 10, 24, 23, 59, tzinfo=UTC)
    assert local_times(form, night, night + timedelta(hours=2, minutes=31)) == [
        "02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100", "03:00+0100", "03:30+0100",
    ]  # fmt: skip
    # A beat that starts in the second pass: Celery's own is due on each tick until the hour is over.
    inside = datetime(2026, 10, 25, 1, 5, tzinfo=UTC)
    due, wait = shared(crontab(minute="*/30", hour="*"), inside, "Europe/Berlin").is_due(inside)
    assert (due, wait) == (False, 25 * 60)


def test_a_crontab_at_a_time_of_the_day_runs_once_over_a_gap_and_once_in_a_repeated_hour():
    form = shared(crontab(minute="30", hour="2"), datetime(2026, 3, 29, tzinfo=UTC), "Europe/Berlin")
    spring, autumn = datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 10, 24, 21, tzinfo=UTC)
    assert local_times(form, spring, spring + timedelta(hours=12)) == ["03:00+0200"]
    assert local_times(form, autumn, autumn + timedelta(hours=12)) == ["02:30+0200"]


def test_a_relative_interval_keeps_to_midnight_over_a_clock_change():
    form = shared(schedule(timedelta(days=1), relative=True), datetime(2026, 3, 29, tzinfo=UTC), "Europe/Berlin")
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert local_times(form, start, start + timedelta(days=3)) == ["00:00+0100", "00:00+0200", "00:00+0200"]
    assert form.latest_until(start + timedelta(days=2), start) == datetime(2026, 3, 29, 22, tzinfo=UTC)


class OnlySaysWhetherItIsDue(schedule):  # type: ignore[misc]
    def is_due(self, last_run_at):
        return True, 60


class EachHourAtItsNinth(schedule):  # type: ignore[misc]
    """As somebody may write one: it estimates, and so it names its times."""

    def remaining_estimate(self, last_run_at):
        following = last_run_at.replace(minute=9, second=0, microsecond=0)
        return following + timedelta(hours=int(following <= last_run_at)) - self.now()


def test_a_schedule_of_ones_own_names_its_times_by_its_estimate_or_has_none():
    now = datetime(2026, 11, 28, 12, 30, tzinfo=UTC)
    form = shared(EachHourAtItsNinth(3600), now)
    assert form.latest_until(now, now - timedelta(hours=3)) == datetime(2026, 11, 28, 12, 9, tzinfo=UTC)
    assert form.is_due(now - timedelta(hours=1))[0]
    assert shared(OnlySaysWhetherItIsDue(60), now) is None
    assert shared(schedule(0), now) is None, "it is due at all times"


@pytest.mark.parametrize("found", [schedule(10), crontab(minute=5), schedule(60, relative=True)])
def test_a_shared_form_equals_what_it_was_and_is_pickled_as_that(found):
    form = shared(found, datetime(2026, 11, 28, tzinfo=UTC))
    assert (form, isinstance(form, type(found))) == (found, True)
    again = pickle.loads(pickle.dumps(form))
    assert (type(again), again) == (type(found), found)
