"""Servers that are far away: every way to them leads through a proxy that holds each piece back.

``CRONSENSUS_TEST_FAR=1,10,40,100`` names the round trips in milliseconds; without it there is one, of 40.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers.proxy import Proxy

KINDS = ["postgres", "mysql", "redis"]
DISTANCES = [float(one) for one in os.environ.get("CRONSENSUS_TEST_FAR", "40").split(",")]


@pytest.fixture(autouse=True)
def distance() -> float:
    """Return 0: the tests here put a network of their own in between."""
    return 0.0


@pytest.fixture(params=KINDS)
def near_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store on a server, one kind after the other; it leads straight there."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def network(near_url: str) -> Iterator[Proxy]:
    """Return a network to that store, which is good until it is told otherwise; ``network.url`` leads through it."""
    with Proxy(near_url) as proxy:
        yield proxy


@pytest.fixture(params=DISTANCES, ids=[f"{one:g}ms" for one in DISTANCES])
def round_trip(request: pytest.FixtureRequest) -> float:
    """Return the seconds of a round trip, one distance after the other."""
    return float(request.param) / 1000
