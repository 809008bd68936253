"""A process that holds a lock and says what it sees: ``holding URL NAME TTL WHAT``, driven by lines on its input."""

import os
import sys
import threading

from cronsensus import CronsensusError, Lock
from tests.lock.places import be_patient, lock_at


def say(word: object) -> bool:
    os.write(1, f"{word}\n".encode())  # at once: two threads speak
    return True


def main() -> None:
    url, name, ttl, what = sys.argv[1:]
    be_patient(url)
    lock = lock_at(url, name, ttl=ttl)
    lease = lock.__enter__()
    say(lease.token)
    if what == "threads":
        threading.Thread(target=lambda: lease.lost.wait() and say("lost"), daemon=True).start()
    for line in sys.stdin:
        command = line.strip()
        try:
            if command == "look":
                say(f"{lease.lost.is_set()} {lease.owned()}")
            elif command == "release":
                lock.release()
                say("released")
            elif command == "acquire":
                say(lock.acquire(blocking_timeout=60))
            elif command == "fork":
                fork(lock, name)
            elif command == "child":
                say(child())
            elif command == "exit":
                return
        except CronsensusError as error:
            say(f"{type(error).__name__}: {error}")


def child() -> int:
    """Fork a child that lives on, and return its pid."""
    pid = os.fork()
    while pid == 0:
        threading.Event().wait()
    return pid


def fork(lock: Lock, name: str) -> None:
    """See what a forked child makes of the parent's lock."""
    lease = lock.lease
    assert lease is not None
    pid = os.fork()
    if pid == 0:
        try:
            found: list[object] = [lease.lost.is_set(), lease.owned(), lock.owned()]
            for act in (lock.release, lease.release, lambda: lease.extend(5)):
                try:
                    act()
                    found.append("done")
                except CronsensusError as error:
                    found.append(type(error).__name__)
            found.append(lock.acquire(blocking=False))
            other = type(lock)(lock._backend, f"{name} of the child", ttl="5s")
            with other as mine:
                found.append(mine.owned())
            say(found)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
