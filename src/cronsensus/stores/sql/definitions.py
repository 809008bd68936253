"""A cache of parsed definitions of jobs, kept between transactions.

The key is the job's id, and a text that identifies the definition: its digest, its revision, and when it began. Ids and
revisions alone would not do: a store that lost its last commits gives both again, to another job or definition. The
cache is bounded: of a hundred thousand jobs it keeps the two thousand used last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from cronsensus.errors import StoreCorrupt
from cronsensus.model.job import Era, JobSpec, UnknownParts
from cronsensus.payload.codec import loads
from cronsensus.stores.unreadable import READING_RAISES, Unreadable, no_definition

MOST_KEPT_DEFINITIONS = 2048
MOST_REMEMBERED_JOBS = 64
"""Most jobs whose definition, as they were last enqueued or claimed, is kept."""

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values used last, by (job id, definition). Safe to share between threads."""

    def __init__(self, most: int) -> None:
        """Keep at most ``most`` values."""
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], Value] = OrderedDict()

    def get(self, job: int, definition: str) -> Value | None:
        """Return the value of a definition; ``None``: it is not kept."""
        key = (job, definition)
        with self._lock:
            value = self._kept.get(key)
            if value is not None:
                self._kept.move_to_end(key)
            return value

    def put(self, job: int, definition: str, value: Value) -> None:
        """Keep a value, and drop the one that was not used for longest."""
        with self._lock:
            self._kept[job, definition] = value
            self._kept.move_to_end((job, definition))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)


class LastUsed:
    """The jobs used last, each with its definition. Safe to share between threads."""

    def __init__(self, most: int = MOST_REMEMBERED_JOBS) -> None:
        """Keep at most ``most`` jobs."""
        self._most = most
        self._kept: dict[Any, tuple[int, str]] = {}

    def note_definition(self, name: Any, job: int, definition: str) -> None:
        """Keep the definition of a job under a name."""
        if self._kept.get(name) != (job, definition):
            others = [
                (other, definition_of_other) for other, definition_of_other in self._kept.items() if other != name
            ]
            self._kept = dict([*others[-self._most + 1 :], (name, (job, definition))])

    def get(self, name: Any) -> tuple[int, str] | None:
        """Return a job's id and definition."""
        return self._kept.get(name)

    def list_all(self) -> Iterable[tuple[int, str]]:
        """Return the ids and definitions of all."""
        return self._kept.values()


class Definitions:
    """The caches of one handle.

    Attributes:
        specs: definitions.
        enqueued: jobs that were enqueued last, by name.
        claimed: jobs that were claimed last, by id.
        eras: the eras up to a definition, from the era that held at the watermark when they were read.
        unreadable: rows that were left out.
    """

    def __init__(self, most: int = MOST_KEPT_DEFINITIONS) -> None:
        """Keep the definitions and the eras of at most ``most`` of them."""
        self.specs: Recent[JobSpec] = Recent(most)
        self.eras: Recent[tuple[Era, ...]] = Recent(most)
        self.enqueued, self.claimed = LastUsed(), LastUsed()
        self.unreadable = Unreadable()


def read_spec(text: str) -> JobSpec:
    """Return a stored definition.

    Raises:
        StoreCorrupt: the row cannot be read; a newer version of cronsensus may have written it.
    """
    try:
        return JobSpec.from_json(loads(text))
    except UnknownParts as error:
        raise StoreCorrupt(str(error)) from error
    except READING_RAISES as error:
        raise no_definition("a job definition", error, text) from error
