"""A process that has a name, and forks: ``forked_coordinator.py FOLDER``."""

import asyncio
import os
import sys

from cronsensus.integrations.startup_coordinator import StartupCoordinator


def main() -> None:
    coordinator = StartupCoordinator(f"sqlite:///{sys.argv[1]}/x.db", lock_dir=sys.argv[1])
    assert asyncio.run(coordinator.acquire("warm"))
    held, released = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        print(asyncio.run(coordinator.acquire("warm")), flush=True)  # the parent has it
        os.write(held[1], b"x")
        os.read(released[0], 1)
        print(asyncio.run(coordinator.acquire("warm")), flush=True)
        print(asyncio.run(coordinator.release("warm")), flush=True)
        os._exit(0)
    os.read(held[0], 1)
    print(asyncio.run(coordinator.release("warm")), flush=True)
    os.write(released[1], b"x")
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
