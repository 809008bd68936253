"""The page of guarantees names tests that exist and assert something, and that fail without what a promise rests on.

What each named test of the suite of stores fails on is said here, or in ``tests/stores/broken.py``, whose stores name
the test that rejects them.
"""

import ast
import re
from pathlib import Path

import pytest

from cronsensus.stores.memory import MemoryStore
from tests.simulation import ablations
from tests.simulation.cluster import Parts, simulate
from tests.stores import broken
from tests.stores.sql.test_transacting import SAFEGUARDS
from tests.stores.test_broken_stores import run_on

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
NAMED = re.findall(r"^- `([\w/.]+\.py)::(?:(\w+)::)?(test_\w+)`", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_the_page_names_tests():
    assert len(NAMED) >= 20


@pytest.mark.parametrize(("file", "group", "name"), NAMED, ids=[name for _, _, name in NAMED])
def test_a_named_test_exists(file: str, group: str, name: str):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not group or f"class {group}" in text
    assert re.search(rf"def {name}\(", text), f"{PAGE.name} names {name}, which is not in {file}"


def test_every_promise_names_a_test_or_says_that_it_is_not_offered():
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    promises = [section for section in sections if re.match(r"G\d", section)]
    assert [section[:2] for section in promises] == [f"G{number}" for number in range(1, 8)]
    without = [section[:2] for section in promises if "::test_" not in section and "*Not offered yet.*" not in section]
    assert without == []


SECURITY = ROOT / "docs" / "security.md"


def test_each_sentence_about_what_somebody_can_do_names_a_test_that_exists():
    chapter = re.split(r"^## ", SECURITY.read_text(encoding="utf-8"), flags=re.MULTILINE)[2]
    sentences = re.findall(r"^- .*", chapter, flags=re.MULTILINE)
    assert len(sentences) >= 20
    assert [one for one in sentences if "::test_" not in one] == []
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", chapter)
    assert [
        name for file, name in named if not re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8"))
    ] == []


# --- by removal -------------------------------------------------------------------------------------------------------

NAMED_OF_STORES = [
    name for file, _, name in NAMED if "/conformance/" in file and not file.endswith("conformance/transacting.py")
]
NAMED_OF_TRANSACTIONS = [name for file, _, name in NAMED if file.endswith("conformance/transacting.py")]
PROVED_ELSEWHERE = {kind.rejected_by for kind in broken.BROKEN}
"""``tests/stores/test_broken_stores.py`` shows that these fail on a store without the safeguard, and pass with it."""
WITHOUT: dict[str, type[MemoryStore]] = {
    "test_a_plan_made_on_an_older_watermark_loses_whole": broken.NoWatermark,
    "test_a_replica_that_slept_for_an_hour_repeats_nothing": broken.NoWatermark,
    "test_claim_racing_the_end_of_its_session_leaves_no_run_without_a_holder": ablations.ClaimsForTheDead,
    "test_nominal_times_of_an_earlier_trigger_are_not_acquired": broken.AcquiresWhatPlansDecide,
    "test_a_clock_that_steps_ahead_is_a_downtime": broken.WritesNoVerdicts,
    "test_runs_of_a_dead_session_go_back_to_pending_with_one_crash_more": ablations.NeverReclaims,
    "test_on_crash_fail_closes_the_occurrence": ablations.RunsTwiceAtMostOnce,
    "test_a_claim_that_dies_before_its_first_renewal_is_reclaimed_like_any_other": ablations.NeverReclaims,
    "test_a_dead_session_is_reclaimed_once": ablations.NeverReclaims,
    "test_every_verb_goes_by_the_clock_of_the_store": broken.OwnClock,
    "test_a_wall_clock_set_ahead_ends_leases_only_where_they_run_on_it": ablations.LeasesOnTheWallClock,
    "test_a_clock_that_steps_back_repeats_nothing": broken.OwnClock,
    "test_a_plan_made_ahead_is_lost_before_its_time": broken.FiresTooEarly,
}
"""What the other named tests of the suite fail on."""
NIGHT = "test_no_promise_is_broken_in_any_night"
IN_NIGHTS: list[tuple[str, str, str]] = [
    ("G2", "BelievesWhoeverReturns", "cronsensus.node.round"),
    ("G4", "never_takes_over", "cronsensus.node.decide"),
    ("G7", "TrustsFromTheAnswer", "cronsensus.membership.session"),
    ("G7", "TellsNobody", "cronsensus.node.round"),
]
"""Of a promise that nodes keep: what is taken out of them."""
FOUND_BY = {"BelievesWhoeverReturns": 12, "never_takes_over": 3, "TellsNobody": 22}
"""The nights in which they were found last, which are looked at first."""
MOST_NIGHTS = 200


def promises() -> dict[str, str]:
    """Return what the page says of each promise."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {section[:2]: section for section in sections if re.match(r"G\d", section)}


@pytest.mark.parametrize(("file", "group", "name"), NAMED, ids=[name for _, _, name in NAMED])
def test_a_named_test_is_not_empty(file: str, group: str, name: str):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    # It asserts, expects an error, or leaves that to a function or a block of its file.
    told = (ast.Assert, ast.With, ast.Raise)
    assert all(any(isinstance(part, (*told, ast.Call)) for part in ast.walk(one)) for one in functions)
    assert all(len(one.body) > 1 or not isinstance(one.body[0], (ast.Pass, ast.Expr)) for one in functions)


def test_each_named_test_of_stores_has_something_that_it_fails_without():
    assert not set(NAMED_OF_STORES) - PROVED_ELSEWHERE - WITHOUT.keys(), "name a store that it rejects, in WITHOUT"
    assert not WITHOUT.keys() - set(NAMED_OF_STORES)
    assert set(NAMED_OF_TRANSACTIONS) <= {test for _, test, _ in SAFEGUARDS}


def test_each_promise_rests_on_something_that_was_taken_out():
    proved = {*PROVED_ELSEWHERE, *WITHOUT, *NAMED_OF_TRANSACTIONS}
    in_nights = {promise for promise, _, _ in IN_NIGHTS}
    for promise, text in promises().items():
        assert promise in in_nights or proved & set(re.findall(r"::(test_\w+)`", text)), promise
    assert all(NIGHT in promises()[promise] for promise in in_nights)


@pytest.mark.parametrize(("test", "kind"), WITHOUT.items(), ids=WITHOUT)
def test_a_named_test_fails_on_a_store_without_the_safeguard(test: str, kind: type[MemoryStore]):
    error = run_on(MemoryStore, test)
    assert error is None, error
    assert run_on(kind, test) is not None


@pytest.mark.parametrize(("promise", "name", "module"), IN_NIGHTS, ids=[f"{one[0]} {one[1]}" for one in IN_NIGHTS])
def test_a_night_fails_with_nodes_without_the_safeguard(promise: str, name: str, module: str, monkeypatch):
    part = next(part for part in ablations.MADE_IN[module] if part.__name__ == name)
    monkeypatch.setattr(ablations.place_of(module, part), part)
    first = FOUND_BY.get(name, 0)
    nights = [first, *range(first), *range(first + 1, MOST_NIGHTS)]
    assert any(not simulate(seed, Parts()).ok for seed in nights), f"no night in {MOST_NIGHTS}: {part.__doc__}"
