"""``cronsensus store-check``: which rules hold on the store behind a URL, and which do not."""

import json
import subprocess
import sys
from pathlib import Path

from tests.scratch import copy_migrated_sqlite

RULE = "a_lock_of_one_namespace_is_free_in_another"
BROKEN = "a_paused_job_does_not_fire"
BREAK = """
import sys
from cronsensus.cli import main
from cronsensus.stores.sql.sqlite import SqliteStore

SqliteStore._pause = lambda *_, **__: True
sys.exit(main(sys.argv[1:]))
"""


def check(place: Path, *words: str, broken: bool = False) -> tuple[int, str]:
    start = ["-c", BREAK] if broken else ["-m", "cronsensus"]
    command = [sys.executable, *start, "store-check", f"sqlite:///{place}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place.parent)
    return done.returncode, done.stdout + done.stderr


def test_rules_that_hold_are_counted_by_what_they_are_about(tmp_path: Path) -> None:
    copy_migrated_sqlite(tmp_path / "scratch.db")
    code, said = check(tmp_path / "scratch.db", "--only", RULE)
    assert code == 0
    assert "Basics: 1 of 1 hold" in said
    assert "all 1 rules hold" in said


def test_a_rule_that_does_not_hold_is_named_with_the_line_that_found_out(tmp_path: Path) -> None:
    copy_migrated_sqlite(tmp_path / "scratch.db")
    rules = f"{RULE} or {BROKEN}"
    code, said = check(tmp_path / "scratch.db", "--only", rules, "-o", "json", broken=True)
    found = json.loads(said)
    assert (code, found["ok"]) == (1, False)
    assert found["rules"] == 2
    [broken] = found["broken"]
    assert (broken["hazard"], broken["rule"]) == ("Operating", BROKEN.replace("_", " "))
    assert "operating.py:" in broken["why"]


def test_of_several_urls_each_handle_takes_the_next(tmp_path: Path) -> None:
    for name in ("scratch.db", "other.db"):
        copy_migrated_sqlite(tmp_path / name)
    rule = "definitions_put_together_are_one_job"
    assert check(tmp_path / "scratch.db", f"sqlite:///{tmp_path}/scratch.db", "--only", rule)[0] == 0
    code, said = check(tmp_path / "scratch.db", f"sqlite:///{tmp_path}/other.db", "--only", rule)
    assert (code, "broken  Racing: definitions put together" in said) == (1, True)  # they are no servers of one store


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "shop.db"
    app = "from cronsensus import Scheduler\ns = Scheduler('sqlite:///shop.db')\ns.job(name='a')(print)\nwith s: pass\n"
    subprocess.run([sys.executable, "-c", app], check=True, cwd=tmp_path)
    code, said = check(place, "--only", RULE)
    assert code == 2
    assert "is a store in use" in said
