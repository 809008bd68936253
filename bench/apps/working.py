"""Long runs, enqueued one at a time; each attempt writes a line when it begins and when it ends."""

import asyncio
import os
import time

import cronsensus.membership.liveness
import cronsensus.node.decide
from cronsensus import Run, Scheduler

known = os.environ.get("EVIDENCE_OF_DEATH", "pid")
if known == "server":
    # As on a host of its own: no pid of the others means anything here.
    cronsensus.membership.liveness.host_identity = lambda: f"host of {os.getpid()}"  # type: ignore[assignment,attr-defined]
if os.environ.get("QUIET"):
    # As if nothing had run for a while: nodes that nobody tells look seldomer then.
    cronsensus.node.decide.RECENTLY_ACTIVE = -1.0
scheduler = Scheduler(fast_evidence=known != "none")
evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def say(event: str, run: Run) -> None:
    """Write one line: event, key, attempt, token, pid, monotonic seconds (one clock for all processes of a host)."""
    line = f"{event} {run.key} {run.attempt} {run.token} {os.getpid()} {time.monotonic():.6f}\n"
    os.write(evidence, line.encode())


@scheduler.job()
def work(run: Run, seconds: float) -> None:
    """Take a while, in a thread."""
    say("begin", run)
    run.cancelled.wait(seconds)
    say("end", run)


@scheduler.job()
async def work_async(run: Run, seconds: float) -> None:
    """Take a while, on the event loop."""
    say("begin", run)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        say("cancelled" + ("-lease-lost" if run.lease_lost.is_set() else ""), run)
        raise
    say("end", run)
