"""Which zone rules a machine has: equal digests mean equal rules, and the version is that of the data in use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cronsensus.triggers import cron, every
from cronsensus.triggers.zone_rules import zone_rules_of
from tests.zone_files import forget_rules, write_zone, zones_in


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with zones_in(tmp_path):
        yield tmp_path


def digest(folder: Path, rule: str) -> str:
    write_zone(folder, "America/Vancouver", rule)
    forget_rules()
    return zone_rules_of([cron("@daily", tz="America/Vancouver")]).digests["America/Vancouver"]


def test_digests_differ_with_the_rules_and_not_with_how_they_are_written(folder: Path) -> None:
    stays = digest(folder, "MST7")
    assert stays == digest(folder, "<-07>7")
    goes_back = digest(folder, "PST8PDT,M3.2.0,M11.1.0")
    an_hour_later = digest(folder, "PST8PDT,M3.2.0,M11.1.0/3")
    assert len({stays, goes_back, an_hour_later}) == 3


def test_the_version_is_of_the_data_that_the_zones_come_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = cron("@daily", tz="Europe/Paris") | cron("@daily")
    paris, here = zone_rules_of([trigger, None, every("5m")]), f"({folder})"
    assert list(paris.digests) == ["Europe/Paris"]
    assert here not in paris.version
    write_zone(folder, "Europe/Paris", "CET-1CEST,M3.5.0,M10.5.0/3")
    assert zone_rules_of([trigger]).version == f"unknown {here}"
    (folder / "tzdata.zi").write_text("# version 2025b\n# ddeps backzone\n")
    forget_rules()
    assert zone_rules_of([trigger]).version == f"2025b {here}"
    monkeypatch.setattr("zoneinfo.TZPATH", ())
    assert zone_rules_of([trigger]).version.endswith(" (package)")
