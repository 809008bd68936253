"""Wait for a file: cronsensus run wait_for_file:scheduler"""

from pathlib import Path

from cronsensus import Scheduler, Snooze, cron

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.job(cron("0 6 * * mon-fri", tz="Europe/Paris"))
def import_orders() -> int:
    file = Path("orders.csv")
    if not file.exists():
        raise Snooze("no orders.csv yet", after="1s")  # in earnest "1m": on any node, and no slot is held meanwhile
    lines = len(file.read_text(encoding="utf-8").splitlines())
    print(f"imported {lines} orders", flush=True)
    return lines
