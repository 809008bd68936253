"""A part of the suite that every store passes, far away from the server: what races and what waits for a session's row.

The whole suite at any distance: ``make far``.
"""

from __future__ import annotations

import pytest

from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance import Racing
from cronsensus.timing.clock import Clock
from tests.servers.proxy import Proxy

CHOSEN = {
    "test_a_claim_and_a_renewal_never_leave_a_working_session_an_idle_lease",
    "test_claim_racing_the_end_of_its_session_leaves_no_run_without_a_holder",
}


class TestFarAway(Racing):
    """Some races of the suite, on each server."""

    TURNS = 3

    @pytest.fixture(autouse=True)
    def _place(self, network: Proxy, round_trip: float) -> None:
        self.url = network.url
        open_store(self.url).migrate()
        network.delay(round_trip / 2)

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return open_store(self.url, namespace=namespace, clock=clock)


for _name in dir(Racing):
    if _name.startswith("test_") and _name not in CHOSEN:
        setattr(TestFarAway, _name, None)
