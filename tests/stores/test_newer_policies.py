"""A release that has a policy more than this one, beside this one, on each store that several releases can share.

The policy is made up: the next one will be met by nodes that do not know it in just this way.
"""

from collections.abc import Callable
from typing import Any

import pytest

from cronsensus.model.job import JobSpec
from cronsensus.model.states import State
from cronsensus.stores import Store
from cronsensus.stores.redis import RedisStore
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import HOUR, MINUTE, StoreTest
from cronsensus.timing.clock import Clock
from cronsensus.triggers import cron
from tests.zone_files import write_zone, zones_in


class NewerSpec(JobSpec):
    """A definition as a newer version writes it."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        written = super().to_json()
        return {**written, "policies": {**written["policies"], "quorum": 3}}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql", "redis"])
class TestNewerPolicies(StoreTest):
    @pytest.fixture(autouse=True)
    def _place(self, request: pytest.FixtureRequest, kind: str, tmp_path) -> None:
        self.kind = kind
        self.url = (
            f"sqlite:///{tmp_path / 'cronsensus.db'}" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
        )

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        kinds: dict[str, Callable[..., Store]] = {
            "sqlite": SqliteStore,
            "postgres": PostgresStore,
            "mysql": MysqlStore,
            "redis": RedisStore,
        }
        return kinds[self.kind](self.url, namespace=namespace, clock=clock)

    def deploy(self, *, run: bool = False, **policies: Any) -> Store:
        """Have a newer release declare ``fancy``, which has the policy, and ``plain``; return a handle of the older.

        Args:
            run: the newer release's node is running ``fancy`` meanwhile.
            policies: of ``fancy``, that both know.
        """
        old, new = self.store, self.open()
        self.session("old", release="r1", lease=HOUR)
        self.define(self.job("fancy"), self.job("plain"), release="r1")
        self.session("new", release="r2", lease=HOUR)
        if run:
            self.enqueue(job="fancy")
            self.take("new")
        fancy = self.job("fancy", **policies)
        newer = NewerSpec(name="fancy", function="fancy", trigger=fancy.trigger, policies=fancy.policies)
        assert new.define_jobs([newer, self.job("plain")], release="r2").changed == ("fancy",)
        return old

    def test_job_with_an_unknown_policy_is_left_alone_and_all_others_are_fired(self, caplog):
        old = self.deploy()
        self.clock.advance(MINUTE)
        assert [job.spec.name for job in old.look().jobs] == ["plain"]
        assert self.round(old) == [True]
        assert [claim.spec.name for claim in self.claim("old", store=old)] == ["plain"]
        said = [record.message for record in caplog.records if "quorum" in record.message]
        assert len(said) == 1
        assert "job 'fancy' has a part of a newer version of cronsensus (quorum): this node leaves" in said[0]
        assert "upgrade cronsensus here" in said[0]

    def test_a_job_in_a_zone_that_this_machine_lacks_is_left_alone_and_the_log_says_what_to_upgrade(
        self, caplog, tmp_path
    ):
        with zones_in(tmp_path / "newer"):
            write_zone(tmp_path / "newer", "America/Founded", "<-03>3")
            self.define(self.job("plain"), self.job("there", trigger=cron("* * * * *", tz="America/Founded")))
        self.clock.advance(MINUTE)
        assert [job.spec.name for job in self.open().look().jobs] == ["plain"]
        (said,) = [record.message for record in caplog.records if "America/Founded" in record.message]
        assert "pip install --upgrade tzdata here" in said

    def test_older_release_that_restarts_leaves_the_definition_alone(self):
        old = self.deploy()
        assert self.define(self.job("fancy"), self.job("plain"), release="r1", store=old).superseded == ("fancy",)

    @pytest.mark.parametrize(("on_crash", "becomes"), [("retry", State.PENDING), ("fail", State.FAILED)])
    def test_run_of_a_job_with_an_unknown_policy_is_cut_off_by_the_policies_that_are_known(self, on_crash, becomes):
        old = self.deploy(run=True, on_crash=on_crash)
        assert [taken.became for taken in old.reclaim(["new"])] == [becomes]
