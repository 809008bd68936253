"""Releases with more jobs than one step defines: each step rests on a look that is young enough."""

import os
import time

import pytest

from cronsensus.model.job import JobSpec
from cronsensus.stores.redis import defining

SIZE = int(os.environ.get("CRONSENSUS_TEST_RELEASE", "10"))


def release(size, *args):
    return [JobSpec(name=f"job {number:07d}", function="f", args=args) for number in range(size)]


@pytest.fixture
def steps(store, monkeypatch):
    """Make steps small; return how many names each step that wrote had looked at."""
    monkeypatch.setattr(defining, "MOST_JOBS_WRITTEN", 4)
    monkeypatch.setattr(defining, "MOST_JOBS_READ", 2)
    seen, looked = [], [0]
    read, decide = store._read_script, store._decide_script

    def spy_read(verb, *arguments):
        if verb == "look_at_definitions":
            looked[0] += len(arguments[1])
        return read(verb, *arguments)

    def spy_decide(verb, *arguments):
        seen.append(looked[0])
        looked[0] = 0
        return decide(verb, *arguments)

    monkeypatch.setattr(store, "_read_script", spy_read)
    monkeypatch.setattr(store, "_decide_script", spy_decide)
    return seen


def test_a_step_looks_at_what_it_writes_and_not_at_the_whole_release(store, steps):
    assert len(store.define_jobs(release(10), release="r1", complete=True).created) == 10
    assert steps == [4, 4, 2]


def test_a_release_that_lacks_many_jobs_retires_them_in_steps(store, steps):
    store.define_jobs(release(10), release="r1", complete=True)
    steps.clear()
    put = store.define_jobs(release(1), release="r2", complete=True)
    assert sorted(put.retired) == [spec.name for spec in release(10)[1:]]
    assert steps == [1 + 4, 1 + 4, 1 + 1]
    assert [job.spec.name for job in store.jobs()] == ["job 0000000"]


def test_a_large_release_that_lacks_many_jobs_retires_them_too(store, steps):
    store.define_jobs(release(16), release="r1", complete=True)
    put = store.define_jobs(release(6, 1), release="r2", complete=True)
    assert (len(put.changed), len(put.retired)) == (6, 10)
    assert store.define_jobs(release(6, 1), release="r2", complete=True).unchanged == tuple(
        spec.name for spec in release(6)
    )


def test_a_release_of_this_size_is_declared_changed_and_dropped(store):
    """``CRONSENSUS_TEST_RELEASE=150000`` is the long form."""
    times = []
    for specs in (release(SIZE), release(SIZE), release(SIZE, 1), release(1)):
        begun = time.monotonic()
        store.define_jobs(specs, release="r1", complete=True)
        times.append(time.monotonic() - begun)
    print(f"{SIZE} jobs: new {times[0]:.1f} s, same {times[1]:.1f}, changed {times[2]:.1f}, dropped {times[3]:.1f}")
    assert len(store.jobs(limit=10)) == 1
