"""A job whose rows commit with its end."""

from cronsensus import Run, every
from cronsensus.integrations.django import atomic, scheduler
from shop.models import Order


@scheduler.job(every("1s"))
def sync(run: Run) -> None:
    with atomic(run):
        Order.objects.create(item=f"synced {run.scheduled_for}")
