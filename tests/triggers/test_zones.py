"""Names of time zones: what is accepted, what is refused, and what a machine without zone data says."""

import re
import subprocess
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers import cron, zones
from tests.zone_files import forget_rules


def test_a_zone_is_a_name_or_a_zoneinfo():
    paris = cron("0 21 * * *", tz="Europe/Paris")
    assert cron("0 21 * * *", tz=zoneinfo.ZoneInfo("Europe/Paris")) == paris
    assert cron("0 21 * * *", tz=zoneinfo.ZoneInfo.no_cache("Europe/Paris")) == paris
    assert paris.next_after(datetime(2026, 11, 20, tzinfo=UTC)) == datetime(2026, 11, 20, 20, tzinfo=UTC)
    utc: Any = UTC  # not in the signature, but what the fingers know
    assert cron("0 21 * * *", tz=utc) == cron("0 21 * * *")


@pytest.mark.parametrize(
    ("tz", "says"),
    [
        ("Europe/Pariss", "tz='Europe/Pariss' is not a known time zone; did you mean 'Europe/Paris'"),
        ("europe/paris", "did you mean 'Europe/Paris'"),
        ("Shanghai", "did you mean 'Asia/Shanghai'"),
        ("new york", "did you mean 'America/New_York'"),
        ("Mars/Olympus", "write a name like 'Europe/Paris' or 'UTC'"),
        ("America", "not a known time zone"),
        ("../../etc/passwd", "not a known time zone"),
        ("/etc/localtime", "not a known time zone"),
        ("Europe/Paris\x00", "not a known time zone"),
        ("", "not a known time zone"),
        ("x" * 100_000, "not a known time zone"),
        ("é", "not a known time zone"),
        ("localtime", "may differ from one machine to the next"),
        ("posixrules", "may differ"),
        ("right/Europe/Paris", "may differ"),
        (7, "tz=7 is not a time zone"),
        (2, "tz=2 is not a time zone"),
        (timezone(timedelta(hours=1)), "is not a time zone; write a name like"),
    ],
)
def test_a_bad_zone_is_refused(tz, says):
    with pytest.raises(InvalidTrigger, match=says) as caught:
        cron("0 21 * * *", tz=tz)
    assert len(str(caught.value)) < 300


def test_a_zone_without_a_name_cannot_be_stored():
    system = next((Path(path) for path in zoneinfo.TZPATH if (Path(path) / "Europe/Paris").exists()), None)
    if system is None:
        pytest.skip("this system has no zone files")
    with (system / "Europe/Paris").open("rb") as file:
        nameless = zoneinfo.ZoneInfo.from_file(file)
    with pytest.raises(InvalidTrigger, match="has no name"):
        cron("0 21 * * *", tz=nameless)


@pytest.fixture
def no_zone_data(monkeypatch):
    paths = zoneinfo.TZPATH
    zones._known_names.cache_clear()
    zoneinfo.reset_tzpath(to=())
    forget_rules()
    for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    yield
    zoneinfo.reset_tzpath(to=paths)
    zones._known_names.cache_clear()
    forget_rules()


def test_without_zone_data_utc_works_and_the_rest_says_what_to_install(no_zone_data):
    assert cron("0 21 * * *").next_after(datetime(2026, 11, 20, tzinfo=UTC)) == datetime(2026, 11, 20, 21, tzinfo=UTC)
    with pytest.raises(InvalidTrigger, match=r"no time zone data.* run: pip install --force-reinstall tzdata"):
        cron("0 21 * * 6", tz="Asia/Tokyo")


@pytest.fixture
def links(no_zone_data, tmp_path):
    """The table of old names, on a system that has it and leaves all old names out, without the package."""
    package = next(Path(place) for place in sys.path if (Path(place) / "tzdata").is_dir()) / "tzdata" / "zoneinfo"
    lines = (package / "tzdata.zi").read_text().splitlines()
    table = {link: zone for _, zone, link in (line.split() for line in lines if line.startswith("L "))}
    for zone in (package / "zones").parent.rglob("*"):
        name = zone.relative_to(package)
        if zone.is_file() and str(name) not in table:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).symlink_to(zone)
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    return table


def test_each_old_name_that_a_system_leaves_out_leads_to_its_zone(links):
    assert links["US/Pacific"] == "America/Los_Angeles"
    assert len(links) > 130
    hints = {}
    for name in links:
        if name != "UTC":
            with pytest.raises(InvalidTrigger) as caught:
                cron("@daily", tz=name)
            hints[name] = re.findall("write '(.+)', which", str(caught.value))
    assert hints == {name: ["UTC" if zone == "Etc/UTC" else zone] for name, zone in links.items() if name != "UTC"}


@pytest.mark.parametrize(
    ("tz", "says"),
    [
        ("us/pacific", "write 'America/Los_Angeles'"),
        ("Europe/Pariss", "did you mean 'Europe/Paris'"),
        ("US/Pacfic", "write a name like"),
        ("Asia/Tehrann", "did you mean 'Asia/Tehran'"),
    ],
)
def test_a_misspelt_name_is_not_led_through_the_table_of_old_names(links, tz, says):
    with pytest.raises(InvalidTrigger, match=says):
        cron("@daily", tz=tz)


def test_the_library_that_reads_cron_is_only_imported_when_asked():
    code = "import sys, cronsensus.triggers as t; t.every('5m'); assert 'cronsim' not in sys.modules; t.cron('@daily')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
