"""Identify a guarded function in its job's definition, so that a program notices another function of that name.

Two releases of one program look alike: neither the file's place nor the code counts, unless there is no file.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from cronsensus.declared.functions import Function
from cronsensus.model.job import LONGEST_NAME


def identity_of(inspected: Function) -> str:
    """Return module, name and parameters of a function as one text; no node registers a function under such a name."""
    plain: Any = inspected.registered.function
    while isinstance(plain, functools.partial):
        plain = plain.func
    plain = inspect.unwrap(plain)
    name = getattr(plain, "__qualname__", None) or inspected.name
    signature = inspected.signature
    parameters = "…" if signature is None else ", ".join(signature.parameters)
    text = f"{_module_of(plain)}.{name}({parameters})"
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 2]}…)"


def is_same_function(identity: str, other: str) -> bool:
    """Return whether two may be the same: a script's module is ``tasks`` to itself, and ``shop.tasks`` to others."""
    return identity == other or identity.endswith(f".{other}") or other.endswith(f".{identity}")


def _module_of(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or ""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else f"<{_digest_code(getattr(function, '__code__', None))}>"


def _digest_code(code: CodeType | None) -> str:
    """Return a text that distinguishes two functions that were typed in (``python -c``)."""
    if code is None:
        return "typed in"
    constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    return hashlib.blake2b(repr((code.co_code, code.co_names, constants)).encode(), digest_size=4).hexdigest()
