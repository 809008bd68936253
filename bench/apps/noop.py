"""Jobs that do nothing: one on the event loop, one on threads."""

from cronsensus import Scheduler

scheduler = Scheduler()


@scheduler.job()
async def noop(number: int) -> None:
    """Do nothing."""


@scheduler.job()
def plain(number: int) -> None:
    """Do nothing."""
