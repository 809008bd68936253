"""Read an occurrence and what was made of it when somebody retried it."""

from __future__ import annotations

from cronsensus.model.occurrence import Occurrence
from cronsensus.stores.base import Store


def retry_chain(store: Store, first: Occurrence) -> list[Occurrence]:
    """Return an occurrence and its retries, as far as they are kept: each one's is the next."""
    chain = [first]
    while (number := chain[-1].retried_as) is not None:
        following = store.occurrence(number)
        # A store that lost its last moment gives a number to another one.
        if following is None or following.retry_of != chain[-1].id or following.job != first.job:
            break
        chain.append(following)
    return chain
