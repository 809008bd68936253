"""Parsed definitions of jobs, kept between transactions.

The key is the job's id and a text that names its content: digest, revision, and when it began. Ids and revisions alone
would not do: a store that lost its last commits gives both again, to another job or another definition. What is kept is
bounded: a node that looks after a hundred thousand jobs keeps the two thousand that it met last.
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
"""Most jobs of which it is kept how they were last enqueued, or claimed."""

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """What was used last, by (job id, definition). Safe to share between threads."""

    def __init__(self, most: int) -> None:
        """Keep at most ``most`` values."""
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], Value] = OrderedDict()

    def get(self, job: int, definition: str) -> Value | None:
        """Return what is kept of a definition."""
        key = (job, definition)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, job: int, definition: str, value: Value) -> None:
        """Keep a value, and forget the one that was not used for longest."""
        with self._lock:
            self._kept[job, definition] = value
            self._kept.move_to_end((job, definition))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)


class Met:
    """Jobs that were met last, each with its definition. Safe to share between threads."""

    def __init__(self, most: int = MOST_REMEMBERED_JOBS) -> None:
        """Keep at most ``most`` jobs."""
        self._most = most
        self._kept: dict[Any, tuple[int, str]] = {}

    def note_definition(self, name: Any, job: int, definition: str) -> None:
        """Keep the definition of a job under a name."""
        if self._kept.get(name) != (job, definition):
            others = [(one, of) for one, of in self._kept.items() if one != name]
            self._kept = dict([*others[-self._most + 1 :], (name, (job, definition))])

    def get(self, name: Any) -> tuple[int, str] | None:
        """Return a job's id and definition."""
        return self._kept.get(name)

    def list_all(self) -> Iterable[tuple[int, str]]:
        """Return the ids and definitions of all."""
        return self._kept.values()


class Definitions:
    """What one handle knows of jobs.

    Attributes:
        specs: definitions.
        enqueued: jobs that were enqueued last, by name.
        claimed: jobs that were claimed last, by id.
        eras: the eras up to a definition, from the one on that held at the watermark when they were read.
        unreadable: rows that were left out.
    """

    def __init__(self, most: int = MOST_KEPT_DEFINITIONS) -> None:
        """Keep the definitions and the eras of at most ``most`` of them."""
        self.specs: Recent[JobSpec] = Recent(most)
        self.eras: Recent[tuple[Era, ...]] = Recent(most)
        self.enqueued, self.claimed = Met(), Met()
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
