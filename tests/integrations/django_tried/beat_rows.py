"""Rows of django-celery-beat of each kind."""

from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule


def fill():
    both = CrontabSchedule.objects.create(minute="0", hour="0", day_of_month="13", day_of_week="5")
    nightly = CrontabSchedule.objects.create(minute="0", hour="3", day_of_week="mon-fri", timezone="Europe/Paris")
    often = IntervalSchedule.objects.create(every=90, period="seconds")
    later = ClockedSchedule.objects.create(clocked_time="2099-01-01T12:00:00Z")
    over = ClockedSchedule.objects.create(clocked_time="2001-01-01T12:00:00Z")
    sunset = SolarSchedule.objects.create(event="sunset", latitude=1, longitude=1)
    plain = {"task": "shop.tasks.double", "args": "[1]"}
    for name, more in {
        "both": {"crontab": both},
        "close the day": {"crontab": nightly, "kwargs": '{"number": 2}', "args": "[]", "expire_seconds": 300},
        "disabled": {"interval": often, "enabled": False},
        "expired": {"interval": often, "expires": "2001-01-01T12:00:00Z"},
        "later": {"clocked": later, "one_off": True, "queue": "slow"},
        "often": {"interval": often, "priority": 3, "start_time": "2020-01-01T12:00:00Z"},
        "once": {"interval": often, "one_off": True},
        "over": {"clocked": over, "one_off": True},
        "sunset": {"solar": sunset},
        "unknown": {"interval": often, "task": "shop.tasks.gone"},
        "wants context": {"interval": often, "task": "shop.tasks.with_context"},
    }.items():
        PeriodicTask.objects.create(name=name, **plain | more)
    print(PeriodicTask.objects.count())
