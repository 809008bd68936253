"""``cronsensus consume``, as it is typed: what it finds, what it refuses, and that a signal ends it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

SHOP = """
from cronsensus import Scheduler
from cronsensus.integrations.rabbitmq import consumer

scheduler = Scheduler("sqlite:///shop.db")

@consumer(scheduler, "QUEUE-1")
def charge(body: str) -> str:
    return f"charged {body}"

@consumer(scheduler, "QUEUE-2")
def refund(body: str) -> str:
    return f"refunded {body}"
"""


@pytest.mark.parametrize(
    ("arguments", "error", "following"),
    [
        (["shop:charge"], "no broker was named", "cronsensus consume shop:charge --url amqp://…"),
        (["shop:chrage"], "'shop' has no attribute 'chrage'; did you mean 'shop:charge'?", "consume shop:charge or"),
        (["shop:scheduler"], "'shop:scheduler' is of type Scheduler, not a consumer", "consume shop:charge or"),
        (["shop.py:charge"], "'shop.py:charge' is not MODULE:ATTR", "as Python imports it: shop:charge"),
        (["empty"], "there is no consumer in 'empty'", '@consumer(scheduler, "payments")'),
        (
            ["shop", "--url", "sqlite:///shop.db"],
            "'sqlite:///shop.db' is no broker",
            "--url STORE consume shop --url amqp",
        ),
        (["shop.charge"], "'shop.charge' is not MODULE:ATTR; did you mean 'shop:charge'?", "consume shop:charge"),
        (["shop:charge", "--url", ""], "no broker was named", "cronsensus consume shop:charge --url amqp://…"),
    ],
)
def test_what_cannot_be_consumed_is_refused_with_what_to_type(
    command: Callable[..., Any], write: Any, arguments: list[str], error: str, following: str
) -> None:
    write("shop.py", SHOP)
    write("empty.py", "")
    answer = command("consume", *arguments)
    assert answer.code == 2, answer
    assert error in answer.text
    assert following in answer.text


def test_the_broker_where_the_store_belongs_is_refused(command: Callable[..., Any], write: Any) -> None:
    write("shop.py", SHOP)
    answer = command("--url", "amqp://shop:secret@rabbit", "consume", "shop:charge")
    assert "'amqp://shop:***@rabbit' is no store next: cronsensus" in answer.text
    assert "the store's goes before the command" in answer.text


def test_all_consumers_of_a_module_run_until_a_signal_comes(rabbitmq_url: str, write: Any, empty_folder: Path) -> None:
    name = f"consume-{os.getpid()}-{time.monotonic_ns()}"
    write("shop.py", SHOP.replace("QUEUE", name))
    arguments = [sys.executable, "-m", "cronsensus", "consume", "shop"]
    environment = {**os.environ, "CRONSENSUS_BROKER_URL": rabbitmq_url}
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        queues = [f"{name}-1", f"{name}-2"]
        for queue in queues:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
            channel.basic_publish("", queue, b"7", pika.BasicProperties(message_id="m1"), mandatory=True)
        started = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            until = time.monotonic() + 30
            while read_ledger().count('"succeeded"') < len(queues):
                assert time.monotonic() < until
                assert started.poll() is None
                time.sleep(0.1)
            started.send_signal(signal.SIGTERM)
            _, printed = started.communicate(timeout=20)
        finally:
            started.kill()
        for queue in queues:
            for more in ("", ".failed", ".held"):
                channel.queue_delete(f"{queue}{more}")
    assert started.returncode == 0, printed
    assert f"shop:charge: queue '{name}-1' at amqp://guest:***@127.0.0.1" in printed
    assert "guest:guest" not in printed


def read_ledger() -> str:
    listed = [sys.executable, "-m", "cronsensus", "--url", "sqlite:///shop.db", "runs", "list", "-o", "json"]
    return subprocess.run(listed, capture_output=True, text=True, check=False).stdout
