"""The same crontab on every host: 0 3 * * * python /srv/shop/crontab_on_every_host.py"""

import os

from cronsensus import Scheduler, cron

scheduler = Scheduler("sqlite:///cronsensus.db")  # on several hosts "postgresql://…"; no node need run


@scheduler.once_per(cron("0 3 * * *", tz="Europe/Paris"))
def nightly() -> str:
    print(f"working in {os.getpid()}", flush=True)
    return "done"


if __name__ == "__main__":
    print(nightly())
