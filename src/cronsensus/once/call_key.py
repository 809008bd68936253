"""One call of a guarded function: which occurrence it wants, and whether a recorded one has its payload."""

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
    """One key of one implicit job, or one of its nominal times.

    Attributes:
        fingerprint: of the call's payload.
        fields: what the values in the key are called.
        lenient: another payload gets the recorded result.
        zone: of what the run shows as its local time.
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
        """What names it in the namespace."""
        return self.spec.name, self.key

    def differs_from(self, recorded: str | None) -> Difference | None:
        """Return how the payload differs from the one of a fingerprint, as far as that matters."""
        found = find_difference(self.fingerprint, recorded)
        if found is not None and self.lenient:
            if found.names:
                _log.info("%s is called with another payload under the key %s", self.spec.name, self.key)
            found = replace(found, names=()) if found.kinds else None
        return found

    def payload_mismatch(self, found: Difference, other: str, occurrence: Occurrence | None) -> PayloadMismatch:
        """Return the error for a call with another payload than the recorded one. It has names, never values."""
        name, key = self.spec.name, self.key
        if found.kinds:
            fields = ", ".join(self.fields[place] for place in found.kinds if place < len(self.fields)) or "a value"
            example = self.fields[found.kinds[0]] if self.fields else "name"
            why = (
                f"{fields} in the key is spelled as there, and is of another kind, such as 1, '1' and True: pass one "
                f"kind, or write {{{example}!r}} in the key to keep them apart"
            )
        else:
            why = (
                f"{', '.join(found.names)} differ{'s' if len(found.names) == 1 else ''} (compared here: "
                f"{', '.join(found.given)}; recorded: {', '.join(found.recorded)}). If it is the same call, say what "
                "of it counts, by payload=; if it is another one, it needs another key"
            )
        return PayloadMismatch(
            f"{name!r} was called under the key {key!r} with another payload than {other}: {why}. To have it run anew: "
            f"`cronsensus once forget {name} {key!r}`",
            occurrence=occurrence,
            differs=found.names,
            given=found.given,
            recorded=found.recorded,
        )
