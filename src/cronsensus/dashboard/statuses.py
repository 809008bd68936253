"""The status with which an error of ours is answered."""

from __future__ import annotations

from cronsensus.errors import (
    ConfigurationError,
    CoordinationError,
    CronsensusError,
    OccurrenceForgotten,
    StoreCorrupt,
    StoreError,
    UnknownJob,
)

STORE_AWAY = 503


def status_of(error: CronsensusError) -> int:
    """Return 4xx for what the sender can mend, 503 while the store cannot answer, 500 for what it holds and cannot."""
    if isinstance(error, (UnknownJob, OccurrenceForgotten)):
        return 404
    if isinstance(error, StoreCorrupt):
        return 500
    if isinstance(error, StoreError):
        return STORE_AWAY
    if isinstance(error, CoordinationError):
        return 409
    return 400 if isinstance(error, ConfigurationError) else 500
