"""The key of a call of a guarded function, and the comparison of its payload with a recorded one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from cronsensus.errors import PayloadMismatch
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Occurrence, scheduled_key
from cronsensus.once.payloads import Difference, find_difference
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.once")


@dataclass(frozen=True, slots=True)
class CallKey:
    """The occurrence of a guarded function that a call wants, by key or by nominal time.

    Attributes:
        fingerprint: of the call's payload.
        fields: the names of the values in the key.
        lenient: a call with another payload gets the recorded result.
        zone: the time zone of the run's local time.
    """

    spec: JobSpec
    key: str
    scheduled_for: datetime | None = None
    fingerprint: str | None = None
    fields: tuple[str, ...] = ()
    lenient: bool = False
    zone: str = "UTC"

    @classmethod
    def for_slot(cls, spec: JobSpec, scheduled_for: datetime, zone: str = "UTC") -> CallKey:
        """Return the occurrence of a nominal time."""
        return cls(spec, scheduled_key(scheduled_for), scheduled_for, zone=zone)

    @property
    def name(self) -> tuple[str, str]:
        """Its name in the namespace: job and key."""
        return self.spec.name, self.key

    def differs_from(self, recorded: str | None) -> Difference | None:
        """Return the difference from a recorded fingerprint, if it is to be refused."""
        difference = find_difference(self.fingerprint, recorded)
        if difference is not None and self.lenient:
            if difference.names:
                _log.info("%s is called with another payload under the key %s", self.spec.name, self.key)
            difference = replace(difference, names=()) if difference.kinds else None
        return difference

    def payload_mismatch(self, difference: Difference, other: str, occurrence: Occurrence | None) -> PayloadMismatch:
        """Return the error for a call with another payload than the recorded one. It has names, never values."""
        name, key = self.spec.name, self.key
        if difference.kinds:
            fields = (
                ", ".join(self.fields[place] for place in difference.kinds if place < len(self.fields)) or "a value"
            )
            example = self.fields[difference.kinds[0]] if self.fields else "name"
            why = (
                f"{fields} in the key is spelled as there, and is of another kind, such as 1, '1' and True: pass one "
                f"kind, or write {{{example}!r}} in the key to keep them apart"
            )
        else:
            why = (
                f"{', '.join(difference.names)} differ{'s' if len(difference.names) == 1 else ''} (compared here: "
                f"{', '.join(difference.given)}; recorded: {', '.join(difference.recorded)}). If it is the same call, "
                "say what of it counts, by payload=; if it is another one, it needs another key"
            )
        return PayloadMismatch(
            f"{name!r} was called under the key {key!r} with another payload than {other}: {why}. To have it run anew: "
            f"`cronsensus once forget {name} {key!r}`",
            occurrence=occurrence,
            differs=difference.names,
            given=difference.given,
            recorded=difference.recorded,
        )
