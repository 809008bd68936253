"""A new machine is green: whatever a test needs and may miss, make installs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKIP = re.compile(r"service missing: ([a-z][\w-]*)")
PROGRAM = re.compile(r'\bprogram\("([a-z][\w-]*)"')
FIXTURES = ("test_conftest.py", "test_missing_services.py", "test_server.py")
"""Tests of the skips themselves, which name what is nowhere."""


def test_what_a_test_skips_for_is_installed_by_make() -> None:
    scripts = (ROOT / "scripts" / "servers").read_text(encoding="utf-8")
    lock = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    # Nothing can install the right to mount, nor an Oracle MySQL, of which MariaDB is Debian's.
    known = {
        *re.findall(r"[a-z][\w-]*", scripts),
        *re.findall(r"^([\w-]+)==", lock, re.MULTILINE),
        "root",
        "mysql-server",
    }
    asked = {
        (name, path.name)
        for path in ROOT.glob("tests/**/*.py")
        if path.name not in FIXTURES
        for pattern in (SKIP, PROGRAM)
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert {"promtool", "chromium", "openssl", "gunicorn", "redis-server"} <= {name for name, _ in asked}
    assert [one for one in sorted(asked) if one[0] not in known] == []
