"""What the nodes of the test of enqueuing in transactions run, and the writers that they serve: a row, and its run."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from contextlib import suppress

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from cronsensus import Run, Scheduler
from cronsensus.errors import StoreError

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
THREADS = 5
scheduler = Scheduler()


@scheduler.job()
def ship(order: int, run: Run) -> int:
    with run.transaction() as connection:
        connection.execute(text("INSERT INTO shipped (number) VALUES (:order)"), {"order": order})
        return run.complete(order)


def say(line: str) -> None:
    """Write a line at once, so that another thread's cannot come between."""
    os.write(1, f"{line}\n".encode())


def write(url: str, first: int, count: int, *, dies: bool) -> None:
    """Write ``count`` orders in as many transactions, of which every second one is rolled back.

    Half of the runs have a key, which one that is rolled back shares with the next; one in four asks for it twice. A
    process that ``dies`` ends itself in the middle, between the row and the commit.
    """
    read = make_url(url)
    plain = read.set(drivername=DRIVERS[read.get_backend_name()]).difference_update_query(["schema", "busy_timeout"])
    engine = create_engine(plain, poolclass=NullPool)
    numbers = iter(range(first, first + count))
    taking = threading.Lock()
    dice = random.Random(first)
    last = first + count // 2 if dies else -1

    def work() -> None:
        while True:
            with taking:
                number = next(numbers, None)
            if number is None:
                return
            while not write_one(number):
                threading.Event().wait(dice.uniform(0.001, 0.02))

    def write_one(number: int) -> bool:
        with engine.connect() as connection:
            try:
                connection.execute(text("INSERT INTO orders (number) VALUES (:number)"), {"number": number})
                shared = number | 1 if number % 4 < 2 else None
                key, order = (f"order:{shared}", shared) if shared else (None, number)
                ship.options(key=key).enqueue_in(connection, order)
                if number % 8 == 1:
                    ship.options(key=key).enqueue_in(connection, order)
                if number == last:
                    os.kill(os.getpid(), signal.SIGKILL)
                if number % 2:
                    connection.commit()
                else:
                    connection.rollback()
            except (StoreError, SQLAlchemyError) as error:
                with suppress(SQLAlchemyError):
                    connection.rollback()
                say(f"again {type(error).__name__}: {error}"[:300])
                return False
        if number % 2:
            say(f"committed {number}")
        return True

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    scheduler.configure({"url": sys.argv[1]})
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), dies=sys.argv[4] == "dies")
    scheduler.stop()
