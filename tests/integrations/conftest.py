"""What the tests of consumers of RabbitMQ share, and those of projects of Django's."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import make_url

from tests.integrations.rabbitmq_queue import Ledger, Queue
from tests.scratch import scratch_folder


@pytest.fixture
def queue(rabbitmq_url: str) -> Iterator[Queue]:
    queue = Queue(rabbitmq_url)
    yield queue
    queue.close()


@pytest.fixture
def ledger(queue: Queue) -> Iterator[Ledger]:
    with scratch_folder() as folder:
        ledger = Ledger(folder, queue)
        yield ledger
        ledger.other._opened.close()


@pytest.fixture
def django_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """Make a database: Django has its tables in the schema ``public``."""
    name = f"django_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield make_url(postgres_server_url).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name}")  # which nobody may have a connection to


@pytest.fixture
def django_mysql_url(mysql_url: str) -> str:
    """Return a URL with an empty database."""
    return mysql_url
