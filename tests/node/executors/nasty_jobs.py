# mypy: ignore-errors
"""Endings that are hard to describe: what looks at them runs code of the job's, which raises."""

import asyncio
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

from cronsensus.errors import Cancel, Retry, RunFailed, Skip
from cronsensus.node.run import current_run


class Quits:
    """Raises SystemExit whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)

    def __repr__(self) -> str:
        raise SystemExit

    def __str__(self) -> str:
        raise SystemExit

    def __hash__(self) -> int:
        raise SystemExit


class BadText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    def __repr__(self) -> str:
        raise KeyboardInterrupt


class TextOfAnotherKind(Exception):
    def __str__(self) -> str:
        return OddText("odd")


class OddText(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit

    def __getitem__(self, key: Any) -> Any:
        raise SystemExit

    def replace(self, *args: Any) -> Any:
        return Quits()

    def encode(self, *args: Any) -> Any:
        raise SystemExit


class BadAttributes(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


class BadChain(Exception):
    @property
    def __cause__(self) -> Any:
        raise RuntimeError

    @property
    def __context__(self) -> Any:
        raise RuntimeError

    @property
    def __traceback__(self) -> Any:
        raise KeyboardInterrupt

    @property
    def __notes__(self) -> Any:
        raise SystemExit


class BadClass(Exception):
    @property
    def __class__(self) -> Any:
        raise SystemExit


class Pretends(Exception):
    """A proxy may say that it is of another class."""

    @property
    def __class__(self) -> Any:
        return Retry


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__", "__name__", "__doc__"):
            raise SystemExit(name)
        return super().__getattribute__(name)


class BadName(Exception, metaclass=Meta):
    pass


class BadReduce(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit


class BadGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise SystemExit


class EndlessGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        return (self,)


class Again(Retry):
    def __init__(self, why: str) -> None:
        self.why = why


class AgainUndocumented(Retry):
    pass


class AgainSometime(Retry):
    @property
    def after(self) -> Any:
        raise SystemExit

    @after.setter
    def after(self, value: Any) -> None:
        pass


class AgainAfterAllThat(Retry):
    @property
    def __cause__(self) -> Any:
        raise SystemExit


class SkipQuietly(Skip):
    def __init__(self) -> None:
        pass


class CancelBadly(Cancel):
    def __str__(self) -> str:
        raise SystemExit


class Failed(RunFailed):
    def __init__(self) -> None:
        pass


class BadCode(SystemExit):
    @property
    def code(self) -> Any:
        raise RuntimeError

    @code.setter
    def code(self, value: Any) -> None:
        pass


class Direct(BaseException):
    pass


class BadKey(str):
    __slots__ = ()

    def __repr__(self) -> str:
        raise SystemExit


class BadDict(dict[Any, Any]):
    def items(self) -> Any:
        raise SystemExit


def _chain(length: int) -> BaseException:
    error: BaseException | None = None
    for number in range(length):
        following = ValueError(number)
        following.__cause__ = error
        error = following
    assert error is not None
    return error


def _cycle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def _deep_group() -> BaseException:
    error: Exception = Skip("inner")
    for _ in range(90):
        error = ExceptionGroup("g", [error])
    return error


def _wide_group() -> BaseException:
    return ExceptionGroup("many", [ValueError(number) for number in range(2_000)])


def _a_loop_of_lists() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def _recurses() -> Any:
    return _recurses()


def _raised_into_the_thread() -> Any:
    """Do what libraries for timeouts do; it arrives when the function is over, or nearly."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Direct))


def _breaks_its_run() -> Any:
    run = current_run()
    assert run is not None
    run.lease_lost = None


