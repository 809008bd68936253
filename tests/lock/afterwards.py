"""A program whose main thread is over while another one works on: ``afterwards.py WHERE TTL``.

That one locks, waits until the lease was renewed, and releases on an event loop; calls a guarded coroutine function;
and says at the end what it saw.
"""

import asyncio
import sys
import threading
import time

from cronsensus import Scheduler
from tests.lock.places import lock_at
from tests.servers.distance import patience

PATIENCE = patience(60.0)


async def locks(where: str, ttl: str) -> str:
    lock = lock_at(where, "name", ttl=ttl)
    async with lock as lease:
        left, until = lease.expires_in, time.monotonic() + PATIENCE
        while lease.expires_in <= left:  # it only falls, until it is renewed
            left = lease.expires_in
            if lease.lost.is_set() or time.monotonic() > until:
                return "lost"
            await asyncio.sleep(0.01)
    return "left held" if await lock.alocked() else "renewed and released"


async def guards(where: str) -> str:
    scheduler = Scheduler(where)

    @scheduler.once("k", name="guarded")
    async def guarded() -> str:
        return "guarded"

    return await guarded()


def work(where: str, ttl: str) -> None:
    threading.main_thread().join()
    said = [asyncio.run(locks(where, ttl))]
    if "," not in where:
        said.append(asyncio.run(guards(where)))
    print(", ".join(said))


if __name__ == "__main__":
    threading.Thread(target=work, args=sys.argv[1:]).start()
