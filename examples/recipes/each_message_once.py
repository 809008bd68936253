"""Each message once: python each_message_once.py m-1 9.99, as often and wherever you like"""

import os
import sys

from cronsensus import Scheduler

scheduler = Scheduler("sqlite:///cronsensus.db")  # no node need run


@scheduler.once(key="{message_id}", keep="7d")
def charge(message_id: str, amount: float) -> str:
    print(f"charging {amount} in {os.getpid()}", flush=True)
    return f"receipt of {message_id}"


if __name__ == "__main__":
    print(charge(sys.argv[1], float(sys.argv[2])))
