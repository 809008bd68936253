"""A job is found by its name, and a wrong name is told what was perhaps meant."""

import pytest

from cronsensus.errors import UnknownJob
from cronsensus.insight.lookup import require_job
from tests.hand_cluster import HandCluster


def test_require_job_returns_the_job(cluster: HandCluster) -> None:
    cluster.every("tick")
    assert require_job(cluster.store, "tick").spec.name == "tick"


def test_require_job_names_a_close_job_of_the_store_or_of_the_code(cluster: HandCluster) -> None:
    cluster.every("tick")
    with pytest.raises(UnknownJob, match="did you mean 'tick'"):
        require_job(cluster.store, "tikc")
    with pytest.raises(UnknownJob, match="did you mean 'nightly'"):
        require_job(cluster.store, "nightli", declared=["nightly"])


def test_require_job_without_a_close_one_says_how_to_see_the_names(cluster: HandCluster) -> None:
    with pytest.raises(UnknownJob, match="cronsensus jobs list"):
        require_job(cluster.store, "tick")
