"""scripts/servers on machines that have or lack something: fakes stand for the programs, a folder for /usr."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "servers"
PROGRAMS = ("initdb", "mariadbd", "redis-server", "pgbouncer", "rabbitmq-server", "promtool", "prometheus", "openssl")
PACKAGES = "postgresql mariadb-server redis-server pgbouncer prometheus rabbitmq-server openssl"
APT = """
case "$*" in
    *" update") exit 100;;
    *) echo "policy $(cat {policy})" >> {log}; echo "$DEBIAN_FRONTEND $*" >> {log};;
esac
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.policy = folder / "usr/sbin/policy-rc.d"
        self.policy.parent.mkdir(parents=True)
        self.programs.mkdir()
        self.log = folder / "log"
        self.script = folder / "servers"
        self.script.write_text(SCRIPT.read_text().replace("/usr/", f"{folder}/usr/").replace("/run/", f"{folder}/run/"))
        for name in ("sh", "env", "cat", "tee", "rm", "chmod"):
            self.programs.joinpath(name).symlink_to(shutil.which(name) or f"/bin/{name}")

    def has(self, name: str, script: str = "") -> None:
        program = self.programs / name
        program.write_text(f"#!{shutil.which('sh')}\n{script}")
        program.chmod(0o755)

    def has_apt(self, ends: str = "") -> None:
        self.has("apt-get", APT.format(policy=self.policy, log=self.log) + ends)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["/bin/sh", self.script, *arguments],
            env={"PATH": os.fspath(self.programs)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr  # a missing server is for the tests to report
        return done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_with_all_servers_it_is_silent(machine: Machine) -> None:
    for name in PROGRAMS:
        machine.has(name)
    assert machine.run() == ""


def test_the_long_tier_wants_a_browser_and_a_font_that_has_chinese(machine: Machine) -> None:
    for name in PROGRAMS:
        machine.has(name)
    machine.has("fc-list")
    assert "which are not here: chromium fonts-noto-cjk;" in machine.run("--long")
    machine.has("fc-list", "echo Noto Sans CJK SC")
    machine.has("chromium")
    assert machine.run("--long") == ""


def test_the_tests_of_failovers_want_patroni_and_galera(machine: Machine) -> None:
    for name in (*PROGRAMS, "etcd", "haproxy", "rsync"):
        machine.has(name)
    assert "which are not here: patroni galera-4;" in machine.run("--ha")
    machine.has("patroni")
    library = machine.policy.parent.parent / "lib/galera/libgalera_smm.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert machine.run("--ha") == ""


def test_elsewhere_than_on_debian_it_says_what_is_missing(machine: Machine) -> None:
    machine.has("initdb")
    assert machine.run() == (
        "servers: the tests want these packages, which are not here: mariadb-server redis-server pgbouncer"
        " prometheus rabbitmq-server openssl; install them with the package manager of this system. Tests that need"
        " them are skipped.\n"
    )


def test_without_rights_it_says_what_to_type(machine: Machine) -> None:
    machine.has_apt()
    machine.has("id", "echo 1000")
    machine.has("sudo", "exit 1")
    assert f"install them: apt-get install --no-install-recommends {PACKAGES}." in machine.run()
    assert not machine.log.exists()


@pytest.mark.parametrize("sudo", [False, True], ids=["as root", "by sudo without a password"])
def test_with_rights_it_installs_what_is_missing_and_lets_nothing_start(machine: Machine, sudo: bool) -> None:
    machine.has_apt()
    machine.has("id", f"echo {1000 if sudo else 0}")
    machine.has("sudo", '[ "$1" = -n ] && shift && "$@"' if sudo else "exit 1")
    assert machine.run() == f"servers: installing {PACKAGES}\n"
    assert machine.log.read_text() == (
        f"policy #!/bin/sh\nexit 101\nnoninteractive -qq install -y --no-install-recommends --no-remove {PACKAGES}\n"
    )
    assert not machine.policy.exists(), "the policy is taken back"


def test_a_policy_of_the_machine_is_left_alone(machine: Machine) -> None:
    machine.policy.write_text("theirs")
    machine.has_apt("exit 100")
    machine.has("id", "echo 0")
    assert "apt-get could not install them (its message is above)" in machine.run()
    assert machine.policy.read_text() == "theirs"


def test_services_do_not_start_at_the_next_boot_either(machine: Machine) -> None:
    machine.script.parent.joinpath("run/systemd/system").mkdir(parents=True)
    machine.has_apt()
    machine.has("id", "echo 0")
    machine.has("initdb")
    machine.has("systemctl", f'echo "$*" >> {machine.log}')
    machine.run()
    assert machine.log.read_text().endswith(
        "-q disable mariadb\n-q disable redis-server\n-q disable pgbouncer\n-q disable prometheus\n"
        "-q disable rabbitmq-server\n"
    )
