"""A made-up feature in one file: a run waits until a file is there. ``test_rooms.py`` puts it beside the others.

::

    @waits_for(path)
    def load(run: Run) -> str: ...  # parked until the file is there; run.extras["file"] is what was in it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cronsensus.model.ends import Parked, Then
from cronsensus.model.occurrence import Claim
from cronsensus.model.parking import Sleeper
from cronsensus.node.hooks import Admission, Admit, Hooks, Host, Waker
from cronsensus.stores.base import Store

PARKED_ON = "file"
F = TypeVar("F", bound=Callable[..., Any])


def waits_for(path: Path) -> Callable[[F], F]:
    """Have the runs of a function wait for a file."""

    def decorate(function: F) -> F:
        function.waits_for = path  # type: ignore[attr-defined]
        return function

    return decorate


class FileAdmission(Admission):
    """Lets begin what finds its file, and parks the rest."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def concerns_claim(self, claim: Claim) -> bool:
        return path_of(self._host, claim.spec.function) is not None

    def admit_claims(
        self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
    ) -> Mapping[int, Admit | Then]:
        return {claim.id: self._ask(path_of(self._host, claim.spec.function)) for claim in claims}

    def _ask(self, path: Path | None) -> Admit | Then:
        assert path is not None
        if not path.exists():
            return Parked(PARKED_ON, reason=f"waits for {path.name}")
        return Admit({"file": path.read_text("utf-8")})


class _Held(NamedTuple):
    number: int
    function: str


class FileWaker(Waker):
    """Wakes what waits for a file that has come."""

    on = PARKED_ON

    def __init__(self, host: Host) -> None:
        self._host = host

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:
        parked = isinstance(then, Parked) and then.on == PARKED_ON
        return _Held(claim.id, claim.spec.function) if parked else None

    def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:
        held = [one for one in told if isinstance(one, _Held)]
        told.clear()
        return [one.number for one in held if self._is_there(one.function)]

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:
        return lambda page: [one.id for one in page if self._is_there(one.job)]

    def _is_there(self, function: str) -> bool:
        path = path_of(self._host, function)
        return path is not None and path.exists()


def path_of(host: Host, function: str) -> Path | None:
    """Return the file that the runs of a function wait for."""
    registered = host.registry.get(function)
    return None if registered is None else getattr(registered.function, "waits_for", None)


def waiting_for_files(host: Host) -> Hooks:
    """Make the hooks of this feature for a node."""
    return Hooks(FileAdmission(host), FileWaker(host))
