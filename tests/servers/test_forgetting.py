"""A place that forgets loses what came after ``remember()``, that alone, and answers at the same address."""

from collections.abc import Iterator

import pytest

from cronsensus.errors import SchemaMismatch
from cronsensus.model.job import JobSpec
from cronsensus.stores import open_store
from tests.servers.forgetting import KINDS, Forgetful, forgetful
from tests.servers.programs import ServiceMissing


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path) -> Iterator[Forgetful]:
    try:
        with forgetful(request.param, tmp_path) as found:
            yield found
    except ServiceMissing as missing:
        pytest.skip(str(missing))


def define(place: Forgetful, name: str) -> None:
    store = open_store(place.url)
    try:
        store.migrate()
        store.define_jobs([JobSpec(name=name, function=name)], release="r1")
    finally:
        store.close()


def known(place: Forgetful) -> list[str]:
    store = open_store(place.url)
    try:
        return [job.spec.name for job in store.jobs()]
    finally:
        store.close()


def test_what_came_after_is_gone_each_time_and_what_came_before_is_not(place):
    address = place.url
    for number in "12":
        define(place, f"kept-{number}")
        place.remember()
        define(place, f"lost-{number}")
        assert f"lost-{number}" in known(place)
        place.forget()
        assert place.url == address
    assert known(place) == ["kept-1", "kept-2"]
    place.empty()
    assert place.url == address
    if place.url.startswith("redis"):
        assert known(place) == []
    else:
        with pytest.raises(SchemaMismatch):
            known(place)
    define(place, "new")
    place.remember()
    define(place, "lost")
    place.forget()
    assert known(place) == ["new"]
