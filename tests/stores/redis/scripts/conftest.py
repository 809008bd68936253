"""One place for all scripts of a module: it is emptied before each of them."""

from collections.abc import Iterator

import pytest

from tests.stores.redis.scripts.by_hand import Place


@pytest.fixture(scope="module")
def place(redis_server_url: str) -> Iterator[Place]:
    place = Place(redis_server_url)
    yield place
    place.close()
