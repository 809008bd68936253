"""Messages of Celery: a copy for later, and those that a dead worker had fetched from Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from cronsensus.errors import InvalidOption
from cronsensus.integrations.celery.part import is_guarded
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import parse_instant

_log = Logger("cronsensus.celery")

_CLOCK = SystemClock()
PAGE = 1000
"""Messages that are read at a time."""


def publish_copy(task: Any, *, countdown: float, headers: dict[str, Any]) -> None:
    """Send the message of the running task once more, under its id, to come after ``countdown`` seconds.

    With the arguments of the message: a ``__call__`` of the task's own may have passed others on.
    """
    request = task.request
    known = {name: value for name, value in (request.headers or {}).items() if name not in headers}
    copy = task.signature_from_request(
        request, countdown=countdown, retries=request.retries, headers={**known, **headers}
    )
    copy.apply_async()


def restore_unacked(app: Any, find_running: Callable[[], Collection[str]], restored: set[str]) -> int | None:
    """Restore messages that workers had fetched from Redis and that nobody runs; return how many.

    Redis itself restores them after the visibility timeout, an hour. Redis does not know who has fetched a message, so
    only messages of guarded tasks of this app are restored, and none that waits for its time (``countdown``, ``eta``).
    A message that a live worker has fetched and not begun may be among them: then it is there twice, and the guard
    lets its task run once.

    Args:
        app: the app.
        find_running: returns the ids of the tasks that run anywhere.
        restored: the delivery tags of messages that were restored already, and are left alone. Those that this call
            restores are added: a live worker fetches them at once, and they are read again, under the same tags.

    Returns:
        ``None``: the broker is not Redis, and does this itself.
    """
    guarded = {name for name, task in app.tasks.items() if is_guarded(task)}
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        if not hasattr(channel, "unacked_key"):
            return None
        count = first = 0
        with channel.conn_or_acquire() as client:
            running = find_running()
            while tags := client.zrange(channel.unacked_index_key, first, first + PAGE - 1):
                left = [
                    tag for tag, headers in _read_fetched(channel, client, tags)
                    if tag not in restored and headers.get("task") in guarded
                    and headers.get("id") not in running and not _waits(headers)
                ]  # fmt: skip
                for tag in left:
                    channel.qos.restore_by_tag(tag, client)
                restored.update(left)
                count += len(left)
                first += len(tags) - len(left)
        return count


def _waits(headers: dict[str, Any]) -> bool:
    """Whether a message must not start yet."""
    try:
        return parse_instant(str(headers["eta"])) > _CLOCK.now()
    except (KeyError, InvalidOption):  # it has no time, or a time without a zone
        return False


def _read_fetched(channel: Any, client: Any, tags: Sequence[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return delivery tags with the headers of their messages."""
    # kombu's client puts its global_keyprefix before the keys of few commands; these are among them.
    with client.pipeline(transaction=False) as pipe:
        for tag in tags:
            pipe.hget(channel.unacked_key, tag)
        fetched = pipe.execute()
    headers_by_tag = []
    for tag, raw in zip(tags, fetched, strict=True):
        try:
            headers = json.loads(raw)[0].get("headers") or {}
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            _log.debug("a message that is gone, or of another form, is left alone: %s", error)
            continue
        headers_by_tag.append((tag.decode() if isinstance(tag, bytes) else str(tag), headers))
    return headers_by_tag
