"""A consumer of RabbitMQ whose messages run once, although a broker delivers them at least once.

::

    @consumer(scheduler, "payments")
    def charge(body: Payment) -> None: ...


    charge.run("amqp://rabbit")
"""

from cronsensus.errors import MissingExtra

try:
    import pika  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        'a consumer of RabbitMQ needs pika, which is not installed; type: pip install "cronsensus[rabbitmq]"'
    ) from error

from cronsensus.integrations.rabbitmq.consumer import Consumer, consumer
from cronsensus.integrations.rabbitmq.messages import Message

__all__ = ["Consumer", "Message", "consumer"]
