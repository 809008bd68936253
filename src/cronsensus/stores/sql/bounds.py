"""How long a transaction may stand still before the server ends it."""

from __future__ import annotations

VERB_IDLE_SECONDS = 2.0
"""Most seconds between two statements of a transaction of ours, one verb of the store.

A process that is frozen in the middle of a verb holds locks, and what waits for them must not wait for a whole lease.
"""
USER_TRANSACTION_IDLE_SECONDS = 60
"""Most seconds between two statements of a transaction that a user's code has open, if the server sets no limit.

The locks of a node that stands still would keep the run's next attempt waiting for ever.
"""
