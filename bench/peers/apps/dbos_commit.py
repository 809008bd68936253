"""DBOS: ``N`` transactions, the workflow enqueued on the user's connection (SQLAlchemy's)."""

import sys

import committing
import evidence
from dbos import DBOS, DBOSClient
from sqlalchemy import create_engine

DBOS(config={"name": "bench", "system_database_url": evidence.URL, "application_version": "bench"})
DBOS.launch()
DBOS.register_queue("bench")
DBOS.destroy()
client = DBOSClient(system_database_url=evidence.URL)
engine = create_engine(evidence.URL.replace("postgresql://", "postgresql+psycopg://"))
with engine.connect() as connection:
    connection.exec_driver_sql(committing.TABLE)
    connection.commit()

    def bare(number: int) -> None:
        connection.exec_driver_sql(committing.ROW, (number,))
        connection.commit()

    def enqueuing(number: int) -> None:
        connection.exec_driver_sql(committing.ROW, (number,))
        options = {"queue_name": "bench", "workflow_name": "ship"}
        client.enqueue_in_transaction(connection, options, number)
        connection.commit()

    committing.measure(int(sys.argv[1]), bare, enqueuing)
client.destroy()
