"""Which tests can notice a mutant: those that reach its lines, or the lines that use what it defines."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutating.changes import Mutant

Lines = set[tuple[str, int]]
FOLDER = "CRONSENSUS_TEST_TOUCHED"
"""The variable that names the folder into which a run writes what its tests reach."""
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Reach:
    """What the tests reached when nothing was mutated.

    Attributes:
        seconds: how long each test takes.
        failed: tests that fail or are skipped as it is, and so notice nothing.
        lines: by file and line, the tests that reached it.
        sources: a digest of each file as it was.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def merge(self, other: Reach) -> None:
        """Take in another run; who reaches a file that changed meanwhile is known only if all tests ran again."""
        changed = {file for file, text in other.sources.items() if self.sources.get(file, text) != text}
        again = self.seconds.keys() <= other.seconds.keys()
        for file in changed:
            self.lines.pop(file, None)
        self.sources |= other.sources | ({} if again else dict.fromkeys(changed, ""))
        self.add({"seconds": other.seconds, "failed": other.failed, "lines": other.lines})

    def add(self, told: dict[str, Any]) -> None:
        """Take in what one process of the run wrote down."""
        self.seconds |= told["seconds"]
        self.failed |= set(told["failed"])
        for file, lines in told["lines"].items():
            mine = self.lines.setdefault(file, {})
            for line, tests in lines.items():
                mine.setdefault(int(line), set()).update(tests)

    def save(self, path: Path) -> None:
        """Write it into a file."""
        lines = {file: {str(line): sorted(tests) for line, tests in one.items()} for file, one in self.lines.items()}
        told = {"seconds": self.seconds, "failed": sorted(self.failed), "lines": lines, "sources": self.sources}
        path.write_text(json.dumps(told), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Reach:
        """Read it from a file."""
        told = json.loads(path.read_text(encoding="utf-8"))
        reach = cls(sources=told["sources"])
        reach.add(told)
        return reach

    def tests(self, mutant: Mutant, src: Path) -> set[str] | None:
        """Return the tests that reach a mutant; None if that is not known: of Lua, and of files that changed."""
        if not mutant.file.endswith(".py") or self.sources.get(mutant.file) != digest(src / mutant.file):
            return None
        found: set[str] = set()
        for file, line in places(mutant, src):
            found |= self.lines.get(file, {}).get(line, set())
        return found


def digest(path: Path) -> str:
    """Return what a file's text is known by."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def places(mutant: Mutant, src: Path) -> Lines:
    """Return the lines at which a mutant is carried out.

    What is made when the module is imported, or once and then kept (``@cache``), is carried out where its name is used.
    """
    tree = ast.parse((src / mutant.file).read_text(encoding="utf-8"))
    last = mutant.line + mutant.was.count("\n")
    inside = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and _spans(one, mutant.line, last)]
    functions = [one for one in inside if isinstance(one, _FUNCTION) and one.body[0].lineno <= mutant.line]
    if functions and not any(_is_kept(one) for one in functions):
        innermost = min(inside, key=lambda one: (one.end_lineno or 0) - one.lineno)
        return {(mutant.file, line) for line in _head(innermost)}
    outermost = functions[0] if functions else inside[0]
    return _uses(mutant.file, set(_names(outermost)), src)


def _spans(node: ast.stmt, first: int, last: int) -> bool:
    return node.lineno <= first and last <= (node.end_lineno or node.lineno)


def _is_kept(function: ast.AST) -> bool:
    return any("cache" in ast.unparse(one) for one in getattr(function, "decorator_list", ()))


def _head(node: ast.stmt) -> Iterable[int]:
    """Return the lines of a statement, without those of the statements in it."""
    body = getattr(node, "body", None)
    return range(node.lineno, body[0].lineno if body else (node.end_lineno or node.lineno) + 1)


def _names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets):
            yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case _:
            pass


@dataclass(frozen=True)
class _Statement:
    """What a statement uses, and where it stands.

    Attributes:
        uses: the names in it, without those in statements within it.
        makes: what its module knows it by, where it is carried out once: names that others use.
        lines: its lines, where it is carried out each time that its function is called.
    """

    uses: frozenset[str]
    makes: frozenset[str]
    lines: frozenset[int]


@cache
def _statements(path: Path) -> list[_Statement]:
    found: list[_Statement] = []

    def look(node: ast.stmt, top: ast.stmt, function: ast.stmt | None) -> None:
        uses = frozenset(_used(node))
        if function is None or _is_kept(function):
            found.append(_Statement(uses, frozenset(_names(function or top)), frozenset()))
        else:
            found.append(_Statement(uses, frozenset(), frozenset(_head(node))))
        inside = node if function is None and isinstance(node, _FUNCTION) else function
        for child in _children(node):
            look(child, top, inside)

    for top in ast.parse(path.read_text(encoding="utf-8")).body:
        look(top, top, None)
    return found


def _children(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        else:
            yield from _children(child)


def _used(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            continue
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr
        yield from _used(child)


def _uses(file: str, names: set[str], src: Path) -> Lines:
    """Return the lines in functions that use names of a module, or names that are made of them."""
    found: Lines = set()
    known: set[str] = set()
    while known != names:
        known = set(names)
        private = all(name.startswith("_") for name in names)
        for path in [src / file] if private else sorted(src.rglob("*.py")):
            where = str(path.relative_to(src))
            for one in _statements(path):
                if not one.uses.isdisjoint(names):
                    found.update((where, line) for line in one.lines)
                    names |= one.makes
    return found
