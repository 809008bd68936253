"""The script that mutates the safety code: what it changes, and that each change is still a program."""

import ast
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutating.changes import mutants_of
from tests.mutating.reach import Reach, digest, places

ROOT = Path(__file__).parent.parent

CODE = """
def claim(tx, row, wanted):
    log.info("claiming")
    if row.token != wanted.token and not row.gone:
        tx.require_alive()
    return max(row.since, wanted.since)
"""
LUA = """
-- a note: x == y
if row.state == 'running' and row.token == token then
  call('HSET', key, 'a', 1)
end -- and not again
"""
SQL = """
-- part: due
o.due_at IS NOT NULL AND o.due_at <= :until

-- name: page
-- Lock what is due AND pending.
SELECT o.id, CASE WHEN o.late > 1 THEN 1 END AS late FROM occurrences AS o
WHERE o.id IN :ids AND {part: due} AND (o.state = 'pending' OR o.held IS NULL) {listed}
    AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = o.job_id)
ORDER BY o.id {for_update};

-- name: close
UPDATE occurrences SET state = 'missed', due_at = :now WHERE id = :id RETURNING id;
"""


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    loader = SourceFileLoader("mutants", str(ROOT / "scripts" / "mutants"))
    spec = spec_from_loader("mutants", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["mutants"] = module
    loader.exec_module(module)
    return module


def test_python_loses_conditions_bounds_and_calls_one_at_a_time(mutants: ModuleType):
    found = {(one.was, one.now) for one in mutants.mutants_of("x.py", CODE)}
    assert ("row.token != wanted.token", "row.token == wanted.token") in found
    assert ("row.token != wanted.token and not row.gone", "(row.token != wanted.token)") in found
    assert ("tx.require_alive()", "pass") in found
    assert ("max(row.since, wanted.since)", "row.since") in found
    assert not any("claiming" in was for was, _ in found)


def test_lua_loses_conditions_and_writes_but_not_comments(mutants: ModuleType):
    found = mutants.mutants_of("x.lua", LUA)
    assert sorted({one.line for one in found}) == [3, 4]
    assert {one.now for one in found} == {" ~= ", " or ", ""}


def test_sql_loses_conditions_alternatives_bounds_and_locks_but_sets_what_it_sets(mutants: ModuleType):
    found = mutants.mutants_of("x.sql", SQL)
    assert {one.place for one in found} == {"due", "page", "close"}
    either, none = (
        "(o.state = 'pending' OR o.held IS NULL)",
        "NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = o.job_id)",
    )
    asked = ["o.due_at <= :until", "o.late > 1", "o.id IN :ids", either, none, "j.id = o.job_id", "id = :id"]
    alternatives = ["o.state = 'pending'", "o.held IS NULL"]
    assert {(one.was, one.now) for one in found} == {
        ("<=", "<"),
        (">", ">="),
        ("{for_update}", ""),
        *((one, f"({one} OR 1 = 1)") for one in asked + alternatives),
        *((one, f"({one} AND 1 = 0)") for one in alternatives),
    }


def test_each_mutant_of_the_safety_code_is_a_program_that_differs(mutants: ModuleType):
    found = mutants.chosen(["sql/claiming.py", "sql/claim_query.py", "lua/claim_query.lua", "membership/liveness.py"])
    assert len(found) > 100
    for one in found:
        text = (ROOT / mutants.SRC / one.file).read_text(encoding="utf-8")
        changed = one.applied(text)
        assert changed != text
        if one.file.endswith(".py"):
            ast.parse(changed)


def test_all_files_that_are_named_are_there_and_so_are_their_tests(mutants: ModuleType):
    for pattern in mutants.SAFETY:
        assert list((ROOT / mutants.SRC).glob(pattern)), pattern
        for place in [*mutants.tests_of(pattern), *mutants.later_of(pattern)]:
            assert list(ROOT.glob(place.partition("::")[0])), place


def test_each_mutant_that_is_argued_to_be_an_equivalent_is_still_made(mutants: ModuleType):
    made = set()
    for file in {name.partition(":")[0] for name in mutants.ARGUED}:
        made |= {one.name for one in mutants.mutants_of(file, (ROOT / mutants.SRC / file).read_text(encoding="utf-8"))}
    assert set(mutants.ARGUED) <= made


def test_a_mutant_of_what_is_made_once_is_carried_out_where_its_name_is_used(tmp_path: Path):
    text = "A = 1 < 2\n_B = (A, 1)\n\n\ndef f(x):\n    if x:\n        return _B\n    return x < 3\n"
    (tmp_path / "x.py").write_text(text)
    (tmp_path / "y.py").write_text("from x import A\n\n\ndef g():\n    return A\n")
    made = mutants_of("x.py", text)
    assert {one.now: places(one, tmp_path) for one in made} == {
        "1 <= 2": {("x.py", 7), ("y.py", 5)},
        "x <= 3": {("x.py", 8)},
    }


def test_who_reaches_a_changed_file_is_known_only_once_all_tests_ran_with_it(tmp_path: Path):
    file = tmp_path / "x.py"
    file.write_text(CODE)
    [mutant, *_] = mutants_of("x.py", CODE)
    line = {"x.py": {str(mutant.line): ["b"]}}

    def ran(*tests: str) -> Reach:
        other = Reach(sources={"x.py": digest(file)})
        other.add({"seconds": dict.fromkeys(tests, 1.0), "failed": [], "lines": line})
        return other

    reach = Reach(seconds={"a": 1.0}, sources={"x.py": "as it was"})
    reach.merge(ran("b"))
    assert reach.tests(mutant, tmp_path) is None
    reach.merge(ran("a", "b"))
    assert reach.tests(mutant, tmp_path) == {"b"}
    reach.merge(ran("b"))
    assert reach.tests(mutant, tmp_path) == {"b"}


def test_a_share_is_told_with_its_bounds(mutants: ModuleType):
    assert mutants.told(190, 200).startswith("190 of 200 mutants killed: 95.0% (95 % interval 91.0% to 97.3%)")
