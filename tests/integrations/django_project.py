"""A copy of the project of Django's in examples/, with what tests add to it, and its processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sqlalchemy import make_url

PROJECT = Path(__file__).parents[2] / "examples" / "django_shop"
TRIED = Path(__file__).parent / "django_tried"
PYTHON = os.environ.get("CRONSENSUS_TEST_DJANGO_PYTHON") or sys.executable
"""What runs the project: another environment has another Django."""
PATIENCE = 60
ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


class Project:
    """A copy of the project in a folder of its own, on a database."""

    def __init__(self, folder: Path, url: str | None = None, **options: Any) -> None:
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3*"))
        for file in TRIED.glob("*.py"):
            shutil.copy(file, folder / "shop")
        self.folder = folder
        self.database: dict[str, Any] = {
            "ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "shop.sqlite3"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20}, "TEST": {"NAME": str(folder / "test.sqlite3")},
        }  # fmt: skip
        if url is not None:
            read = make_url(url)
            self.database = {
                "ENGINE": f"django.db.backends.{ENGINES[read.get_backend_name()]}", "NAME": read.database,
                "HOST": read.host or "", "PORT": read.port or "", "USER": read.username or "",
                "PASSWORD": read.password or "", "TEST": {"NAME": f"test_{folder.name}"},
            }  # fmt: skip
        self.options = options

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process of the project is started with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRONSENSUS_")}
        return kept | {
            "SHOP_DATABASE": json.dumps(self.database), "SHOP_CRONSENSUS": json.dumps(self.options),
            "DJANGO_SETTINGS_MODULE": "settings",
        }  # fmt: skip

    def manage(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``manage.py``, which must exit with ``code``."""
        done = subprocess.run(
            [PYTHON, "manage.py", *arguments],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def prepare(self) -> None:
        """Make the tables."""
        self.manage("migrate", "-v0")

    def start(self, log: IO[bytes], *arguments: str) -> subprocess.Popen[bytes]:
        """Start Python in the project's folder."""
        return subprocess.Popen(
            [PYTHON, *arguments],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip

    @contextmanager
    def node(self) -> Iterator[None]:
        """Run a node; it must end well when it is told to."""
        log = self.folder / "node.log"
        with log.open("wb") as file:
            node = self.start(file, "manage.py", "cronsensus", "run")
        try:
            yield
            node.send_signal(signal.SIGTERM)
            assert node.wait(PATIENCE) == 0, log.read_text()
        finally:
            node.kill()
            node.wait()

    def shell(self, function: str, module: str = "trying") -> Any:
        """Call a function of a module of the shop; return what it printed."""
        text = f"import django; django.setup(); from shop.{module} import {function}; {function}()"
        done = subprocess.run(
            [PYTHON, "-c", text],
            cwd=self.folder, env=self.environment,
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])
