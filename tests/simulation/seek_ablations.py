"""Print in which night each missing safeguard is first found: ``python -m tests.simulation.seek_ablations``.

``SEEN_AT`` in ``test_ablations.py`` and in ``test_forgetting.py`` is made of it. What changes a node's decisions
changes its nights, and then the tests seek for longer.
"""

from __future__ import annotations

from multiprocessing import Pool
from unittest import mock

from tests.simulation import test_forgetting
from tests.simulation.ablations import MADE_IN, STORES, on, place_of
from tests.simulation.cluster import Parts, simulate
from tests.simulation.test_ablations import nights

MOST = 3000
FORGETTING = {part.__name__: part for part in test_forgetting.ABLATIONS}
PARTS = {part.__name__: (module, part) for module, parts in MADE_IN.items() for part in parts}


def first_night(name: str) -> tuple[str, int | None]:
    """Return the name of a safeguard's counterpart, and the first seed with which a promise breaks."""
    if name in PARTS:
        module, part = PARTS[name]
        with mock.patch(place_of(module, part), part):
            return name, _first(name, Parts())
    if name in FORGETTING:
        with mock.patch(test_forgetting.place_of(FORGETTING[name]), FORGETTING[name]):
            return name, _first(name, test_forgetting.FORGETFUL)
    return name, _first(name, on(next(store for store in STORES if store.__name__ == name)))


def _first(name: str, parts: Parts) -> int | None:
    return next((seed for seed in nights(name, MOST) if not simulate(seed, parts).ok), None)


if __name__ == "__main__":
    with Pool(maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(first_night, [*(store.__name__ for store in STORES), *PARTS, *FORGETTING]):
            print(*found, flush=True)