RAISED: dict[str, tuple[Callable[[], BaseException], str, str]] = {
    "text": (BadText, "raised", "BadText"),
    "text of another kind": (TextOfAnotherKind, "raised", "TextOfAnotherKind"),
    "attributes": (BadAttributes, "raised", "BadAttributes"),
    "chain": (BadChain, "raised", "BadChain"),
    "class": (BadClass, "raised", "BadClass"),
    "another class": (Pretends, "raised", "Pretends"),
    "name": (BadName, "raised", "Exception"),
    "reduce": (BadReduce, "raised", "BadReduce"),
    "group": (lambda: BadGroup("g", [ValueError()]), "raised", "BadGroup"),
    "endless group": (lambda: EndlessGroup("g", [ValueError()]), "raised", "EndlessGroup"),
    "deep group": (_deep_group, "skipped", ""),
    "wide group": (_wide_group, "raised", "ExceptionGroup"),
    "long chain": (lambda: _chain(3_000), "raised", "ValueError"),
    "cycle": (_cycle, "raised", "ValueError"),
    "10 MB": (lambda: ValueError("x" * 10_000_000), "raised", "ValueError"),
    "half a character": (lambda: ValueError("\ud800\0"), "raised", "ValueError"),
    "a number without text": (lambda: ValueError(10**5000), "raised", "ValueError"),
    "an argument that quits": (lambda: ValueError(Quits()), "raised", "ValueError"),
    "retry without super().__init__": (lambda: Again("x"), "retry", ""),
    "retry without a docstring": (AgainUndocumented, "retry", ""),
    "retry that cannot say when": (AgainSometime, "raised", "AgainSometime"),
    "retry that cannot say why": (AgainAfterAllThat, "raised", "AgainAfterAllThat"),
    "retry at an odd time": (lambda: Retry("x", after=Quits()), "raised", ""),
    "skip without super().__init__": (SkipQuietly, "skipped", ""),
    "cancel without text": (CancelBadly, "cancelled", ""),
    "an error of ours without super().__init__": (Failed, "raised", "Failed"),
    "exit": (lambda: SystemExit(Quits()), "raised", "SystemExit"),
    "exit without a code": (BadCode, "raised", "BadCode"),
    "interrupt": (KeyboardInterrupt, "raised", "KeyboardInterrupt"),
    "generator's exit": (GeneratorExit, "raised", "GeneratorExit"),
    "cancelled": (asyncio.CancelledError, "raised", "asyncio.exceptions.CancelledError"),
    "stop": (lambda: StopIteration(3), "raised", ""),
    "async stop": (StopAsyncIteration, "raised", "StopAsyncIteration"),
    "no Exception": (Direct, "raised", "Direct"),
    "memory": (MemoryError, "raised", "MemoryError"),
}
RETURNED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "quits": (Quits, "raised", ""),
    "dict": (lambda: BadDict(a=1), "raised", ""),
    "key": (lambda: {BadKey("k"): 1}, "raised", ""),
    "class": (lambda: BadName, "raised", ""),
    "odd text": (lambda: OddText("x"), "raised", ""),
    "half a character": (lambda: "\ud800", "raised", "InvalidPayload"),
    "itself": (_a_loop_of_lists, "raised", "InvalidPayload"),
    "large number": (lambda: 10**5000, "raised", "InvalidPayload"),
    "generator": (lambda: (one for one in ()), "raised", ""),
    "recursion": (_recurses, "raised", "RecursionError"),
    "its run": (_breaks_its_run, "raised", "AttributeError"),
}


def table() -> dict[str, tuple[str, str]]:
    """Return the kind of each ending, and the type of its error where that is one for all executors."""
    cases = {f"raises {name}": case for name, case in RAISED.items()}
    cases |= {f"returns {name}": case for name, case in RETURNED.items()}
    return {name: (kind, error) for name, (_, kind, error) in cases.items()}


def nasty(name: str) -> Any:
    how, _, case = name.partition(" ")
    if how == "returns":
        return RETURNED[case][0]()
    error = RAISED[case][0]()
    raise error


async def anasty(name: str) -> Any:
    return nasty(name)


class OwnSignature:
    """A callable object that fails to say what it takes: its annotations exist for type checkers only."""

    __name__ = "own_signature"

    @property
    def __signature__(self) -> Any:
        raise NameError("Order")

    def __call__(self) -> Any:
        raise TypeError("its own")


def hit_from_outside() -> Any:
    _raised_into_the_thread()
    return sys.version
