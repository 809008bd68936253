"""Whatever stands in a hash, in a list or as a score of Redis stops no more than what it is of.

The fields are those of a live store, so that a new one is poisoned by itself.
"""

import os
import re
from typing import Any

import pytest
import redis

from cronsensus.stores.redis import RedisStore
from cronsensus.timing.clock import ManualClock
from tests.stores.poison.scene import DOOMED, START, furnish, goes_on

ALL = os.environ.get("CRONSENSUS_TEST_POISON") == "all"
pytestmark = pytest.mark.timeout(3600 if ALL else 600)
PARTS = 40 if ALL else 1
"""In how many tests the long form is cut, so that each tells its result in time."""
NO_TEXT = b"\xff\x00\xed\xa0\x80"
VALUES = (
    b"", b"0", b"-1", b"text", b"{", b"[]", b"{}", b"9223372036854775807", b"-9223372036854775808", b"1e308",
    b"nan", b"inf", b"253402300800000000", NO_TEXT, b'"\\ud800"',
    b'{"type":"full moon"}', b"no such word", None,
)  # fmt: skip
"""``None``: the field is not there."""
SCORES = (float("inf"), float("-inf"), 9e18, -1.0, 0.5)


class Place:
    """A furnished store that is made anew for each case."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = redis.Redis.from_url(url.partition("?")[0])  # its types say text or bytes; here it is bytes
        given = re.search(r"prefix=([^&]+)", url)
        self.prefix = "cronsensus" if given is None else given[1]
        clock = ManualClock(START)
        store = self.open(clock)
        furnish(store, clock)
        store.close()
        self.clock = clock
        self.saved = {key: self.client.dump(key) for key in self.all_keys()}
        self.doomed = self._doomed()

    def open(self, clock: ManualClock) -> RedisStore:
        return RedisStore(self.url, clock=clock)

    def all_keys(self) -> list[bytes]:
        return sorted(self.client.scan_iter(f"{{{self.prefix}:*", count=1000))

    def restore(self) -> None:
        for key in self.all_keys():
            self.client.delete(key)
        pipeline = self.client.pipeline(transaction=False)
        for key, value in self.saved.items():
            pipeline.restore(key, 0, value)
        pipeline.execute()

    def _doomed(self) -> list[bytes]:
        """Return what keys and members of the doomed are called: numbers of jobs and of runs, ids, names."""
        space = next(key for key in self.all_keys() if key.endswith(b":meta"))[:-4]
        numbers = [self.client.hget(space + b"names", name) for name in DOOMED]
        runs = [run for number in numbers for run in self.client.zrange(space + b"job:" + number + b":ids", 0, -1)]
        return [*(b"job:" + number for number in numbers), *numbers, *runs, b"holder", b"gone", b"doomed"]

    def is_doomed(self, text: bytes) -> bool:
        return any(re.search(rb"(?<![0-9])" + re.escape(word) + rb"(?![0-9])", text) for word in self.doomed)


@pytest.fixture
def place(redis_url):
    found = Place(redis_url)
    yield found
    found.client.close()


def is_definition(short: bytes) -> bool:
    return re.fullmatch(rb"job:\d+", short) is not None


def cases(place, *, everything=ALL):
    """Yield (name, act) for what may be poisoned; ``everything``: each value in each place of a kind."""
    client = place.client
    turn = 0
    seen: set[tuple[object, ...]] = set()
    for key in place.all_keys():
        kind = client.type(key)
        short = key.partition(b"}:")[2]
        pattern = re.sub(rb"\d{5,}", b"#", short)
        if kind == b"hash" and place.is_doomed(short):
            for field in client.hkeys(key):
                state = client.hget(key, "state") or b""
                if not everything and (pattern, field, state) in seen:
                    continue
                seen.add((pattern, field, state))
                turn += 1
                for value in VALUES if everything else (VALUES[turn % len(VALUES)],):
                    if is_definition(short) and field == b"watermark" and value == NO_TEXT:
                        continue
                    if value is None:
                        yield f"{short}.{field} gone", lambda key=key, field=field: client.hdel(key, field)
                    else:
                        yield (
                            f"{short}.{field}={value!r}",
                            lambda key=key, field=field, value=value: client.hset(key, field, value),
                        )
        elif kind == b"list" and place.is_doomed(short):
            turn += 1
            for value in VALUES[:-1] if everything else (VALUES[turn % (len(VALUES) - 1)],):
                yield f"{short}[0]={value!r}", lambda key=key, value=value: client.lset(key, 0, value)
        elif kind == b"zset":
            for member in client.zrange(key, 0, -1):
                if (place.is_doomed(short) or place.is_doomed(member)) and (
                    everything or (pattern, b"score") not in seen
                ):
                    seen.add((pattern, b"score"))
                    turn += 1
                    for score in SCORES if everything else (SCORES[turn % len(SCORES)],):
                        yield (
                            f"{short}<{member}>={score}",
                            lambda key=key, member=member, score=score: client.zadd(key, {member: score}),
                        )
        if is_definition(short):
            continue  # no release that declares the job could define its jobs any more
        if place.is_doomed(short) and (everything or (pattern, b"type") not in seen):
            seen.add((pattern, b"type"))
            yield f"{short} is a text", lambda key=key: client.set(key, "text")


def go_on(place, chosen):
    """Poison one place after the other, and see each time that all else goes on."""
    failed, count = {}, 0
    for name, act in chosen:
        place.restore()
        act()
        clock = ManualClock(START)
        clock.advance(place.clock.now() - START)
        store = place.open(clock)
        count += 1
        try:
            goes_on(store, clock)
        except Exception as error:  # noqa: BLE001 - told below
            failed[name] = f"{type(error).__name__}: {str(error)[:250]}"
        finally:
            store.close()
    assert not failed, f"{len(failed)} of {count}\n" + "\n".join(f"{name}: {why}" for name, why in failed.items())
    return count


@pytest.mark.parametrize("part", range(PARTS))
def test_poison_in_one_place_stops_nothing_else(place, part):
    assert go_on(place, list(cases(place))[part::PARTS]) > 60


def test_what_once_stopped_a_node_stops_it_no_more(place):
    once = re.compile(
        r"""'occurrence:\d+'(\.b'token'=b'text'|\ is\ a\ text)|'job:\d+'\.b'(keep'=b'nan|revision'=b'\\xff)""",
        re.VERBOSE,
    )
    assert go_on(place, [case for case in cases(place, everything=True) if once.search(case[0])]) >= 8
