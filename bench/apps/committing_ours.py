"""Ours: ``KIND N`` transactions of one row, and as many with a run in each, by turns."""

import os
import sqlite3
import sys
from typing import Any

import committing
from sqlalchemy import create_engine, make_url

from cronsensus import Scheduler

URL, KIND, TIMES = os.environ["BENCH_URL"], sys.argv[1], int(sys.argv[2])
DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
scheduler = Scheduler(URL)


@scheduler.job()
def ship(number: int) -> None: ...


def connect() -> Any:
    """Open a connection as the user does: of the driver's, or SQLAlchemy's."""
    url = make_url(URL)
    if KIND == "sqlalchemy":
        return create_engine(url.set(drivername=DRIVERS[url.get_backend_name()])).connect()
    if url.get_backend_name() == "sqlite":
        return sqlite3.connect(str(url.database))
    if url.get_backend_name() == "mysql":
        import pymysql

        return pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, password=url.password or "", database=url.database
        )
    import psycopg

    return psycopg.connect(URL)


scheduler.define()
connection = connect()
run = connection.exec_driver_sql if KIND == "sqlalchemy" else connection.cursor().execute
run(committing.TABLE)
connection.commit()
ROW = committing.ROW.replace("%s", "?") if URL.startswith("sqlite") else committing.ROW


def bare(number: int) -> None:
    """Write a row."""
    run(ROW, (number,))
    connection.commit()


def enqueuing(number: int) -> None:
    """Write a row and a run."""
    run(ROW, (number,))
    ship.enqueue_in(connection, number)
    connection.commit()


committing.measure(TIMES, bare, enqueuing)
scheduler.stop()
