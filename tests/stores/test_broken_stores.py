"""The suite is worth something only if it rejects stores that are wrong."""

import itertools
from collections.abc import Iterator

import pytest

from cronsensus.stores.memory import MemoryStore
from cronsensus.testing import conformance
from cronsensus.testing.conformance import StoreConformance, StoreTest
from tests.stores.broken import BROKEN, BrokenStore
from tests.stores.one_test import run

names = (f"memory://broken-{number}" for number in itertools.count())


def run_on(kind: type[MemoryStore], test: str) -> BaseException | None:
    """Run one test of the suite on new stores of a kind; return what it raised."""
    url = next(names)
    return run(lambda clock, namespace: kind(url, namespace=namespace, clock=clock), test)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_store_is_rejected_by_the_test_that_names_its_fault(kind: type[BrokenStore]) -> None:
    assert run_on(kind, kind.rejected_by) is not None


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_an_intact_store_passes_the_same_test(kind: type[BrokenStore]) -> None:
    error = run_on(MemoryStore, kind.rejected_by)
    assert error is None, error


def test_every_broken_store_says_what_is_wrong_with_it() -> None:
    assert all(kind.__doc__ for kind in BROKEN)
    assert len(BROKEN) == len({kind.rejected_by for kind in BROKEN})


def hazards() -> Iterator[type[StoreTest]]:
    for base in StoreConformance.__mro__:
        if issubclass(base, StoreTest) and base not in {StoreConformance, StoreTest}:
            yield base


def test_nothing_of_one_hazard_hides_something_of_another() -> None:
    around = {"setup_method", "teardown_method"}
    names = [name for base in hazards() for name in vars(base) if not name.startswith("_") and name not in around]
    assert sorted(set(names)) == sorted(names)


def test_every_hazard_of_the_suite_is_exported() -> None:
    assert {base.__name__ for base in hazards()} | {"StoreTest", "StoreConformance"} == set(conformance.__all__)
