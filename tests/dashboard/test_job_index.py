"""What a search finds, what it asks of the store, and that it shows nothing as it was."""

import threading
from typing import Any

import pytest

from cronsensus.dashboard import job_index
from cronsensus.dashboard.job_index import JobIndex
from tests.hand_cluster import HandCluster


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    for name in ("bill", "build", "send-bills", "tidy"):
        cluster.every(name, "1h")
    return cluster


def found(index: JobIndex, cluster: HandCluster, *words: str, **more: Any) -> list[str]:
    names, _ = index.find_names(cluster.store, words, limit=10, **more)
    return [view.spec.name for view in index.read_views(cluster.store, names)]


def test_words_are_looked_for_without_reading_every_definition_again(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = JobIndex()
    assert found(index, cluster, "bill") == ["bill", "send-bills"]
    real, asked = cluster.store.jobs, list[int]()

    def counted(**how: Any) -> Any:
        asked.append(how["limit"])
        return real(**how)

    monkeypatch.setattr(cluster.store, "jobs", counted)
    assert found(index, cluster, "tidy") == ["tidy"]
    assert asked == [1]
    assert found(index, cluster, "every", "bill", after="bill") == ["send-bills"]


def test_a_job_that_was_paused_a_moment_ago_is_found_as_it_is(cluster: HandCluster) -> None:
    index = JobIndex()
    assert found(index, cluster, paused=True) == []
    cluster.store.pause("tidy", by="ann", why="a reason")
    assert "tidy" in found(index, cluster, paused=True)
    views = index.read_views(cluster.store, ["build", "tidy"])
    assert [(view.spec.name, view.paused_by) for view in views] == [("build", None), ("tidy", "ann")]


def test_what_is_old_answers_once_more_and_is_read_anew_beside_it(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_index, "_KEPT_SECONDS", 0.0)
    monkeypatch.setattr(job_index, "_LEAST_TIMES_OF_WORK", 0)
    index = JobIndex()
    assert found(index, cluster, "new") == []
    cluster.every("newer", "1h")
    assert found(index, cluster, "new") == []
    for thread in threading.enumerate():
        if thread.name == "cronsensus-search":
            thread.join(10)
    assert found(index, cluster, "new") == ["newer"]


def test_behind_the_most_that_are_kept_the_store_is_asked(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_index, "MOST_KEPT", 2)
    monkeypatch.setattr(job_index, "_JOBS_AT_ONCE", 2)
    index = JobIndex()
    assert index.find_names(cluster.store, ["tidy"], limit=10) == ([], "build")
    assert index.find_names(cluster.store, ["tidy"], after="build", limit=10) == (["send-bills", "tidy"], None)
