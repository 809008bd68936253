"""A page whose requests are transactions, and two databases."""

import asyncio
import contextlib
import json

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import connections, transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from shop import tasks
from shop.models import Order
from urls import urlpatterns

from cronsensus.integrations.django import scheduler
from cronsensus.model.occurrence import OccurrenceFilter


def order(request, number):
    Order.objects.create(item=f"order {number}")
    tasks.double.enqueue(number)
    if number % 2 == 0:
        raise ValueError(number)
    return HttpResponse("ok")


urlpatterns.append(path("order/<int:number>", order))


def enqueued():
    runs = scheduler.store.occurrences(OccurrenceFilter(job=tasks.double.module_path), limit=100)
    return sorted(run.args[0] for run in runs)


def requests():
    assert settings.DATABASES["default"]["ATOMIC_REQUESTS"]
    client = Client(raise_request_exception=False)
    codes = [client.get(f"/order/{number}").status_code for number in (1, 2, 3)]
    print(json.dumps([codes, enqueued()]))


async def enqueue_one():
    return await tasks.double.aenqueue(4)


def in_async():
    @sync_to_async
    def in_atomic(fails):
        with transaction.atomic():
            tasks.double.enqueue(5)
            if fails:
                raise KeyError

    async def main():
        await tasks.double.aenqueue(6)
        with contextlib.suppress(KeyError):
            await in_atomic(True)
        await in_atomic(False)

    asyncio.run(main())
    try:
        with transaction.atomic():
            async_to_sync(enqueue_one)()
            raise KeyError
    except KeyError:
        pass
    print(json.dumps(enqueued()))


def two_databases():
    for alias, number in (("default", 1), ("jobs", 2)):
        try:
            with transaction.atomic(using=alias):
                tasks.double.enqueue(number)
                raise KeyError
        except KeyError:
            pass
    with transaction.atomic(using="jobs"):
        tasks.double.enqueue(3)
    tables = connections["default"].introspection.table_names()
    print(json.dumps([enqueued(), any("cronsensus_jobs" in table for table in tables)]))
