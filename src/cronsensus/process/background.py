"""Threads for calls that must not be interrupted: signal handlers run only on the main thread, so none raises here.

They start when there is a call to make, and end after a while without one. As long as something is held one thread
stays, because ``drop`` must not start any. ``concurrent.futures`` is not suitable: its threads take no more work as
soon as the main thread ends, while other threads of the program go on.
"""

from __future__ import annotations

import _thread
import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Generic, TypeVar

from cronsensus.errors import ConfigurationError
from cronsensus.process.interrupts import Event, new_lock
from cronsensus.process.logger import Logger

Answer = TypeVar("Answer")
Act = Callable[[], object]

IDLE_SECONDS = 10.0
"""Seconds that a thread stays without work."""
PATIENCE = 5.0
"""Seconds that an interrupted caller waits for its act to end."""


class Gone(weakref.ref[Any]):
    """A weak reference that runs ``act`` when its object is collected, as long as the reference itself is kept.

    Its callback is ``Background.when_gone``. Not a ``__del__`` of the object: a signal handler that raises in there
    ends it, and its exception is lost. The callback of a weak reference is called by the interpreter itself, and this
    one is written in C.
    """

    __slots__ = ()
    # By identity, not by the objects: the reference to a collected object must be found in a dictionary, too.
    __hash__: ClassVar[Callable[[Any], int]] = object.__hash__
    __eq__: ClassVar[Callable[[Any, object], bool]] = object.__eq__

    def free_abandoned(self) -> object:
        """Do the act; on a background thread."""
        raise NotImplementedError


class Background:
    """Up to ``most`` daemon threads. Up to that number each call has a thread, so that none waits for another.

    Callers may be interrupted between any two lines. Then their call was accepted or not, and all others go on.
    """

    def __init__(self, name: str, *, most: int, log: Logger) -> None:
        self._name, self._most, self._log = name, most, log
        self._acts: queue.SimpleQueue[tuple[Act, bool] | Gone] = queue.SimpleQueue()
        self.when_gone: Callable[[Gone], None] = self._acts.put
        self._lock = new_lock()
        self._threads: list[threading.Thread] = []
        self._under_way = self._started = 0
        self.held: dict[Gone, None] = {}

    def submit(self, act: Act) -> None:
        """Do ``act`` on a background thread."""
        with self._lock:
            self._need(self._under_way + 1)
            self._under_way += 1
            self._acts.put((act, True))

    def drop(self, act: Act) -> None:
        """Do ``act`` on an existing background thread; takes no lock, for ``__del__``."""
        # Python may run this anywhere, even while this thread holds a lock of the library: SimpleQueue takes none.
        self._acts.put((act, False))

    def need_one(self) -> None:
        """Make sure that there is a thread."""
        if not self._threads:
            with self._lock:
                self._need(1)

    def undisturbed(self, act: Callable[[], Answer]) -> Answer:
        """Call ``act`` on a thread where no signal handler can interrupt it, and return its result.

        Keep it short. An interrupted caller goes on when ``act`` has ended, or at once if it was not started.
        """
        if threading.current_thread() is not threading.main_thread():
            return act()
        answers: list[Answer] = []
        errors: list[BaseException] = []
        ticket = [act]  # the thread that takes it out decides whether the act is done
        finished = new_lock()
        finished.acquire()

        def ask() -> None:
            try:
                answers.append(ticket.pop()())
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                errors.append(error)
            finally:
                finished.release()

        try:
            self.submit(ask)
            finished.acquire()
        except BaseException:  # out of a signal handler
            try:
                ticket.pop()
            except IndexError:  # begun
                if not answers and not errors:
                    finished.acquire(timeout=PATIENCE)
            raise
        if errors:
            raise errors.pop()
        return answers.pop()

    def _need(self, threads: int) -> None:
        if len(self._threads) < min(threads, self._most):
            thread = threading.Thread(target=self._work, name=f"{self._name}_{self._started}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be had
                if not self._threads:
                    raise
                return
            self._threads.append(thread)
            self._started += 1

    def _work(self) -> None:
        while True:
            try:
                item = self._acts.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._may_end():
                    return
                continue
            act, is_counted = (item.free_abandoned, False) if isinstance(item, Gone) else item
            if not is_counted or self.held:
                with self._lock:
                    self._under_way += not is_counted
                    # ``drop`` starts no thread: there is one for it, also while what was dropped before takes long.
                    self._need(self._under_way + bool(self.held))
            try:
                act()
            except Exception:  # noqa: BLE001 - logged
                self._log.exception("a mistake in cronsensus, in a background call; please report it")
            finally:
                del act, item  # the reference may keep a lock alive
                with self._lock:
                    self._under_way -= 1

    def _may_end(self) -> bool:
        with self._lock:
            if self._under_way or not self._acts.empty() or (self.held and len(self._threads) <= 1):
                return False
            with suppress(ValueError):
                self._threads.remove(threading.current_thread())
            # ``need_one`` records the need first, and checks for a thread then. So one of the two sees the other.
            if self.held and not self._threads:
                self._threads.append(threading.current_thread())
                return False
            return True


class Whole(Generic[Answer]):
    """A call on its own thread: made once and to its end, even if the waiting caller is interrupted."""

    def __init__(self, act: Callable[[], Answer], name: str) -> None:
        self._ticket = [act]  # the thread that takes it out does the act
        self._name = name
        self._answers: list[Answer] = []
        self._errors: list[BaseException] = []
        self._over = Event()

    def start_act(self) -> None:
        """Start the act unless it was started; a caller that was interrupted in here may call it again."""
        if not self._ticket:
            return
        try:
            # One call of C. The start of a ``Thread`` is Python's own, and interrupted it leaves one that hangs.
            _thread.start_new_thread(self._start, ())
        except RuntimeError:  # the interpreter is at its end, or no more threads can be had
            self._do()

    def withdraw(self) -> bool:
        """Withdraw the act if it was not begun yet; return whether that worked."""
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end, or for so many seconds; return whether it is done."""
        return self._over.wait(timeout)

    def answer(self) -> Answer:
        """Return its result, or raise its exception, once it is done.

        Raises:
            ConfigurationError: it goes on in the parent of this forked process.
        """
        if self._errors:
            raise self._errors.pop()
        if not self._answers:
            raise ConfigurationError("this process was forked in the middle of this, and it goes on in the parent")
        return self._answers[0]

    def forked(self) -> None:
        """End all waits here; called in a forked child, which does not have the thread."""
        self._over.set()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._do, name=self._name, daemon=True).start()
        except RuntimeError:
            self._do()

    def _do(self) -> None:
        try:
            act = self._ticket.pop()
        except IndexError:
            return
        try:
            self._answers.append(act())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self._errors.append(error)
        finally:
            self._over.set()
