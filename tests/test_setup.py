"""scripts/setup on machines that lack something: a folder of small fakes stands for the machine's PATH."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT_VENV = '[ "$2" = "import ensurepip, venv" ] && [ ! -e installed ] && exit 1\n'
PYTHON = (
    WITHOUT_VENV + 'case "$2" in *print*) echo python3.12-venv;; esac\n[ "$1 $2" != "-m venv" ] || echo "made" >> log\n'
)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        for part in ("scripts/setup", "requirements/dev.lock", "pyproject.toml"):
            self.tree.joinpath(part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, self.tree / part)
        for name in ("sh", "env", "cat", "dirname", "sha256sum"):
            self.programs.joinpath(name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")

    def has(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!{shutil.which('sh')}\n{script}")
        program.chmod(0o755)

    def set_up(self) -> tuple[int, str]:
        done = subprocess.run(
            [self.tree / "scripts/setup"],
            env={"PATH": os.fspath(self.programs)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_python_it_says_what_to_install(machine: Machine) -> None:
    machine.has("python3", "exit 1")  # too old
    machine.has("python3.13", "exit 127")  # a shim for a version that is not there
    assert machine.set_up() == (
        1,
        "setup: no Python 3.11 or newer on PATH: install one (on Debian: apt-get install python3), then try again.\n",
    )


def test_without_venv_and_without_rights_it_says_which_package(machine: Machine) -> None:
    machine.has("python3.12", PYTHON)
    machine.has("apt-get", "exit 100")
    machine.has("id", "echo 1000")
    code, output = machine.set_up()
    assert code == 1
    assert "python3.12 cannot make virtual environments: install the package python3.12-venv" in output


@pytest.mark.parametrize("sudo", [False, True], ids=["as root", "by sudo without a password"])
def test_with_rights_it_installs_the_package_and_goes_on(machine: Machine, sudo: bool) -> None:
    machine.has("python3.12", PYTHON)
    machine.has("apt-get", '[ "$2" = update ] && exit 1\n[ "$4" = python3.12-venv ] && : > installed')
    machine.has("id", f"echo {1000 if sudo else 0}")
    machine.has("sudo", '[ "$1" = -n ] && shift && "$@"' if sudo else "exit 1")
    _, output = machine.set_up()
    assert "setup: installing python3.12-venv\n" in output
    assert machine.tree.joinpath("log").read_text() == "made\n"


def test_when_the_package_cannot_be_had_it_says_so(machine: Machine) -> None:
    machine.has("python3.12", PYTHON)
    machine.has("apt-get", "exit 100")
    machine.has("id", "echo 0")
    code, output = machine.set_up()
    assert code == 1
    assert "install the package python3.12-venv (apt-get install python3.12-venv), then try again." in output
