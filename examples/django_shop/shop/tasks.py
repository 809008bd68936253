"""Tasks: called by their functions' path, some with a schedule."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from django.db.models import F

from cronsensus import cron
from cronsensus.integrations.django import periodic
from shop.models import Order


@periodic(retries=2, retry_delay="10ms")
@task
def send_invoice(order):
    Order.objects.filter(pk=order).update(invoices=F("invoices") + 1)
    return f"invoice of order {order}"


@task(takes_context=True, priority=3)
def with_context(context, number):
    return [context.attempt, number]


@task
async def double(number):
    return number * 2


@task
def fails(number):
    raise ValueError(f"no {number}")


@periodic(cron("* * * * * *"), overlap="skip")
@task
def tick():
    return "tick"


@periodic(cron("* * * * * *"), retries=1)
@task
def tock():
    return "tock"
