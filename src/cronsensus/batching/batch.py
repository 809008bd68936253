"""How the items of a job come to be, as its declaration says; ``phases.py`` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cronsensus.model.batch import Tolerance
from cronsensus.model.occurrence import Claim, Occurrence
from cronsensus.model.states import Origin
from cronsensus.node.registered import Part, Registered


@dataclass(frozen=True, slots=True)
class Batch(Part):
    """How the items of a job come to be, and what becomes of their results.

    Attributes:
        lister: the items, or what is called for them.
        lister_name: what errors call it.
        lister_run: its parameter that wants the ``Run``.
        bind: makes of an item what a store keeps: the arguments of one call.
        key_of: makes of an item its key; ``None``: the item itself.
        tolerance: how many may fail.
        collect: is given the results, and makes that of the batch.
        collect_run: its parameter that wants the ``Run``.
        on_loop: whether lister or ``collect`` is async.
    """

    passes_arguments: ClassVar[bool] = True

    lister: Any
    lister_name: str
    bind: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
    lister_run: str | None = None
    key_of: Callable[[Any], Any] | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    collect: Callable[..., Any] | None = None
    collect_run: str | None = None
    on_loop: bool = False

    def returning(self, function: Callable[..., Any] | None) -> Callable[..., Any] | None:  # noqa: ARG002
        """Return what collects, if anything does."""
        return self.collect


def is_batch(registered: Registered, claim: Claim | Occurrence) -> bool:
    """Whether an occurrence is a batch; else it is an item of one, or a call of its own.

    Of a job without ``items=`` only what ``enqueue_batch`` made is.
    """
    if claim.parent is not None:
        return False
    return claim.origin is Origin.BATCH or (
        claim.origin is not Origin.ENQUEUE and registered.part_of(Batch) is not None
    )


def batch_of(registered: Registered) -> Batch:
    """Return how the items of a function come to be; of one without ``items=`` only by hand."""
    if (declared := registered.part_of(Batch)) is not None:
        return declared

    def bind(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given, named = registered.types.write_arguments((item,), {})
        return tuple(given), named

    return Batch(lister=(), lister_name="items", bind=bind)


def tolerance_of(registered: Registered | None) -> Tolerance:
    """Return how many items of a function's batches may fail; of one that is not known here none."""
    declared = None if registered is None else registered.part_of(Batch)
    return Tolerance() if declared is None else declared.tolerance
