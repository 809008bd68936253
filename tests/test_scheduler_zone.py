# mypy: disable-error-code="union-attr,attr-defined"
"""The time zone of triggers that name none."""

from datetime import UTC, datetime

import pytest

from cronsensus import Scheduler, any_of, at, cron, every
from cronsensus.config import load_settings
from cronsensus.errors import InvalidOption, InvalidTrigger
from cronsensus.model.occurrence import OccurrenceFilter

SHANGHAI = "Asia/Shanghai"


def declared(scheduler, trigger):
    return scheduler.job(trigger, name="job")(lambda: None).spec.trigger


def test_a_cron_trigger_takes_the_zone_of_its_scheduler():
    trigger = declared(Scheduler("memory://", tz=SHANGHAI), cron("0 21 * * *"))
    assert trigger == cron("0 21 * * *", tz=SHANGHAI)
    assert trigger.to_json()["tz"] == SHANGHAI
    assert trigger.next_after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 1, 13, tzinfo=UTC)


@pytest.mark.parametrize(
    "named", [cron("0 21 * * *", tz="UTC"), cron("TZ=UTC 0 21 * * *"), cron("CRON_TZ=UTC 0 21 * * *")]
)
def test_a_trigger_that_names_its_zone_keeps_it(named):
    assert declared(Scheduler("memory://", tz=SHANGHAI), named) == cron("0 21 * * *", tz="UTC")


def test_two_zones_that_contradict_are_refused():
    assert cron("TZ=Europe/Paris 0 3 * * *", tz="Europe/Paris") == cron("0 3 * * *", tz="Europe/Paris")
    with pytest.raises(ValueError, match=r"names a zone, and tz='UTC' another; leave one out"):
        cron("TZ=Europe/Paris 0 3 * * *", tz="UTC")


def test_intervals_and_instants_have_no_zone():
    for trigger in (every("1d"), at("2027-01-01T00:00:00Z")):
        assert declared(Scheduler("memory://", tz=SHANGHAI), trigger) == trigger


def test_texts_without_an_offset_are_of_the_schedulers_zone():
    scheduler = Scheduler("memory://", tz=SHANGHAI)
    assert declared(scheduler, at("2026-12-01 09:00")) == at("2026-12-01T09:00:00+08:00")
    start, end = "2026-12-01T09:00", "2026-12-02 09:00:30"
    aware_start, aware_end = "2026-12-01T09:00+08:00", "2026-12-02T09:00:30+08:00"
    hourly = declared(Scheduler("memory://", tz=SHANGHAI), every("1h", start=start, end=end))
    assert hourly == every("1h", start=aware_start, end=aware_end)
    daily = declared(Scheduler("memory://", tz=SHANGHAI), cron("0 9 * * *", start=start, end=end))
    assert daily == cron("0 9 * * *", tz=SHANGHAI, start=aware_start, end=aware_end)
    assert declared(Scheduler("memory://"), at("2026-12-01 09:00")) == at("2026-12-01T09:00:00Z")


def test_bounds_of_a_trigger_that_names_its_zone_are_of_that_zone():
    trigger = cron("0 9 * * *", tz="Europe/Paris", start="2026-12-01 09:00")
    assert trigger == cron("0 9 * * *", tz="Europe/Paris", start="2026-12-01T09:00+01:00")
    assert declared(Scheduler("memory://", tz=SHANGHAI), trigger) == trigger


def test_a_text_that_no_clock_of_the_zone_shows_is_refused_and_the_first_of_two_is_taken():
    paris = Scheduler("memory://", tz="Europe/Paris")
    with pytest.raises(InvalidTrigger, match=r"instant='2026-03-29 02:30:00' does not exist in Europe/Paris"):
        _ = declared(paris, at("2026-03-29 02:30"))
    assert declared(Scheduler("memory://", tz="Europe/Paris"), at("2026-10-25 02:30")) == at("2026-10-25T00:30:00Z")


def test_each_part_of_a_union_takes_it_for_itself():
    both = any_of(cron("0 9 * * *"), cron("0 9 * * *", tz="UTC"), every("6h"))
    assert len(both.parts) == 3
    assert declared(Scheduler("memory://", tz=SHANGHAI), both) == any_of(
        cron("0 9 * * *", tz=SHANGHAI), cron("0 9 * * *", tz="UTC"), every("6h")
    )
    assert declared(Scheduler("memory://"), both) == any_of(cron("0 9 * * *"), every("6h"))


def test_jobs_that_are_added_changed_or_declared_late_take_it_as_well():
    scheduler = Scheduler("memory://", tz=SHANGHAI)

    @scheduler.function
    def tick() -> None: ...

    with scheduler:
        scheduler.add_job(tick, cron("0 9 * * *"), name="added")
        assert scheduler.store.job("added").spec.trigger == cron("0 9 * * *", tz=SHANGHAI)
        scheduler.change_job("added", trigger=cron("0 10 * * *"))
        assert scheduler.store.job("added").spec.trigger == cron("0 10 * * *", tz=SHANGHAI)
        late = scheduler.job(cron("0 11 * * *"), name="late")(lambda: None)
        assert late.spec.trigger == cron("0 11 * * *", tz=SHANGHAI)


def test_a_setting_says_it_and_its_default_is_utc(monkeypatch, tmp_path):
    assert load_settings(env={}, start=tmp_path).tz == "UTC"
    assert declared(Scheduler("memory://"), cron("0 9 * * *")).tz == "UTC"
    monkeypatch.setenv("CRONSENSUS_TZ", "Europe/Paris")
    assert declared(Scheduler("memory://"), cron("0 9 * * *")).tz == "Europe/Paris"
    assert Scheduler("memory://", tz=SHANGHAI).settings.tz == SHANGHAI
    (tmp_path / "pyproject.toml").write_text('[tool.cronsensus]\ntz = "Asia/Tokyo"\n')
    assert load_settings(env={}, start=tmp_path).tz == "Asia/Tokyo"


def test_a_zone_that_does_not_exist_is_refused():
    with pytest.raises(InvalidOption, match=r"tz: tz='Asia/Beijing' is not a known time zone; write 'Asia/Shanghai'"):
        Scheduler("memory://", tz="Asia/Beijing")


def test_a_later_setting_changes_what_was_declared():
    scheduler = Scheduler("memory://")
    job = scheduler.job(cron("0 9 * * *"))(test_intervals_and_instants_have_no_zone)
    scheduler.configure({"tz": SHANGHAI})
    assert job.spec.trigger.tz == SHANGHAI


def test_a_slot_is_of_the_schedulers_zone():
    scheduler = Scheduler("memory://", tz=SHANGHAI)

    @scheduler.once_per(cron("0 0 * * *"))
    def daily() -> int:
        return 7

    assert daily() == 7
    (one,) = scheduler.store.occurrences(OccurrenceFilter(), limit=5)
    assert one.scheduled_for.astimezone(UTC).hour == 16
