"""A job that does nothing."""

from cronsensus import Scheduler

scheduler = Scheduler()


@scheduler.job()
async def noop(number: int) -> None:
    """Do nothing."""
