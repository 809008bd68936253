"""What is changed into what: one place of a file at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A place in a file, and the text that takes the place of what stands there."""

    file: str
    start: int
    end: int
    was: str
    now: str
    line: int
    place: str = ""
    """The function in which it stands; of SQL the block, of Lua the line."""

    @property
    def name(self) -> str:
        """Where what is changed into what, without the number of the line, which moves."""
        return f"{self.file}: {self.place}: {' '.join(self.was.split())} → {' '.join(self.now.split()) or 'nothing'}"

    def applied(self, text: str) -> str:
        """Return the file's text with the change in it."""
        if text[self.start : self.end] != self.was:
            raise ValueError(f"{self.file} is not as it was")
        return text[: self.start] + self.now + text[self.end :]


# --- what is changed into what --------------------------------------------------------------------------------------

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_TALK = re.compile(r"^(_log|log|message)\b")


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return the mutants of a file, in the order of its lines."""
    make = {".lua": _of_lua, ".sql": _of_sql}.get(file[-4:], _of_python)
    return sorted(set(make(file, text)), key=lambda one: (one.start, one.end, one.now))


def _of_python(file: str, text: str) -> Iterator[Mutant]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        end = at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return at(node.lineno, node.col_offset), end

    def source(node: ast.expr) -> str:  # not ast.get_source_segment, which splits the whole text each time
        found = text[slice(*span(node))]
        return f"({found})" if isinstance(node, ast.NamedExpr) else found

    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)):
            start, end = span(node)
            for now in (*_of_condition(node, source), *_of_call(node, source)):
                yield Mutant(file, start, end, text[start:end], now, node.lineno, _holder(tree, node.lineno))


def _holder(tree: ast.Module, line: int) -> str:
    """Return the names of the classes and functions around a line, or of what is set there."""
    names: list[str] = []
    todo: list[ast.stmt] = tree.body
    while node := next((one for one in todo if one.lineno <= line <= (one.end_lineno or one.lineno)), None):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
                todo = node.body
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
                break
            case _:
                break
    return ".".join(names)


def _of_condition(node: ast.AST, source: Callable[[ast.expr], str]) -> Iterator[str]:
    """Return what may stand in the place of a comparison, a conjunction, a negation."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            yield f"{source(left)} {_COMPARED[type(op)][1]} {source(right)}"
        case ast.BoolOp(values=values):
            word = " and " if isinstance(node.op, ast.And) else " or "
            for index in range(len(values)):
                yield "(" + word.join(source(one) for place, one in enumerate(values) if place != index) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({source(operand)})"
        case _:
            pass


def _of_call(node: ast.AST, source: Callable[[ast.expr], str]) -> Iterator[str]:
    """Return what may stand in the place of a call: one of two bounds, or nothing."""
    match node:
        case ast.Call(func=ast.Name(id="max" | "min"), args=[first, *others], keywords=[]) if others:
            yield source(first)
            yield source(others[-1])
        case ast.Expr(value=ast.Call() as call) if not _TALK.match(source(call)):
            yield "pass"
        case _:
            pass


_LUA = (
    (re.compile(r" == "), (" ~= ",)),
    (re.compile(r" ~= "), (" == ",)),
    (re.compile(r" < "), (" <= ",)),
    (re.compile(r" <= "), (" < ",)),
    (re.compile(r" > "), (" >= ",)),
    (re.compile(r" >= "), (" > ",)),
    (re.compile(r" and "), (" or ",)),
    (re.compile(r" or "), (" and ",)),
    (re.compile(r"\bnot "), ("",)),
    (re.compile(r"^ +(?:call|close|requeue|take_over|record_run)\((?:[^()]|\([^()]*\))*\)$", re.MULTILINE), ("",)),
)


def _of_lua(file: str, text: str) -> Iterator[Mutant]:
    for pattern, others in _LUA:
        for found in pattern.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            if "--" in text[: found.start()].rpartition("\n")[2]:
                continue  # a comment
            place = text.splitlines()[line - 1]
            column = found.start() - text.rfind("\n", 0, found.start()) - 1
            for now in others:
                yield Mutant(
                    file, found.start(), found.end(), found[0], now, line, f"{place[:column]}⟨⟩{place[column:]}".strip()
                )


