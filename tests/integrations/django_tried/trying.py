"""What a shell of the project does in the tests; each function prints what it has seen."""

import html
import json
import re
import time
from datetime import timedelta

from django import VERSION
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from shop import tasks
from shop.models import Order

from cronsensus.integrations.django import periodic
from cronsensus.integrations.django.project import find_scheduler

try:
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_finished
except ImportError:
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_finished


def wait_for(results):
    until = time.monotonic() + 30
    while any(not result.is_finished for result in results):
        assert time.monotonic() < until, [result.status for result in results]
        time.sleep(0.05)
        for result in results:
            result.refresh()


def close_books():
    return None


def native_words():
    """Declare a task by the words that ``@task`` of 6.1 and of django-tasks passes on; 6.0 takes none."""
    if VERSION[:2] == (6, 0):
        print(json.dumps("6.0"))
        return
    nightly = tasks.task(cron="0 3 * * *", tz="Europe/Paris", retries=3)(close_books)
    scheduler = find_scheduler()
    spec = scheduler.declared.specs_by_name[nightly.module_path]
    print(json.dumps([scheduler.jobs[nightly.module_path].rule.describe(), spec.policies.retries]))


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


def in_the_admin():
    from django.contrib.admin.models import LogEntry
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    from cronsensus.integrations.django import scheduler
    from cronsensus.integrations.django.models import Job, Run

    User.objects.create_superuser("boss", password="x")
    viewer = User.objects.create_user("viewer", password="x", is_staff=True)
    viewer.user_permissions.add(*Permission.objects.filter(codename__in=["view_job", "view_run"]))
    failed = tasks.fails.enqueue(1)
    wait_for([failed])
    waits = tasks.double.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(2)
    place = "/admin/cronsensus_django/"
    boss, other = Client(), Client()
    boss.login(username="boss", password="x")
    other.login(username="viewer", password="x")
    job = Job.objects.get(name="shop.tasks.tick")
    run, waiting = (Run.objects.get(key=str(one.id)) for one in (failed, waits))
    pages = [
        boss.get(f"{place}{path}")
        for path in (
            "job/", "job/?q=tick", f"job/{job.pk}/change/", "run/", "run/?state=failed&origin=enqueue",
            f"run/?q={run.pk}", "run/?q=shop.tasks.fails", f"run/{run.pk}/change/",
        )
    ]  # fmt: skip

    def act(what, action, pk, reason, who=boss):
        chosen = {"action": action, "_selected_action": [pk], "reason": reason}
        page = who.post(f"{place}{what}/", chosen, follow=True).content.decode()
        return [html.unescape(text) for text in re.findall(r'<li class="(?:success|error|warning)">(.*?)</li>', page)]

    said = [
        act("job", "pause", job.pk, ""),
        act("job", "pause", job.pk, "too loud"),
        act("job", "pause", job.pk, "by a viewer", other),
        act("job", "resume", job.pk, ""),
        act("job", "run_now", job.pk, "to see it"),
        act("run", "retry", run.pk, "once more"),
        act("run", "cancel", waiting.pk, "not wanted"),
        act("run", "cancel", waiting.pk, "not wanted"),
    ]
    print(json.dumps({
        "pages": [page.status_code for page in pages],
        "error": "ValueError: no 1" in pages[-1].content.decode(),
        "attempts": re.findall(r"(\d+): [-0-9 :]+, [^,]+, (failed)", pages[-1].content.decode()),
        "found": [page.content.decode().count("<tr><td") for page in pages[4:7]],
        "said": said,
        "history": [entry.get_change_message() for entry in LogEntry.objects.order_by("id")],
        "trail": [[entry.by, entry.action, entry.why] for entry in scheduler.store.trail(limit=5)][::-1],
        "state": str(scheduler.store.occurrence(waiting.pk).state),
    }))  # fmt: skip


@periodic(retries=2, retry_delay="10ms")
@tasks.task(takes_context=True)
def third_time(context):
    if context.attempt < 3:
        raise ValueError(context.attempt)


@periodic(retries=1, retry_delay="10ms")
@tasks.task
async def never():
    raise ValueError


def finished_signals():
    from cronsensus.integrations.django import scheduler

    sent = []

    def keep(task_result, **_):
        if task_result.task.name in {"third_time", "never"}:
            sent.append([task_result.task.name, str(task_result.status), task_result.attempts])

    task_finished.connect(keep)
    with scheduler:
        for task in (third_time, never):
            wait_for([task.enqueue()])
    print(json.dumps(sent))


def verbs_in_atomic():
    from cronsensus.integrations.django import scheduler

    job = "shop.tasks.tock"
    begun = time.monotonic()
    with transaction.atomic():
        Order.objects.create(item="first")
        scheduler.pause(job, reason="in the transaction")
    paused = scheduler.store.job(job).paused_at is not None
    try:
        with transaction.atomic():
            scheduler.resume(job)
            raise KeyError
    except KeyError:
        pass
    still = scheduler.store.job(job).paused_at is not None
    print(json.dumps({"paused": paused, "still": still, "quick": time.monotonic() - begun < 4}))


def careless_calls():
    said = []
    for arguments in ((Order(pk=1),), (), (1,)):  # no migrate has made the tables
        try:
            with transaction.atomic():
                tasks.send_invoice.enqueue(*arguments)
        except Exception as error:  # noqa: BLE001 - its words are what is asked for
            said.append(f"{type(error).__name__}: {error}")
    print(json.dumps(said))
