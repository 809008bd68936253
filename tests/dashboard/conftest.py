"""The small cluster of the tests that ask how pages are served, and not what they show."""

import pytest

from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    """Return a cluster of one node with one job."""
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    return cluster
