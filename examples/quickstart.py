"""The smallest example: two jobs. Start it in as many terminals as you like: python examples/quickstart.py"""

from cronsensus import Run, Scheduler, cron, every

scheduler = Scheduler("sqlite:///quickstart.db")


@scheduler.job(every("2s"))
def hello(run: Run) -> None:
    print(f"{run.scheduled_for:%H:%M:%S} hello from one of us")


@scheduler.job(cron("*/15 * * * * *"), timeout="10s", retries=3)
async def every_quarter_minute() -> str:
    return "kept in the ledger: cronsensus runs list --url sqlite:///quickstart.db"


if __name__ == "__main__":
    scheduler.run()
