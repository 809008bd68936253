"""Three consumers of one queue, of which one is killed, and a publisher that publishes everything twice.

python rabbitmq_consumers.py amqp://guest:guest@localhost    # starts all of it here, and kills one consumer
cronsensus consume rabbitmq_consumers:charge                  # what each machine would run, with CRONSENSUS_BROKER_URL
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pika
from sqlalchemy import Connection, create_engine, text

from cronsensus import Scheduler
from cronsensus.integrations.rabbitmq import Message, consumer

STORE = os.environ.get("CRONSENSUS_URL", "sqlite:///rabbitmq_consumers.db")
BROKER = "CRONSENSUS_BROKER_URL"
QUEUE = "rabbitmq_consumers"
PAYMENTS = 200

scheduler = Scheduler(STORE, lease="5s")


@consumer(scheduler, QUEUE, transaction=True)
def charge(connection: Connection, body: dict[str, int], message: Message) -> None:
    time.sleep(0.02)  # SQLite lets one write at a time
    connection.execute(text("INSERT INTO charges VALUES (:order, :cents)"), body)
    print(f"charged {message.message_id} in process {os.getpid()}", flush=True)


def publish_twice(broker: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        today = time.time_ns()  # or nothing would be left to do when this is started again
        for number in range(PAYMENTS):
            properties = pika.BasicProperties(message_id=f"{today}-{number}", delivery_mode=2)
            body = f'{{"order": {number}, "cents": 999}}'.encode()
            for _ in range(2):  # as a producer does that has got no answer
                channel.basic_publish("", QUEUE, body, properties, mandatory=True)


def start_consumer() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "cronsensus", "consume", "rabbitmq_consumers:charge"])


def main() -> None:
    if len(sys.argv) > 1:
        os.environ[BROKER] = sys.argv[1]
    broker = os.environ.setdefault(BROKER, "amqp://guest:guest@localhost")
    os.chdir(Path(__file__).parent)
    engine = create_engine(STORE)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS charges"))
        connection.execute(text("CREATE TABLE charges (number INTEGER, cents INTEGER)"))
    consumers = [start_consumer() for _ in range(3)]
    try:
        publish_twice(broker)
        charged, killed = 0, False
        while charged < PAYMENTS:
            time.sleep(0.2)
            with engine.connect() as connection:
                charged = connection.execute(text("SELECT count(*) FROM charges")).scalar_one()
            if charged >= PAYMENTS // 4 and not killed:
                print(f"killing process {consumers[0].pid}", flush=True)
                consumers[0].send_signal(signal.SIGKILL)
                killed = True
    finally:
        for one in consumers:
            one.terminate()
            one.wait()
    with engine.connect() as connection:
        counted = text("SELECT count(*), count(DISTINCT number) FROM charges")
        rows, orders = connection.execute(counted).one()
    print(f"{2 * PAYMENTS} messages, {rows} charges of {orders} orders")
    print(f"The ledger: cronsensus --url {STORE} runs list --job rabbitmq:{QUEUE}")


if __name__ == "__main__":
    main()
