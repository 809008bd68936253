"""One job after another: cronsensus run one_after_another:scheduler, in as many terminals as you like"""

from cronsensus import Run, Scheduler, every

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(every("3s"))  # in earnest cron("0 2 * * *", tz="Europe/Paris")
def extract(run: Run) -> int:
    print(f"{run.scheduled_for:%H:%M:%S} extract", flush=True)
    return 1200


@scheduler.job(after=[extract])  # for the same time, when that has succeeded; on any node
def load(run: Run) -> int:
    rows: int = run.upstream[extract].result
    print(f"{run.scheduled_for:%H:%M:%S} load {rows} rows", flush=True)
    return rows


@scheduler.job(after=[load], when="ended")  # whatever became of it
def notify(run: Run) -> None:
    print(f"{run.scheduled_for:%H:%M:%S} load has {run.upstream[load].verdict}", flush=True)
