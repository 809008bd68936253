"""Name a function so that another process can import it, and import it there.

The name comes from the function object that this node's own code registered, never from the store.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from cronsensus.errors import ConfigurationError, UnsupportedFunction

MAIN_NAME = "__cronsensus_main__"
"""The ``__name__`` of the program when a child imports it: bodies of ``if __name__ == "__main__"`` do not run."""
_WRAPPING_ATTRIBUTES = ("function", "__wrapped__")
_DEEPEST = 20

_in_child = False
_loading_program = False


@dataclass(frozen=True, slots=True)
class Target:
    """The place from which a function is imported.

    Attributes:
        module, qualname: the module, and the attribute in it.
        steps: attributes that lead from the object of that name (a ``Job``, a decorator's wrapper) to the function
            itself.
        main_path, main_module: for functions of the program itself: its file, or its name after ``python -m``.
    """

    module: str
    qualname: str
    steps: tuple[str, ...] = ()
    main_path: str | None = None
    main_module: str | None = None


def in_child_process() -> bool:
    """Whether this process runs the jobs of a node in another process: no scheduler may start here."""
    return _in_child


def mark_child_process() -> None:
    """Make ``in_child_process`` true."""
    global _in_child  # noqa: PLW0603 — a fact about the process
    _in_child = True


def loading_program() -> bool:
    """Whether this process is importing its node's program, to find a job in it."""
    return _loading_program


def refuse_while_loading(act: str) -> None:
    """Refuse to create work while a job's own process imports the program: each such process would create it again.

    Raises:
        ConfigurationError: the program is being imported.
    """
    if _loading_program:
        raise ConfigurationError(
            f"the program {act} when it is imported, and a job with executor='process' imports it in each of its "
            'processes; put what the program does under  if __name__ == "__main__":'
        )


def require_importable(function: Callable[..., Any]) -> None:
    """Check, at the declaration of a job, that a process of its own can import the function.

    Whether the name still means this function when its module is complete can only be checked later, before the first
    call.

    Raises:
        UnsupportedFunction: it is a lambda, a nested function, a method, a builtin, or no function; the message has
            what to write instead.
    """
    shown = _name_of(function)
    instead = 'or use executor="thread"'
    if isinstance(function, functools.partial):
        raise UnsupportedFunction(
            f"{shown} is a functools.partial, which another process cannot import by name; write a function at the top "
            f"level of its module that makes the call, or pass the arguments with the job, {instead}"
        )
    if isinstance(function, MethodType):
        raise UnsupportedFunction(
            f"{shown} is a method, and its object exists in this process only; write a function at the top level of a "
            f"module that makes the object and calls it, {instead}"
        )
    if isinstance(function, BuiltinFunctionType | type) or not isinstance(function, FunctionType):
        kind = "a class" if isinstance(function, type) else "not a function written in Python"
        raise UnsupportedFunction(
            f"{shown} is {kind}, so another process cannot be told what to import; wrap it: `def job(): …` at the top "
            f"level of a module, {instead}"
        )
    name = function.__qualname__
    if name.rpartition(".")[2] == "<lambda>":
        raise UnsupportedFunction(
            f"{shown} is a lambda, which has no name to import in another process; write `def job(): …` at the top "
            f"level of its module, {instead}"
        )
    if "<locals>" in name:
        outer = name.split(".<locals>", 1)[0]
        raise UnsupportedFunction(
            f"{shown} is defined inside {outer}(), where another process cannot import it; move it to the top level of "
            f"its module and pass what it needs as arguments, {instead}"
        )
    if "." in name:
        raise UnsupportedFunction(
            f"{shown} is defined in a class; write a function at the top level of its module that calls it, {instead}"
        )
    if not function.__module__:
        raise UnsupportedFunction(
            f"{shown} belongs to no module that another process could import; move it to one, {instead}"
        )
    if function.__module__ in ("__main__", MAIN_NAME):
        _main_module(shown)


@functools.lru_cache(maxsize=4096)
def locate_function(function: Callable[..., Any]) -> Target:
    """Return the name by which another process finds ``function``.

    Raises:
        UnsupportedFunction: its name means another object by now.
    """
    require_importable(function)
    module, name = function.__module__, function.__qualname__
    obj = getattr(sys.modules.get(module), name, None)
    steps: list[str] = []
    while obj is not function:
        step = next((step for step in _WRAPPING_ATTRIBUTES if callable(getattr(obj, step, None))), None)
        if step is None or len(steps) == _DEEPEST:
            other_name = _name_of(getattr(sys.modules.get(module), name, None))
            raise UnsupportedFunction(
                f"{module}.{name} is not {_name_of(function)} but {other_name}, so another process would import the "
                f"wrong thing; give the function a name of its own in that module"
            )
        steps.append(step)
        obj = getattr(obj, step)
    if module not in ("__main__", MAIN_NAME):
        return Target(module, name, tuple(steps))
    path, main_module = _main_module(_name_of(function))
    return Target(module, name, tuple(steps), path, main_module)


def load_name(name: str) -> Any:
    """Import a function of this library: ``"module:name"``."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_function(target: Target) -> Callable[..., Any]:
    """Import a function, in the child.

    Raises:
        Exception: an exception that importing its module raises.
        UnsupportedFunction: the module has no such function here.
    """
    is_main = target.main_path is not None or target.main_module is not None
    module = _load_main(target) if is_main else importlib.import_module(target.module)
    obj: Any = module
    for step in (target.qualname, *target.steps):
        obj = getattr(obj, step, None)
        if obj is None:
            raise UnsupportedFunction(
                f"module {target.module} has no {target.qualname} when a job's own process imports it; define it at "
                f'the top level, and not only under `if __name__ == "__main__":`'
            )
    if not callable(obj):
        raise UnsupportedFunction(f"{target.module}.{target.qualname} is a {type(obj).__name__}, not a function")
    return obj  # type: ignore[no-any-return]


def _main_module(shown: str) -> tuple[str | None, str | None]:
    """Return the program's file, or its name if it was started by ``python -m``."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", MAIN_NAME):
        return None, spec.name
    path = getattr(main, "__file__", None)
    if path is None or not Path(path).is_file():
        raise UnsupportedFunction(
            f"{shown} was typed into an interactive session (or python -c), which another process cannot import; "
            'put it into a file, or use executor="thread"'
        )
    return str(Path(path).absolute()), None


def _load_main(target: Target) -> ModuleType:
    """Import the program itself under another name, once."""
    global _loading_program  # noqa: PLW0603 — a fact about the process
    loaded = sys.modules.get(MAIN_NAME)
    if loaded is not None:
        return loaded
    module = ModuleType(MAIN_NAME)
    if target.main_module is not None:
        spec = importlib.util.find_spec(target.main_module)
        get_code = getattr(spec and spec.loader, "get_code", None)
        code = None if get_code is None else get_code(target.main_module)
        if spec is None or code is None:
            raise UnsupportedFunction(f"a job's own process cannot find the program's module {target.main_module}")
        module.__spec__, module.__package__, module.__file__ = spec, spec.parent, spec.origin
    else:
        path = target.main_path or ""
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec")
        module.__file__ = path
    # Entered before its code runs, as import does, so that modules that the program imports can find it.
    previous = sys.modules["__main__"]
    sys.modules[MAIN_NAME] = sys.modules["__main__"] = module
    _loading_program = True
    try:
        exec(code, module.__dict__)  # noqa: S102 — the program that this process's own parent runs
    except BaseException:
        del sys.modules[MAIN_NAME]
        sys.modules["__main__"] = previous
        raise
    finally:
        _loading_program = False
    return module


def _name_of(obj: object) -> str:
    name = getattr(obj, "__qualname__", None) or repr(obj)[:80]
    module = getattr(obj, "__module__", None)
    code = getattr(obj, "__code__", None)
    place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code is not None else ""
    return f"{module}.{name}{place}" if isinstance(module, str) and module != "builtins" else f"{name}{place}"
