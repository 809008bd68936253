"""The Redis store passes the suite, under a prefix of its own per test, also if plans do not start as they fire."""

from collections.abc import Sequence
from typing import Any

import pytest

from cronsensus.model.plan import Plan
from cronsensus.model.step import Want
from cronsensus.stores import Store
from cronsensus.stores.redis import RedisStore
from cronsensus.testing.conformance import Claiming, Firing, Herds, LeadTime, Stepping, StoreConformance
from cronsensus.timing.clock import Clock


class OnRedis:
    kind: type[RedisStore] = RedisStore

    @pytest.fixture(autouse=True)
    def _place(self, redis_url: str) -> None:
        self.url = redis_url

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return self.kind(self.url, namespace=namespace, clock=clock)


class TestRedisStore(OnRedis, StoreConformance):
    pass


class FiresBeforeItStarts(RedisStore):
    starts_as_it_fires = False

    def _encode_plans(self, plans: Sequence[Plan], want: Want | None) -> list[list[Any]]:
        """Check that no plan names a function, without which the script fires it as any other."""
        written = super()._encode_plans(plans, want)
        assert not any(plan[-1] for plan in written)
        return written


class TestRedisStoreThatFiresBeforeItStarts(OnRedis, Firing, Stepping, Claiming, Herds, LeadTime):
    kind = FiresBeforeItStarts
