"""Write Python literals and calls in ruff's format, for programs that are generated. Pure."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

WIDTH = 88
"""ruff's default."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the text before its parenthesis, and its arguments."""

    head: str
    arguments: Sequence[str | Call]

    def __str__(self) -> str:
        return f"{self.head}({', '.join(map(str, self.arguments))})"


def quoted(text: str) -> str:
    """Return text as a literal in double quotes, or in single ones where that needs fewer backslashes."""
    mark = "'" if text.count('"') > text.count("'") else '"'
    return mark + "".join(_escaped(sign, mark) for sign in text) + mark


def _escaped(sign: str, mark: str) -> str:
    if sign in {"\\", mark}:
        return f"\\{sign}"
    return sign if sign.isprintable() else repr(sign)[1:-1]


def identifier(text: str, taken: Collection[str]) -> str:
    """Return a name for a function that is called so, and is none of ``taken``, a keyword or a builtin."""
    # Python reads an identifier in this form, so two names that differ before it may be one.
    normalized = unicodedata.normalize("NFKC", text.casefold())
    base = re.sub(r"\W+", "_", normalized).strip("_") or "job"
    if not base.isidentifier():
        base = f"job_{base}"
    base = base[:60]
    name, count = base, 1
    while name in taken or keyword.iskeyword(name) or hasattr(builtins, name):
        count += 1
        name = f"{base}_{count}"
    return name


def laid_out(call: str | Call, indent: str = "", end: str = "") -> str:
    """Return a call on one line if it fits, else its arguments on one line, else each on its own."""
    line = f"{indent}{call}{end}"
    if isinstance(call, str) or len(line) <= WIDTH:
        return line
    inner = f"{indent}    "
    together = f"{inner}{', '.join(map(str, call.arguments))}"
    if len(together) <= WIDTH:
        rows = [together]
    elif len(call.arguments) == 1:
        rows = [laid_out(call.arguments[0], inner)]
    else:
        rows = [laid_out(argument, inner, ",") for argument in call.arguments]
    return "\n".join([f"{indent}{call.head}(", *rows, f"{indent}){end}"])
