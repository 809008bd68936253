"""The batch options of a job's declaration: its lister, keys, tolerance and collect; ``phases.py`` runs them."""

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
    """The batch options of a job: how its items are listed, and how their results are collected.

    Attributes:
        lister: the items, or the function that returns them.
        lister_name: its name in errors.
        lister_run: the name of its parameter for the ``Run``.
        bind: turns an item into the stored arguments of a call.
        key_of: turns an item into its key; ``None``: the item itself.
        tolerance: how many may fail.
        collect: called with the results; returns the result of the batch.
        collect_run: the name of its parameter for the ``Run``.
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
        """Return the function whose result is the batch's, if there is one."""
        return self.collect


def is_batch(registered: Registered, claim: Claim | Occurrence) -> bool:
    """Whether an occurrence is a batch; else it is an item of a batch, or a single call.

    For a job without ``items=``, only occurrences of ``enqueue_batch`` are batches.
    """
    if claim.parent is not None:
        return False
    return claim.origin is Origin.BATCH or (
        claim.origin is not Origin.ENQUEUE and registered.part_of(Batch) is not None
    )


def batch_of(registered: Registered) -> Batch:
    """Return the batch options of a function; without ``items=``, those for batches that are enqueued by hand."""
    if (declared := registered.part_of(Batch)) is not None:
        return declared

    def bind(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, named = registered.types.write_arguments((item,), {})
        return tuple(positional), named

    return Batch(lister=(), lister_name="items", bind=bind)


def tolerance_of(registered: Registered | None) -> Tolerance:
    """Return how many items of a function's batches may fail; none if the function is not known here."""
    declared = None if registered is None else registered.part_of(Batch)
    return Tolerance() if declared is None else declared.tolerance
