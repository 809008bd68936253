"""The same job on huey's SQLite storage."""

import os

from huey import SqliteHuey

# As it comes: WAL, and SQLite's own synchronous=FULL, which is ours too. Only filling the queue may be careless.
huey = SqliteHuey(filename=os.environ["HUEY_FILE"], fsync=False if "HUEY_FILL" in os.environ else None)


@huey.task()
def noop(number: int) -> int:
    """Return something, so that huey records a result as we do."""
    return number
