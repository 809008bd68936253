"""The Redis store against the memory store: the same calls give the same answers and the same reads."""

import os

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from cronsensus.stores import Store
from cronsensus.stores.redis import RedisStore
from cronsensus.timing.clock import ManualClock
from tests.servers.fixtures import with_query
from tests.stores.test_state_machine import EXAMPLES, AgainstTheOracle


def machine_on(server: str) -> type[AgainstTheOracle]:
    class RedisAgainstTheOracle(AgainstTheOracle):
        def open_other(self, clock: ManualClock) -> Store:
            self.prefix = "oracle_" + os.urandom(6).hex()
            return RedisStore(with_query(server, prefix=self.prefix), clock=clock)

        @rule(seconds=st.sampled_from([90, 20]))
        def step_clock(self, seconds):
            # Leases of the one run on the wall clock and those of the other do not: a step parts them by right.
            self.clock.advance(seconds)

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.stores[1].close()
                with redis.Redis.from_url(server) as client:
                    for key in client.scan_iter(match=f"{{{self.prefix}:*", count=1000):
                        client.unlink(key)

    return RedisAgainstTheOracle


@pytest.mark.timeout(600)  # only a failure takes that long: it is made as short as it can be
def test_redis_is_as_the_oracle_says(redis_server_url: str) -> None:
    run_state_machine_as_test(machine_on(redis_server_url), settings=EXAMPLES)
