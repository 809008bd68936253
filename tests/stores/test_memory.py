"""The memory store passes the suite; and what is its own."""

import gc
import itertools
import threading
import uuid
import weakref

import pytest

from cronsensus.clock import Clock, ManualClock, SystemClock
from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores import Store, open_store
from cronsensus.stores.memory import MemoryStore
from cronsensus.testing.conformance import StoreConformance

names = (f"memory://test-{number}" for number in itertools.count())


class TestMemoryStore(StoreConformance):
    url = ""

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        self.url = self.url or next(names)
        return MemoryStore(self.url, namespace=namespace, clock=clock)
