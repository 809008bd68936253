"""Be told when it did not run: cronsensus run told_when_it_did_not_run:scheduler"""

from collections.abc import Sequence

from cronsensus import Alert, Scheduler, every
from cronsensus.alerts.events import Event


def tell(events: Sequence[Event]) -> None:  # called once for the whole cluster, on one node
    for event in events:
        print(f"{event.job}: {event.count} {event.event}, since {event.scheduled_for or event.at:%H:%M:%S}", flush=True)


# In place of a function: "https://hooks.example/…", "mailto://ops@example.org", "slack://…"
scheduler = Scheduler("sqlite:///cronsensus.db", alerts=[Alert(tell, on=["failed", "missed", "overdue"], name="tell")])


@scheduler.job(every("1s"), catch_up="none")  # in earnest cron("0 2 * * *", tz="Europe/Paris"), overdue="26h"
def backup() -> None:
    print("backup done", flush=True)
