"""A store forgets its last moment after each kind of verb, on each kind of server, while two nodes live.

CRONSENSUS_TEST_FORGETS=20 does it twenty times on each server.
"""

import os
from collections.abc import Iterator

import pytest

from tests.faults.forgotten_verbs import CASES, Told
from tests.servers.forgetting import KINDS, Forgetful, forgetful
from tests.servers.programs import ServiceMissing

TIMES = int(os.environ.get("CRONSENSUS_TEST_FORGETS", "1"))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path) -> Iterator[Forgetful]:
    try:
        with forgetful(kind, tmp_path) as found:
            yield found
    except ServiceMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(60 + 60 * TIMES)
def test_each_verb_that_was_forgotten_is_done_again_and_nothing_stale_is_taken(kind: str, place: Forgetful):
    for time in range(TIMES):
        told = [Told(written, place, f"{written.__name__}-{time}") for written in CASES]
        try:
            for one in told:
                one.go_on()
            place.remember()
            for one in told:
                one.go_on()
            place.forget()
            for one in told:
                if kind == "sqlite-replaced":  # a handle refuses a file that it has not opened
                    one.nodes.open_again()
                one.nodes.meet_again()
                one.go_on()
                one.nodes.nothing_runs()
        finally:
            for one in told:
                one.nodes.close()
        failed = {one.name: one.failed for one in told if one.failed is not None}
        if failed:
            raise ExceptionGroup(f"{kind}: {', '.join(failed)}", list(failed.values()))
