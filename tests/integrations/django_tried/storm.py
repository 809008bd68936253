"""What the test of a storm has in the shop: a page that orders, and the task that ships."""

import json

from django.db import transaction
from django.db.models import F
from django.http import HttpResponse
from django.urls import path
from shop.models import Order
from shop.tasks import task
from urls import urlpatterns

from cronsensus import current_run
from cronsensus.integrations.django import atomic, scheduler
from cronsensus.model.occurrence import OccurrenceFilter


@task(retries=3, retry_delay="100ms")
def ship(number):
    with atomic(current_run()):
        assert Order.objects.filter(item=f"order {number}").update(invoices=F("invoices") + 1) == 1


class ChangedTheirMind(Exception):
    pass


def order(request, number):
    try:
        with transaction.atomic():
            Order.objects.create(item=f"order {number}")
            ship.enqueue(number)
            if number % 2 == 0:
                raise ChangedTheirMind
    except ChangedTheirMind:
        return HttpResponse("rolled back")
    return HttpResponse("committed")


urlpatterns.append(path("order/<int:number>", order))


def counts():
    orders = Order.objects.filter(item__startswith="order ").values_list("item", "invoices")
    runs = scheduler.store.occurrences(OccurrenceFilter(job=ship.module_path), limit=100_000)
    print(json.dumps({
        "shipped": {item.split()[1]: times for item, times in orders},
        "runs": [[run.args[0], str(run.state)] for run in runs],
    }))  # fmt: skip
