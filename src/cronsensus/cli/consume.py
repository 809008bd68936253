"""``cronsensus consume``: consumers of RabbitMQ, until a signal comes."""

from __future__ import annotations

import logging
import sys
import threading
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from cronsensus.cli.app import Application, apply_flags, import_module
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.output import print_message
from cronsensus.security.masking import mask

if TYPE_CHECKING:
    from cronsensus.integrations.rabbitmq import Consumer

    Consumers = dict[str, Consumer[..., Any]]

BROKER_VARIABLE = "CRONSENSUS_BROKER_URL"
_BROKER_SCHEMES = ("amqp://", "amqps://")


@click.command(cls=Command)
@click.argument("names", metavar="MODULE[:ATTR]…", nargs=-1, required=True)
@click.option(
    "--url",
    "broker",
    envvar=BROKER_VARIABLE,
    metavar="URL",
    help=f"The broker, such as amqp://user:password@host/vhost.  [env: {BROKER_VARIABLE}]  The store's --url goes "
    "before the command.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log lines for people or for programs.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    help="Least level to log.",
)
def consume(names: tuple[str, ...], broker: str | None, **flags: Any) -> None:
    """Consume queues of RabbitMQ: each message is run once, over all processes that consume.

    A module alone stands for all consumers in it. SIGTERM and Ctrl-C end it: what runs gets 10 seconds, what was
    fetched and not begun goes back to the broker. A broker or a store that is away is waited for.

    cronsensus consume shop:charge --url amqp://rabbit
    cronsensus --url postgresql://db/shop consume shop:charge shop:refund --url amqp://rabbit
    cronsensus consume shop --log-format json
    """
    from cronsensus.cli.log import start_logging
    from cronsensus.lifecycle.signals import StopSignals

    with StopSignals() as signals:
        consumers: Consumers = {}
        for name in names:
            consumers |= _find_consumers(name)
        _require_broker(broker, " ".join(names))
        assert broker is not None  # noqa: S101 - required
        for name, consumer in consumers.items():
            apply_flags(Application(consumer.scheduler, name), **{key: value for key, value in flags.items() if value})
        scheduler = next(iter(consumers.values())).scheduler
        settings = scheduler.settings
        start_logging(settings.log_format, settings.log_level, node=scheduler.node_name)
        if settings.log_level.lower() != "debug":
            # The library logs connections itself, in a line each.
            logging.getLogger("pika").setLevel(logging.CRITICAL)
        if settings.log_format == "text":
            for name, consumer in consumers.items():
                store = consumer.scheduler.settings.shown("url")
                print_message(f"{name}: queue {consumer.queue!r} at {mask(broker)}, store {store}; Ctrl-C ends it")
        _run_all(consumers, broker, signals)


def _require_broker(broker: str | None, names: str) -> None:
    store = Invocation.current().url
    if not broker and not (store or "").startswith(_BROKER_SCHEMES):
        raise CommandError(
            "no broker was named", then=f"cronsensus consume {names} --url amqp://…, or {BROKER_VARIABLE}"
        )
    swapped = f"cronsensus --url STORE consume {names} --url amqp://…: the store's goes before the command"
    if store is not None and store.startswith(_BROKER_SCHEMES):
        raise CommandError(f"{mask(store)!r} is no store", then=swapped)
    if broker and not broker.startswith(_BROKER_SCHEMES):
        raise CommandError(f"{mask(broker)!r} is no broker", then=swapped)


def _run_all(consumers: Consumers, broker: str, signals: Any) -> None:
    """Run each consumer on its own thread, until a signal comes or a consumer cannot go on."""
    errors: list[BaseException] = []

    def run(consumer: Consumer[..., Any]) -> None:
        try:
            consumer.run(broker)
        except BaseException as error:  # noqa: BLE001 - raised where the command ends
            errors.append(error)
        finally:
            signals.request_stop()

    threads = [threading.Thread(target=run, args=[consumer], name=name) for name, consumer in consumers.items()]
    for thread in threads:
        thread.start()
    signals.wait()
    for consumer in consumers.values():
        consumer.stop()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _find_consumers(name: str) -> Consumers:
    """Return the consumers that ``MODULE:ATTR`` or a module names.

    Raises:
        CommandError: there is none; says what to type.
    """
    from cronsensus.integrations.rabbitmq import Consumer

    module_name, colon, attribute = name.partition(":")
    if module_name.endswith(".py") or not all(part.isidentifier() for part in module_name.split(".")):
        raise CommandError(f"{name!r} is not MODULE:ATTR", then="write the module as Python imports it: shop:charge")
    try:
        module = import_module(module_name)
    except CommandError as error:
        before, _, last_part = module_name.rpartition(".")
        if colon or not before or not hasattr(sys.modules.get(before), last_part):
            raise
        raise CommandError(
            f"{name!r} is not MODULE:ATTR; did you mean '{before}:{last_part}'?",
            then=f"cronsensus consume {before}:{last_part}",
        ) from error
    consumers = {
        f"{module_name}:{variable}": value
        for variable, value in vars(module).items()
        if isinstance(value, Consumer) and (not colon or variable == attribute)
    }
    if consumers:
        return consumers
    names = [variable for variable, value in vars(module).items() if isinstance(value, Consumer)]
    next_step = " or ".join(f"cronsensus consume {module_name}:{variable}" for variable in names[:5])
    next_step = next_step or 'make one there: @consumer(scheduler, "payments"), from cronsensus.integrations.rabbitmq'
    if not colon:
        raise CommandError(f"there is no consumer in {module_name!r}", then=next_step)
    if not hasattr(module, attribute):
        close = get_close_matches(attribute, names, n=1)
        hint = f"; did you mean '{module_name}:{close[0]}'?" if close else ""
        raise CommandError(f"{module_name!r} has no attribute {attribute!r}{hint}", then=next_step)
    type_name = type(getattr(module, attribute)).__name__
    raise CommandError(f"{name!r} is of type {type_name}, not a consumer", then=next_step)
