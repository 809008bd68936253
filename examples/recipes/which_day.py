"""Which day is it for this run: cronsensus run which_day:scheduler"""

from datetime import timedelta

from cronsensus import Run, Scheduler, cron

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(cron("0 2 * * *", tz="Europe/Paris"), catch_up="all", catch_up_window="7d", overlap="queue", retries=3)
def export(run: Run) -> str:
    due = run.local_time  # the nominal time in the schedule's zone: not the time at which it happens to run
    assert due is not None  # it is None for a run that was started by hand
    day = due.date() - timedelta(days=1)
    print(f"exporting {day}", flush=True)
    return day.isoformat()
