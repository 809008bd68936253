"""Functions that tests run in processes of their own."""

import asyncio
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cronsensus.errors import Cancel, Retry, Skip
from cronsensus.run import Run, current_run

FOREVER = 3600


class Job:
    """What a decorator may leave in place of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return ["wrapped", function(*args, **kwargs)]

    return wrapper


def add(a: Any, b: Any) -> Any:
    return a + b


def length(value: Any) -> int:
    return len(value)


@Job
def wrapped_job(a: int) -> int:
    return a * 2


@Job
@logged
def wrapped_twice(a: int) -> Any:
    return a * 3


def shadowed() -> str:
    return "first"


first_shadowed = shadowed


def shadowed() -> str:  # type: ignore[no-redef]
    return "second"


def whoami() -> list[int]:
    return [os.getpid(), os.getppid(), os.getpgid(0)]


def about(run: Run) -> dict[str, Any]:
    return {
        "current": current_run() is run,
        "scheduled_for": str(run.scheduled_for),
        "attempt": run.attempt,
        "token": run.token,
        "key": run.key,
        "id": run.id,
        "job": run.job,
        "origin": run.origin.value,
    }


def shard(run: Run) -> list[int | None]:
    return [run.batch, run.shard, run.shards]


def surroundings() -> dict[str, Any]:
    return {
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "pythonpath": os.environ.get("PYTHONPATH"),
        "stdin": sys.stdin.read(),
    }


def talk(run: Run) -> None:
    print("printed")
    print("complained", file=sys.stderr)
    logging.getLogger("app").warning("logged %d\ud800", 1)
    subprocess.run(["echo", "from below"], check=True)
    run.progress(40, 100)
    sys.stdout.write("no end of line")


def chatter(lines: int) -> None:
    for number in range(lines):
        print(number)


def print_for_ever() -> None:
    while True:
        print("x" * 1000, flush=True)


def hurry(times: int, run: Run) -> None:
    for number in range(times):
        run.progress(number + 1, times)


def long_line() -> None:
    sys.stdout.write("x" * 10_000_000)
    print()
    print("after")


def background_print() -> None:
    subprocess.Popen(["sh", "-c", "sleep 30; echo late"])


def large() -> str:
    return "x" * 10_000_000


def fails() -> None:
    secret = "local variable"  # noqa: F841
    raise ValueError("the reason")


def controls(what: str) -> None:
    raise {"skip": Skip("empty"), "retry": Retry("not yet", after="5s"), "cancel": Cancel("enough")}[what]


def leaves(code: Any) -> None:
    sys.exit(code)


def dies(how: str) -> None:
    print("last words", file=sys.stderr)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(FOREVER)


def recurses() -> None:
    recurses()


def nonsense() -> None:
    os.write(int(sys.argv[1]), b"this is no message\n")
    time.sleep(FOREVER)


def closes_everything() -> None:
    os.closerange(3, 256)


def forks() -> str:
    if os.fork() == 0:
        return "from the copy"
    os.wait()
    return "from the first"


def waits() -> None:
    """Run until stopped; what it started is below it."""
    below = subprocess.Popen(["sleep", str(FOREVER)])
    print("pids", os.getpid(), below.pid, flush=True)
    time.sleep(FOREVER)


def waits_stubbornly() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    below = subprocess.Popen(["sleep", str(FOREVER)])  # it ignores the signal, too
    print("pids", os.getpid(), below.pid, flush=True)
    while True:
        time.sleep(FOREVER)


def waits_and_cleans_up(run: Run, path: str) -> None:
    try:
        print("waiting", flush=True)
        time.sleep(FOREVER)
    except Exception:  # noqa: BLE001
        Path(path).write_text("swallowed")
    finally:
        Path(path).write_text(f"lost={run.lease_lost.is_set()} {run.cancel_reason}")


async def waits_on_a_loop(run: Run, path: str) -> None:
    try:
        print("waiting", current_run() is run, flush=True)
        await asyncio.sleep(FOREVER)
    finally:
        await asyncio.sleep(0)
        Path(path).write_text("cleaned up")  # noqa: ASYNC240


def waits_for_file(path: str) -> str:
    print("waiting", flush=True)
    while not Path(path).exists():
        time.sleep(0.002)
    return "found"


async def async_add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def in_the_background() -> int:
    """Leave a thread behind."""
    threading.Thread(target=time.sleep, args=(FOREVER,), daemon=True).start()
    return os.getpid()


def not_json() -> Any:
    return {1, 2}


def leaves_traces(folder: str) -> None:
    os.chdir(folder)
    os.umask(0o007)
    os.environ["LEFT_BY_A_JOB"] = "1"
    os.environ.pop("HOME", None)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.signal(signal.SIGALRM, lambda number, _: os._exit(9))
    signal.setitimer(signal.ITIMER_REAL, 60)


def traces() -> list[object]:
    mask = os.umask(0o022)
    os.umask(mask)
    return [
        str(Path.cwd()), mask, os.environ.get("LEFT_BY_A_JOB"), "HOME" in os.environ,
        signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL, signal.SIGUSR2 in signal.pthread_sigmask(0, ()),
        signal.getitimer(signal.ITIMER_REAL), os.getpid(),
    ]  # fmt: skip
