"""The suite that every store passes: what ``cronsensus.stores.base`` says, as tests.

To check a store of your own, say how a test gets a handle on it, and let pytest collect the rest::

    from cronsensus.timing.clock import Clock
    from cronsensus.stores import Store
    from cronsensus.testing.conformance import StoreConformance


    class TestMyStore(StoreConformance):
        @pytest.fixture(autouse=True)
        def _place(self, tmp_path):
            self.path = tmp_path / "store"

        def make_store(self, clock: Clock, namespace: str = "default") -> Store:
            return MyStore(self.path, namespace=namespace, clock=clock)

``make_store`` is called several times in a test. All handles of one test reach the same store; the store of the next
test is empty again. ``clock`` is the store's clock, for due times and for leases: a manual one, which moves only when a
test says so. The suite migrates, opens siblings, and closes whatever it opened. A store that says
``transactional_finish`` also writes ``make_connection``, which opens a connection of a user's own on its database.

Nothing is skipped. Where stores may differ, ``StoreCapabilities`` says so, and the suite holds each store to what it
says. The classes are ordered by hazard; one alone is collected in the same way: ``class TestFiring(Mine, Firing)``.

It needs pytest, and nothing else.
"""

import pytest

# Before the imports below: pytest explains the asserts of modules that are registered, and only of those.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "acquiring",
            "basics",
            "batching",
            "boundaries",
            "claiming",
            "competing",
            "defining",
            "enqueuing",
            "enqueuing_in",
            "finishing",
            "firing",
            "fixtures",
            "herds",
            "key_reuse",
            "lead_time",
            "limiting",
            "locks",
            "operating",
            "ordering",
            "pruning",
            "racing",
            "reading",
            "reserving",
            "retiring",
            "rewinding",
            "sessions",
            "stepping",
            "transacting",
        )
    )
)

from cronsensus.testing.conformance.acquiring import Acquiring  # noqa: E402
from cronsensus.testing.conformance.basics import Basics  # noqa: E402
from cronsensus.testing.conformance.batching import Batching  # noqa: E402
from cronsensus.testing.conformance.boundaries import Boundaries  # noqa: E402
from cronsensus.testing.conformance.claiming import Claiming  # noqa: E402
from cronsensus.testing.conformance.competing import Competing  # noqa: E402
from cronsensus.testing.conformance.defining import Defining  # noqa: E402
from cronsensus.testing.conformance.enqueuing import Enqueuing  # noqa: E402
from cronsensus.testing.conformance.enqueuing_in import EnqueuingIn  # noqa: E402
from cronsensus.testing.conformance.finishing import Finishing  # noqa: E402
from cronsensus.testing.conformance.firing import Firing, Looking  # noqa: E402
from cronsensus.testing.conformance.fixtures import StoreTest  # noqa: E402
from cronsensus.testing.conformance.herds import Herds  # noqa: E402
from cronsensus.testing.conformance.key_reuse import KeyReuse  # noqa: E402
from cronsensus.testing.conformance.lead_time import LeadTime  # noqa: E402
from cronsensus.testing.conformance.limiting import Limiting  # noqa: E402
from cronsensus.testing.conformance.locks import Locks  # noqa: E402
from cronsensus.testing.conformance.operating import Operating  # noqa: E402
from cronsensus.testing.conformance.ordering import Ordering  # noqa: E402
from cronsensus.testing.conformance.pruning import Pruning  # noqa: E402
from cronsensus.testing.conformance.racing import Racing  # noqa: E402
from cronsensus.testing.conformance.reading import Reading  # noqa: E402
from cronsensus.testing.conformance.reserving import Reserving  # noqa: E402
from cronsensus.testing.conformance.retiring import Retiring  # noqa: E402
from cronsensus.testing.conformance.rewinding import Rewinding  # noqa: E402
from cronsensus.testing.conformance.sessions import Sessions  # noqa: E402
from cronsensus.testing.conformance.stepping import Stepping  # noqa: E402
from cronsensus.testing.conformance.transacting import Transacting  # noqa: E402

__all__ = [
    "Acquiring",
    "Basics",
    "Batching",
    "Boundaries",
    "Claiming",
    "Competing",
    "Defining",
    "Enqueuing",
    "EnqueuingIn",
    "Finishing",
    "Firing",
    "Herds",
    "KeyReuse",
    "LeadTime",
    "Limiting",
    "Locks",
    "Looking",
    "Operating",
    "Ordering",
    "Pruning",
    "Racing",
    "Reading",
    "Reserving",
    "Retiring",
    "Rewinding",
    "Sessions",
    "Stepping",
    "StoreConformance",
    "StoreTest",
    "Transacting",
]


class StoreConformance(
    Basics,
    Defining,
    Retiring,
    Looking,
    Stepping,
    Firing,
    Herds,
    LeadTime,
    Claiming,
    Ordering,
    Reserving,
    Limiting,
    Acquiring,
    Competing,
    Finishing,
    Batching,
    Transacting,
    Sessions,
    Locks,
    Enqueuing,
    EnqueuingIn,
    Operating,
    Rewinding,
    Pruning,
    KeyReuse,
    Reading,
    Boundaries,
    Racing,
):
    """Every test of a store. Subclass it and write ``make_store``."""
