"""A job that commits with my rows: python order_and_invoice.py book, and cronsensus run order_and_invoice:scheduler"""

import sqlite3
import sys
from contextlib import closing

from cronsensus import Scheduler

scheduler = Scheduler("sqlite:///shop.db")  # the database that has the orders


@scheduler.job()
def send_invoice(order: int) -> None:
    print(f"invoice of order {order}", flush=True)


def take_order(item: str) -> None:
    with closing(sqlite3.connect("shop.db")) as connection, connection:  # commits, or rolls back
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT)")
        [order] = connection.execute("INSERT INTO orders (item) VALUES (?) RETURNING id", [item]).fetchone()
        send_invoice.enqueue_in(connection, order)
        if item == "nothing":
            raise SystemExit("rolled back: neither the order nor its invoice")


if __name__ == "__main__":
    scheduler.define()
    take_order(sys.argv[1])
