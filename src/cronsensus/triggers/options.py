"""Refuse unknown options with an error that says what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import ParamSpec, TypeVar

from cronsensus.errors import InvalidTrigger

P = ParamSpec("P")
R = TypeVar("R")


def describe_unknown_option(name: str, known: Collection[str], *, where: str, instead: Mapping[str, str]) -> str:
    """Return the message: what to write for ``name``, the nearest of ``known``, or all of them.

    Args:
        name: as it was written.
        known: what could have been.
        where: what does not know it.
        instead: what other schedulers call it, and what to write here.
    """
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    if name in instead:
        hint = f"write {instead[name]}"
    else:
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
    return f"unknown option {name!r} for {where}; {hint}"


def refuse_unknown_options(instead: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function refuse an unknown option with what to write instead. Its type stays the same."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            wrong = [name for name in kwargs if name not in known]
            if wrong:
                where = f"{function.__name__}()"
                raise InvalidTrigger(
                    "; ".join(describe_unknown_option(name, known, where=where, instead=instead) for name in wrong)
                )
            return function(*args, **kwargs)

        return checked

    return wrap
