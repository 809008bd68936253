"""The Redis store passes the suite, under a prefix of its own per test."""

import pytest

from cronsensus.clock import Clock
from cronsensus.stores import Store
from cronsensus.stores.redis import RedisStore
from cronsensus.testing.conformance import StoreConformance


class TestRedisStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, redis_url: str) -> None:
        self.url = redis_url

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return RedisStore(self.url, namespace=namespace, clock=clock)
