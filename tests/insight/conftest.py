"""A cluster that is asked without the command line."""

import pytest

from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    return HandCluster()
