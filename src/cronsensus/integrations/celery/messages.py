"""Messages of Celery: a copy for later, and those that a dead worker had fetched from Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from cronsensus.process.logger import Logger

_log = Logger("cronsensus.celery")

MOST_RESTORED = 1000
"""Most messages that are given back at one death."""


def publish_copy(task: Any, args: Any, kwargs: Any, *, countdown: float, headers: dict[str, Any]) -> None:
    """Send the message of the running task once more, under its id, to come after ``countdown`` seconds."""
    request = task.request
    known = {name: value for name, value in (request.headers or {}).items() if name not in headers}
    copy = task.signature_from_request(
        request, args, kwargs, countdown=countdown, retries=request.retries, headers={**known, **headers}
    )
    copy.apply_async()


def restore_unacked(app: Any, find_running: Callable[[], Collection[str]]) -> int | None:
    """Give back what workers had fetched from Redis and nobody runs; return how many messages.

    Redis itself gives them back after the visibility timeout, an hour. A message that a living worker has fetched and
    not begun is among them: it is then there twice, and its task runs once, by the guard.

    Args:
        app: the app.
        find_running: gives the ids of the tasks that run somewhere.

    Returns:
        ``None``: the broker is another one, which does this itself.
    """
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        if not hasattr(channel, "unacked_key"):
            return None
        with channel.conn_or_acquire() as client:
            fetched = _read_fetched(channel, client)
            running = find_running()
            left = [tag for tag, task in fetched if task not in running]
            for tag in left:
                channel.qos.restore_by_tag(tag, client)
        return len(left)


def _read_fetched(channel: Any, client: Any) -> list[tuple[str, str]]:
    """Return delivery tags with the ids of their tasks, the oldest first."""
    # kombu's client puts its global_keyprefix before the keys of few commands; these are among them.
    tags = client.zrange(channel.unacked_index_key, 0, MOST_RESTORED - 1)
    with client.pipeline(transaction=False) as pipe:
        for tag in tags:
            pipe.hget(channel.unacked_key, tag)
        fetched = pipe.execute()
    found = []
    for tag, raw in zip(tags, fetched, strict=True):
        if raw is None:
            continue
        try:
            task = (json.loads(raw)[0].get("headers") or {}).get("id")
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            _log.debug("a message of another form is left alone: %s", error)
            continue
        if task is not None:
            found.append((tag.decode() if isinstance(tag, bytes) else str(tag), str(task)))
    return found
