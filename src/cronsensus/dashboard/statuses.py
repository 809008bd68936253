"""The HTTP status of an error of the library."""

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
    """Return 4xx for errors of the request, 503 while the store does not answer, 500 for damaged records."""
    if isinstance(error, (UnknownJob, OccurrenceForgotten)):
        return 404
    if isinstance(error, StoreCorrupt):
        return 500
    if isinstance(error, StoreError):
        return STORE_AWAY
    if isinstance(error, CoordinationError):
        return 409
    return 400 if isinstance(error, ConfigurationError) else 500
