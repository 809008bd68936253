"""The same job on huey's SQLite storage."""

import os

from huey import SqliteHuey

huey = SqliteHuey(filename=os.environ["HUEY_FILE"], fsync=os.environ.get("HUEY_FSYNC", "1") == "1", results=True)


@huey.task()
def noop(number: int) -> int:
    """Return something, so that huey records a result as we do."""
    return number
