"""After an answer was lost: which runs are this session's that its node has not heard of. Floor 4.

A claim is not idempotent, because it cannot know what the caller got. But the store knows what a session holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

PAGE = 200


def unheard_of(store: Store, session: str, known: Collection[tuple[int, int]]) -> Iterator[Claim]:
    """Yield the claims of ``session`` whose (occurrence, token) are not among ``known``."""
    mine = OccurrenceFilter(states=(State.RUNNING,), session=session)
    page: list[Occurrence] = []
    while page := store.occurrences(mine, after=page[-1].id if page else None, limit=PAGE):
        for one in page:
            job = store.job(one.job) if (one.id, one.token) not in known else None
            if job is not None:
                yield _claim(one, job.spec, session)


def _claim(one: Occurrence, spec: JobSpec, session: str) -> Claim:
    return Claim(
        id=one.id,
        spec=spec,
        key=one.key,
        origin=one.origin,
        scheduled_for=one.scheduled_for,
        due_at=one.due_at,
        attempt=one.attempt,
        token=one.token,
        session=session,
        args=one.args,
        kwargs=one.kwargs,
        claimed_at=one.started_at or one.due_at,
        crashes=one.crashes,
        failures=one.failures,
    )
