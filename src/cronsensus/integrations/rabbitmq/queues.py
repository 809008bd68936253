"""The three queues of a consumer: its own, the queue for dead letters, and the delay queue."""

from __future__ import annotations

from typing import Any

from pika.exceptions import ChannelClosedByBroker

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.rabbitmq.options import DELAY_TTL, Options

_NOT_FOUND, _FORBIDDEN, _OTHER_ARGUMENTS = 404, 403, 406


def declare_queues(connection: Any, options: Options) -> None:
    """Declare the queues of a consumer, durable; each on its own channel, which a refusal closes.

    Raises:
        ConfigurationError: a queue exists with other arguments, must not be declared, or is missing.
    """
    queue_type = {"x-queue-type": options.type}
    _declare(connection, options, options.queue, queue_type if options.declare else None)
    if not _is_there(connection, options.dead_letter):  # its arguments are its owner's
        _declare(connection, options, options.dead_letter, queue_type)
    delay_arguments = {
        "x-message-ttl": int(DELAY_TTL.total_seconds() * 1000),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": options.queue,
    }
    if options.type == "quorum":
        # A message leaves the delay queue only when the other queue has it.
        delay_arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    _declare(connection, options, options.held_queue, queue_type | delay_arguments)


def _declare(connection: Any, options: Options, queue: str, arguments: dict[str, Any] | None) -> None:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, durable=True, passive=arguments is None, arguments=arguments)
    except ChannelClosedByBroker as error:
        raise _explain(error, options, queue) from error
    channel.close()


def _is_there(connection: Any, queue: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code == _NOT_FOUND:
            return False
        raise
    channel.close()
    return True


def _explain(error: ChannelClosedByBroker, options: Options, queue: str) -> ConfigurationError:
    match error.reply_code:
        case code if code == _OTHER_ARGUMENTS and queue == options.queue:
            text = (
                f"is there with other arguments ({error.reply_text}): declare=False takes it as it is, or name its type"
            )
        case code if code == _OTHER_ARGUMENTS:
            text = f"is there with other arguments ({error.reply_text}): delete it when it is empty, or name its type"
        case code if code == _NOT_FOUND:
            text = "is not there, and declare=False makes none: declare it, or leave declare out"
        case code if code == _FORBIDDEN:
            text = f"may not be declared by this user ({error.reply_text}): set_permissions for all queues of its name"
        case _:
            text = f"cannot be declared: {error.reply_code} {error.reply_text}"
    return ConfigurationError(f"{queue!r} {text}")
