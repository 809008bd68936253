"""An app of Celery in a Django project with django-celery-beat, as each machine runs it.

DJANGO_DB says where the project's database is, BROKER, BOX and CRONSENSUS_URL the others; SYNC how often all rows are
read anew, in seconds.
"""

import os

import django
from celery import Celery
from django.conf import settings

if not settings.configured:
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ["DJANGO_DB"],
                "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"},
            }
        },
        INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_beat"],
        USE_TZ=True,
        TIME_ZONE="UTC",
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()

if "SYNC" in os.environ:
    from django_celery_beat import schedulers

    schedulers.SCHEDULE_SYNC_MAX_INTERVAL = float(os.environ["SYNC"])

if "BROKER" in os.environ:
    from cronsensus.integrations.celery import configure

    box = os.environ["BOX"]
    app = Celery("celery_django", broker=os.environ["BROKER"], set_as_current=False)
    app.conf.update(
        timezone="UTC",
        result_expires=None,
        beat_max_loop_interval=1,
        broker_transport_options={"data_folder_in": box, "data_folder_out": box},
        redbeat_redis_url=os.environ.get("REDBEAT"),
        redbeat_key_prefix=os.environ.get("PREFIX", "redbeat:"),
        beat_schedule={"tick": {"task": "shop.tick", "schedule": 1.0}} if "REDBEAT" in os.environ else {},
    )
    if "LOCK" not in os.environ:
        app.conf.redbeat_lock_key = None
    configure(app, lease="3s")
