"""What a shell of the project does in the tests; each function prints what it has seen."""

import json
import time
from datetime import timedelta

from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from shop import tasks
from shop.models import Order

try:
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:
    from django_tasks.exceptions import TaskResultDoesNotExist


def wait_for(results):
    until = time.monotonic() + 30
    while any(not result.is_finished for result in results):
        assert time.monotonic() < until, [result.status for result in results]
        time.sleep(0.05)
        for result in results:
            result.refresh()


def all_kinds():
    with transaction.atomic():
        order = Order.objects.create(item="a book")
        with CaptureQueriesContext(connection) as queries:
            made = tasks.send_invoice.enqueue(order.pk)
    lost = None
    try:
        with transaction.atomic():
            lost = tasks.send_invoice.enqueue(Order.objects.create(item="lost").pk)
            raise KeyError
    except KeyError:
        pass
    results = [
        made,
        tasks.with_context.enqueue(7),
        tasks.double.enqueue(21),
        tasks.fails.enqueue(1),
        tasks.double.using(run_after=timezone.now() + timedelta(seconds=0.5)).enqueue(number=4),
    ]
    wait_for(results)
    try:
        tasks.send_invoice.get_result(lost.id)
        gone = False
    except TaskResultDoesNotExist:
        gone = True
    until = time.monotonic() + 30
    while Order.objects.filter(item__startswith="synced").count() < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    synced = list(Order.objects.filter(item__startswith="synced").values_list("item", flat=True))
    print(json.dumps({
        "queries": len(queries),
        "gone": gone,
        "results": [[str(one.status), one._return_value, one.attempts] for one in results],
        "errors": [error.exception_class.__name__ for one in results for error in one.errors],
        "same": tasks.double.get_result(results[2].id).return_value,
        "invoices": Order.objects.get(pk=order.pk).invoices,
        "twice": len(synced) - len(set(synced)),
    }))  # fmt: skip
