"""A cluster that restarts on new zone rules: no time is lost, none runs twice, and jobs are due by the new rules.

Clocks in British Columbia go back to UTC-8 on 2026-11-01 by the old rules, and stay at UTC-7 by the new ones. So 09:00
there, at 17:00 UTC by the old rules, comes an hour earlier. The other direction is the same exchanged.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cronsensus.audit import audit
from cronsensus.insight.standstill import every_standstill
from cronsensus.jobs.rewinding import rewind_job
from cronsensus.model.states import State
from cronsensus.stores import Store
from cronsensus.stores.sql import defining
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import StoreTest
from cronsensus.timing.clock import Clock
from cronsensus.triggers import cron
from tests.scratch import copy_migrated_sqlite, scratch_folder
from tests.zone_files import forget_rules, write_zone, zones_in

GOES_BACK, STAYS = "PST8PDT,M3.2.0,M11.1.0", "MST7"


def november(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


class TestNewRules(StoreTest):
    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        with scratch_folder() as folder, zones_in(folder / "zones") as self.zones:
            self.path = folder / "cronsensus.db"
            copy_migrated_sqlite(self.path)
            yield

    zones: Path

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return SqliteStore(f"sqlite:///{self.path}", namespace=namespace, clock=clock)

    def start(self, rule: str, **policies: Any) -> tuple[str, ...]:
        """Start all nodes on these rules; return which jobs they moved."""
        self.restart(rule)
        policies.setdefault("catch_up", "latest")
        spec = self.job(trigger=cron("0 9 * * *", tz="America/Vancouver", jitter="1s"), **policies)
        return self.define(spec, complete=True).moved

    def restart(self, rule: str) -> None:
        """Come back on these rules, with nothing declared."""
        write_zone(self.zones, "America/Vancouver", rule)
        forget_rules()
        self.store.close()
        self.__dict__["store"] = self.open()

    def run_until(self, until: datetime) -> None:
        """Do what is due, as the looks of a node find it."""
        while self.clock.now() < until:
            next_due = self.view().next_due
            assert next_due is not None
            self.clock.advance((min(max(next_due, self.clock.now()), until) - self.clock.now()).total_seconds())
            self.round()
            self.clock.advance(1)
            for claim in self.claim(self.session(f"s{self.clock.now()}")):
                self.finish(claim)

    def assert_on_time(self, since: int = 0) -> None:
        for one in self.all()[since:]:
            assert one.scheduled_for is not None
            assert one.created_at - one.scheduled_for < timedelta(minutes=1)

    def times(self) -> list[datetime | None]:
        found = self.all()
        assert {State.SUCCEEDED} == {one.state for one in found}
        return [one.scheduled_for for one in found]

    def begin(self, rule: str) -> None:
        self.clock.advance((datetime(2026, 10, 31, tzinfo=UTC) - self.clock.now()).total_seconds())
        self.start(rule)
        self.run_until(november(1, 0))

    @pytest.mark.parametrize(("old", "new", "hour"), [(GOES_BACK, STAYS, 16), (STAYS, GOES_BACK, 17)])
    def test_a_restart_before_the_change(self, old: str, new: str, hour: int) -> None:
        self.begin(old)
        assert self.start(new) == ("job",)
        assert self.view().next_due == november(1, hour)
        self.run_until(november(3, 23))
        first = datetime(2026, 10, 31, 16, tzinfo=UTC)
        assert self.times() == [first, *(november(day, hour) for day in (1, 2, 3))]
        self.assert_on_time()
        assert audit(self.store).ok

    def test_a_plan_between_the_read_and_the_write_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin(GOES_BACK)
        self.clock.advance((november(1, 16, 30) - self.clock.now()).total_seconds())
        prepare = defining.prepare_definitions

        def fire_meanwhile(declared: defining.Declaration, now: datetime) -> None:
            prepare(declared, now)
            monkeypatch.undo()
            self.fire(november(1, 16), next_due=november(2, 16))

        monkeypatch.setattr(defining, "prepare_definitions", fire_meanwhile)
        assert self.start(STAYS) == ()
        assert (self.view().watermark, self.view().next_due) == (november(1, 16), november(2, 16))

    def test_a_job_that_no_node_declares_is_found_and_set_right_by_hand(self) -> None:
        self.begin(GOES_BACK)
        assert not list(every_standstill(self.store))
        self.restart(STAYS)
        assert [one.is_by_zone_rules for one in every_standstill(self.store)] == [True]
        rewind_job(self.store, "job", by="ann", why="new rules")
        assert self.view().next_due == november(1, 16)
        assert not list(every_standstill(self.store))
        self.run_until(november(2, 23))
        assert self.times()[1:] == [november(1, 16), november(2, 16)]
        self.assert_on_time()
        assert audit(self.store).ok

    def test_a_restart_after_the_new_instant_runs_it_at_once(self) -> None:
        self.begin(GOES_BACK)
        self.run_until(november(1, 16, 30))
        self.start(STAYS)
        self.run_until(november(1, 16, 31))
        self.run_until(november(2, 23))
        assert self.times()[1:] == [november(1, 16), november(2, 16)]
        assert self.all()[1].created_at.replace(second=0) == november(1, 16, 30)
        assert audit(self.store).ok

    def test_a_restart_after_the_new_instant_by_more_than_grace_records_it_as_missed(self) -> None:
        self.begin(GOES_BACK)
        self.start(GOES_BACK, grace="10m")
        self.run_until(november(1, 16, 30))
        self.start(STAYS, grace="10m")
        self.run_until(november(2, 23))
        assert self.times()[1:] == [november(2, 16)]
        (missed,) = self.store.ranges("job")
        assert (missed.range.first, missed.range.state, missed.range.reason) == (november(1, 16), State.MISSED, "late")
        assert missed.decided_at.replace(second=0, microsecond=0) == november(1, 16, 30)
        assert audit(self.store).ok

    def test_what_ran_by_the_old_rules_before_its_new_instant_runs_at_that_too(self) -> None:
        self.begin(STAYS)
        self.run_until(november(1, 16, 30))
        self.start(GOES_BACK)
        self.run_until(november(2, 23))
        assert self.times()[1:] == [november(1, 16), november(1, 17), november(2, 17)]
        self.assert_on_time()
        assert [finding.kind for finding in audit(self.store).findings] == ["stray"]