_SQL_BLOCK = re.compile(r"^-- (?:name|part): (.+)$", re.MULTILINE)
_SQL_CONDITION = re.compile(r"\b(?:WHERE|ON|WHEN)\b|\((?!\s*(?:SELECT|WITH)\b)")
_SQL_STOP = re.compile(r"\b(?:ORDER|GROUP|LIMIT|UNION|THEN|LEFT|JOIN|WHERE|RETURNING|FOR|AND|OR)\b|[(){};]|$")
_SQL_ASKS = re.compile(r" [=<>]+ (?!\d\d)|\b(?:IS|IN|EXISTS)\b")
_SQL_NONE = re.compile(r"^\s*(?:\{[^}]*\}\s*)*(?:SELECT|UPDATE|DELETE|INSERT|WITH|FROM)\b|\bCASE\b|^\s*1 = 1$")
_SQL_TAIL = re.compile(r"(?:\s*\{(?!part)[^{}]*\})*\s*$")
_SQL_BOUND = re.compile(r" (<=|<|>=|>) ")
_SQL_LOCK = re.compile(r"\{(?:for_update|for_no_key_update|skip_locked)\}")
_OTHER_BOUND = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _of_sql(file: str, text: str) -> Iterator[Mutant]:
    """Return the statements without one of their conditions or locks, and with other bounds."""
    plain = re.sub(r"^--.*", lambda at: " " * len(at[0]), text, flags=re.MULTILINE)
    heads = [*_SQL_BLOCK.finditer(text)]
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = slice(head.end(), following.start() if following else len(text))

        def mutant(start: int, end: int, now: str, block: str = head[1]) -> Mutant:
            return Mutant(file, start, end, text[start:end], now, text.count("\n", 0, start) + 1, block)

        for begin in [body.start, *(found.end() for found in _SQL_CONDITION.finditer(plain, body.start, body.stop))]:
            any_of = _conditions(plain, begin, body.stop)
            for all_of in any_of:
                start, end = all_of[0][0], all_of[-1][1]
                if len(any_of) > 1:
                    yield mutant(start, end, f"({text[start:end]} AND 1 = 0)")
                for start, end in all_of:
                    if not _is_implied(text[start:end], [text[slice(*one)] for one in all_of]):
                        yield mutant(start, end, f"({text[start:end]} OR 1 = 1)")
        for bound in _SQL_BOUND.finditer(plain, body.start, body.stop):
            yield mutant(*bound.span(1), _OTHER_BOUND[bound[1]])
        for lock in _SQL_LOCK.finditer(plain, body.start, body.stop):
            yield mutant(*lock.span(), "")


def _is_implied(condition: str, others: list[str]) -> bool:
    """Whether a condition only repeats for an index what a comparison beside it says: NULL is never found by one."""
    column = condition.removesuffix(" IS NOT NULL")
    return column != condition and any(re.match(rf"{re.escape(column)} [<>=]", one) for one in others)


def _conditions(text: str, begin: int, end: int) -> list[list[tuple[int, int]]]:
    """Return where the conditions stand that begin here: some joined by OR, each of them by AND; none if it is none."""
    any_of: list[list[tuple[int, int]]] = [[]]
    depth, start = 0, begin
    for stop in _SQL_STOP.finditer(text, begin, end):
        depth += (stop[0] in {"(", "{"} and 1) - (stop[0] in {")", "}"} and depth >= 0 and 1)
        if depth > 0 or stop[0] in {"(", "{", "}"} or (stop[0] == ")" and depth == 0):
            continue
        found = _SQL_TAIL.sub("", text[start : stop.start()])
        if _SQL_ASKS.search(re.sub(r"\{[^}]*\}", "", found)) and not _SQL_NONE.search(found):
            any_of[-1].append((start + len(found) - len(found.lstrip()), start + len(found)))
        if stop[0] == "OR":
            any_of.append([])
        elif stop[0] != "AND":
            break
        start = stop.end()
    return [all_of for all_of in any_of if all_of]
