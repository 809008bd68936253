"""A worker with a ``StartupCoordinator``: ``coordinating.py URL LOCK_DIR``, driven by lines on its input."""

import asyncio
import sys

from cronsensus.integrations.startup_coordinator import StartupCoordinator


def main() -> None:
    coordinator = StartupCoordinator(*sys.argv[1:])

    async def obey(command: str) -> bool:
        verb, name = command.split()
        return await (coordinator.acquire(name) if verb == "acquire" else coordinator.release(name))

    with asyncio.Runner() as runner:
        print("ready", flush=True)
        for line in sys.stdin:
            print(runner.run(obey(line)), flush=True)


if __name__ == "__main__":
    main()
