"""PgQueuer: ``N`` transactions, the job enqueued by the user's connection (psycopg's, awaited)."""

import asyncio
import sys

import committing
import evidence
import psycopg
from pgqueuer.db import PsycopgDriver
from pgqueuer.queries import Queries


async def main() -> None:
    async with await psycopg.AsyncConnection.connect(evidence.URL, autocommit=True) as connection:
        queries = Queries(PsycopgDriver(connection))
        await queries.install()
        await connection.execute(committing.TABLE)

        async def bare(number: int) -> None:
            async with connection.transaction():
                await connection.execute(committing.ROW, [number])

        async def enqueuing(number: int) -> None:
            async with connection.transaction():
                await connection.execute(committing.ROW, [number])
                await queries.enqueue("ship", str(number).encode(), 0)

        await committing.measure_async(int(sys.argv[1]), bare, enqueuing)


asyncio.run(main())
