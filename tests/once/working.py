"""A master and its workers, as gunicorn has them: ``working.py URL KIND WORKERS KILLS SEED TABLE``.

All workers call the guarded function in the same instant; the master kills some that run it, and some that wait. It
writes what it saw as JSON. KIND: ``once``, ``effects`` (with a transaction), ``wait`` or ``watch`` (start-up tasks, of
which killed workers are replaced only in the first).
"""

import contextlib
import json
import os
import random
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from sqlalchemy import text

from cronsensus import Scheduler, open_store
from cronsensus.once import claims as _claims
from cronsensus.stores import sql as _sql
from cronsensus.stores.sql.mysql import mysql_driver as _mysql
from cronsensus.stores.sql.postgres import postgres_driver as _postgres
from tests.scratch import import_before_forks
from tests.servers.distance import patience

SECONDS = round(patience(60))
IMPORTED = (_claims, _sql)
# Fifty processes on two processors may pause in the middle of a transaction for longer than a healthy one does.
_mysql.VERB_IDLE_SECONDS = _postgres.VERB_IDLE_SECONDS = SECONDS  # type: ignore[attr-defined]


def work(url: str, kind: str, table: str, say: Callable[..., None], stop: int) -> None:
    """Be a worker."""
    scheduler = Scheduler(url)

    def run(conn: object = None) -> int:
        say("begin")
        if table != "-":
            conn.execute(text(f"INSERT INTO {table} VALUES ('{os.getpid()}')"))  # type: ignore[attr-defined]
        threading.Event().wait(random.random() * 0.04)
        say("end")
        return os.getpid()

    if kind in {"once", "effects"}:
        guarded = scheduler.once("k", name="run", transaction=kind == "effects", max_crashes=1000)(run)  # type: ignore[call-overload]
        say("result", guarded())
        return
    scheduler.startup(wait=kind == "wait", name="run")(run)
    scheduler.run_startup()
    say("started")
    os.read(stop, 1)
    for thread in threading.enumerate():
        if thread.name == "cronsensus-startup":
            thread.join(20)  # it may be recording the end just now


def main() -> None:
    url, kind, workers, kills, seed, table = sys.argv[1:]
    chance, left = random.Random(int(seed)), int(kills)
    go, stop, news = os.pipe(), os.pipe(), os.pipe()
    alive: set[int] = set()
    killed: list[int] = []
    lines: list[list[str]] = []

    def begin() -> None:
        pid = os.fork()
        if pid:
            alive.add(pid)
            return
        try:
            for end in (go[1], stop[1], news[0]):
                with contextlib.suppress(OSError):  # a worker that replaces another finds them closed
                    os.close(end)
            random.seed(os.getpid())

            def say(*words: object) -> None:
                os.write(news[1], f"{os.getpid()} {' '.join(map(str, words))}\n".encode())

            os.read(go[0], 1)
            try:
                work(url, kind, table, say, stop[0])
            except BaseException as error:  # noqa: BLE001 - told
                traceback.print_exc()
                say("error", repr(error))
        finally:
            os._exit(0)

    def kill(pid: int) -> None:
        if pid in alive and pid not in killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    # Before the fork, or each worker would do it: importing. Nothing is connected yet.
    Scheduler(url).once("k", name="imported")(main)
    open_store(url)
    import_before_forks(url)
    for _ in range(int(workers)):
        begin()
    signal.alarm(SECONDS)
    os.close(go[1])
    rest, is_over = b"", False
    heard = True
    while alive or heard:
        heard = bool(select.select([news[0]], [], [], 0.02)[0])
        if heard:
            rest += os.read(news[0], 65536)
        *found, rest = rest.split(b"\n")
        for line in found:
            words = line.decode().split(" ", 2)
            lines.append(words)
            if words[1] == "begin" and left > 0 and (not killed or chance.random() < 0.8):
                left -= 1
                threading.Event().wait(chance.random() * 0.06)
                kill(int(words[0]))
                if kind in {"once", "effects"} and len(alive) > 5:
                    kill(chance.choice(sorted(alive)))
        for pid in list(alive):
            if os.waitpid(pid, os.WNOHANG)[0]:
                alive.discard(pid)
                if pid in killed and kind == "wait":
                    begin()
        told = {int(words[0]) for words in lines if words[1] in {"started", "error"}}
        if not is_over and alive <= told:
            is_over = True
            os.close(stop[1])
    print(json.dumps({"lines": lines, "killed": killed}))


if __name__ == "__main__":
    main()
