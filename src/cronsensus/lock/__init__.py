"""Named locks with a token, on any store, on files, or at a majority of Redis servers."""

from cronsensus.lock.lease import Lease
from cronsensus.lock.lock import Lock

__all__ = ["Lease", "Lock"]
