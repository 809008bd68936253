"""Procrastinate: ``N`` transactions, the job on the user's connection."""

import sys

import committing
import evidence
import psycopg
from procrastinate import App, SyncPsycopgConnector

app = App(connector=SyncPsycopgConnector(conninfo=evidence.URL))


@app.task(name="ship")
def ship(number: int) -> None: ...


with app.open(), psycopg.connect(evidence.URL) as connection:
    app.schema_manager.apply_schema()
    connection.execute(committing.TABLE)
    connection.commit()

    def bare(number: int) -> None:
        connection.execute(committing.ROW, [number])
        connection.commit()

    def enqueuing(number: int) -> None:
        connection.execute(committing.ROW, [number])
        ship.configure(connection=connection).defer(number=number)
        connection.commit()

    committing.measure(int(sys.argv[1]), bare, enqueuing)
