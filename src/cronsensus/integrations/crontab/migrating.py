"""Write a crontab's lines as jobs of cronsensus, and list what has no equivalent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cronsensus.errors import InvalidTrigger
from cronsensus.integrations.crontab.commands import Stripped, function_name, strip_prefixes
from cronsensus.integrations.crontab.lines import Entry, Mistake
from cronsensus.integrations.layout import Call, laid_out, quoted
from cronsensus.triggers.zones import zone_name

_SETTINGS_OF_CRON = {"CRON_TZ", "MAILTO", "MAILFROM", "RANDOM_DELAY"}
_TAKEN_NAMES = {"Mapping", "Scheduler", "cron", "os", "scheduler", "sh", "subprocess"}
_IMPORTS = """\
import os
import subprocess
from collections.abc import Mapping

from cronsensus import Scheduler, cron

scheduler = Scheduler()  # the store: CRONSENSUS_URL, or Scheduler("postgresql://…")"""
_SH_OF_USER = '''\
def sh(command: str, *, stdin: str = "", env: Mapping[str, str] = {}) -> None:
    """Run a command as cron does: by a shell, at home; fail if it fails."""
    home, name = os.path.expanduser("~"), os.environ.get("LOGNAME", "")
    env = {"HOME": home, "LOGNAME": name, "PATH": "/usr/bin:/bin", **env}
    subprocess.run(
        [env.get("SHELL", "/bin/sh"), "-c", command],
        check=True,
        cwd=env["HOME"],
        env=env,
        input=stdin,
        text=True,
    )'''
_SH_OF_SYSTEM = '''\
def sh(
    command: str, *, user: str, stdin: str = "", env: Mapping[str, str] = {}
) -> None:
    """Run a command as cron does: by a user's shell, at home; fail if it fails."""
    home = os.path.expanduser(f"~{user}")
    env = {"HOME": home, "LOGNAME": user, "PATH": "/usr/bin:/bin", **env}
    program = [env.get("SHELL", "/bin/sh"), "-c", command]
    if user != "root":
        program = ["/sbin/runuser", "-u", user, "--", *program]
    subprocess.run(
        program, check=True, cwd=env["HOME"], env=env, input=stdin, text=True
    )'''


@dataclass(frozen=True, slots=True)
class Remark:
    """A difference, or something that has no equivalent."""

    place: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Migration:
    """The program, and what differs.

    Attributes:
        left_out: lines that became no jobs, including unreadable lines.
        unreadable: lines that could not be read.
    """

    code: str
    jobs: int
    left_out: int
    unreadable: int
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class Zone:
    """The zone of lines without ``CRON_TZ``, and its source."""

    name: str
    origin: str


def migrate(lines: Iterable[Entry | Mistake], zone: Zone, *, system: bool = False) -> Migration:
    """Write each line as a job.

    Args:
        lines: of one or several files.
        zone: of lines without ``CRON_TZ``.
        system: whether the lines name users.
    """
    all_lines = list(lines)
    writing = _Writing(zone, [line for line in all_lines if isinstance(line, Entry)])
    for line in all_lines:
        writing.add(line)
    return writing.finished(system=system)


class _NotWritten(Exception):
    """A valid line that has no equivalent."""


@dataclass
class _Writing:
    zone: Zone
    entries: Sequence[Entry]
    blocks: list[str] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=lambda: set(_TAKEN_NAMES))
    remarks: list[Remark] = field(default_factory=list)
    jobs: int = 0
    left_out: int = 0
    unreadable: int = 0

    def add(self, line: Entry | Mistake) -> None:
        """Write a line, or the reason why not."""
        if isinstance(line, Mistake):
            self.left_out += 1
            self.unreadable += 1
            self._remark(line.place, f"not read: {line.text}")
            return
        try:
            self._add_job(line)
        except InvalidTrigger as error:
            self.left_out += 1
            self.unreadable += 1
            self._remark(line.place, f"not read: CRON_TZ above it: {error}")
        except _NotWritten as error:
            self.left_out += 1
            self._remark(line.place, f"not written: {error}")

    def _add_job(self, entry: Entry) -> None:
        if entry.never:
            raise _NotWritten(
                f"{entry.schedule!r} comes in no year, so cron never ran it; a month's last day is L here"
            )
        if entry.schedule.lower() == "@reboot":
            raise _NotWritten(
                "@reboot: what goes on running belongs to the init system; a task that ends is "
                f"@scheduler.startup(scope='host'), once for each boot of a host: {entry.command}"
            )
        zone = zone_name(entry.settings.get("CRON_TZ") or self.zone.name)
        stripped = self._stripped(entry)
        name = function_name(entry.command, self.names)
        self.names.add(name)
        options: list[str | Call] = [Call("cron", [quoted(entry.schedule), f"tz={quoted(zone)}"])]
        if stripped.lock is not None:
            options.append('overlap="skip"')
            self._remark(
                entry.place,
                f"flock on {stripped.lock} is overlap='skip', over all replicas; it keeps out no other program",
            )
        if stripped.timeout is not None:
            options.append(f"timeout={quoted(stripped.timeout)}")
        # Only in its own process does a run that is cancelled, over its timeout or fenced off end its command.
        options.append('executor="process"')
        environment = self._environment(entry.settings)
        arguments = [quoted(stripped.command)]
        arguments += [f"user={quoted(entry.user)}"] if entry.user is not None else []
        arguments += [f"stdin={quoted(entry.stdin)}"] if entry.stdin else []
        arguments += [f"env={environment}"] if environment else []
        heading = f"{entry.place}: {entry.comment}" if entry.comment else entry.place
        self.blocks.append(
            "\n".join(
                [
                    _comment(heading),
                    laid_out(Call("@scheduler.job", options)),
                    f"def {name}() -> None:",
                    laid_out(Call("sh", arguments), "    "),
                ]
            )
        )
        self.jobs += 1

    def _stripped(self, entry: Entry) -> Stripped:
        stripped = strip_prefixes(entry.command)
        if stripped.lock is None or sum(stripped.lock in entry_of_file.command for entry_of_file in self.entries) == 1:
            return stripped
        self._remark(
            entry.place,
            f"flock on {stripped.lock} is in other lines, too, and stays: it holds on one machine; "
            "over all replicas that is a lock of the store, see docs/locks.md",
        )
        return Stripped(entry.command)

    def _environment(self, settings: Mapping[str, str]) -> str:
        """Return the name of the constant that has these settings, which is written above its first job."""
        variables = {name: value for name, value in settings.items() if name not in _SETTINGS_OF_CRON}
        if not variables:
            return ""
        if variables not in self.environments:
            self.environments.append(variables)
            rows = [f"    {quoted(name)}: {quoted(value)}," for name, value in variables.items()]
            name = self._environment_name(len(self.environments))
            self.blocks.append("\n".join([f"{name} = {{", *rows, "}"]))
        return self._environment_name(self.environments.index(variables) + 1)

    def _environment_name(self, number: int) -> str:
        return "ENVIRONMENT" if number == 1 else f"ENVIRONMENT_{number}"

    def _remark(self, place: str | None, text: str) -> None:
        self.remarks.append(Remark(place, text))

    def finished(self, *, system: bool) -> Migration:
        """Return the program."""
        remarks = (*self.remarks, *(Remark(None, text) for text in self._of_the_file(system=system)))
        parts = [_IMPORTS]
        if self.jobs:
            parts = [_IMPORTS, _SH_OF_SYSTEM if system else _SH_OF_USER, *self.blocks]
        code = "\n\n\n".join(parts)
        if remarks:
            comments = [
                _comment(f"{remark.place}: {remark.text}" if remark.place else remark.text) for remark in remarks
            ]
            code = "\n".join([f"{code}\n\n" if self.jobs else f"{code}\n", "# What is not the same:", *comments])
        return Migration(f"{code}\n", self.jobs, self.left_out, self.unreadable, remarks)

    def _of_the_file(self, *, system: bool) -> Iterator[str]:
        if not self.jobs:
            return
        settings: dict[str, set[str]] = {}
        for entry in self.entries:
            for name, value in entry.settings.items():
                settings.setdefault(name, set()).add(value)
        if any(not entry.settings.get("CRON_TZ") for entry in self.entries):
            yield f"times are in {self.zone.name}, from {self.zone.origin}; --tz says another"
        if "CRON_TZ" in settings:
            yield "Debian's cron passes over CRON_TZ: if that ran it, times were in the machine's zone"
        if mailed := ", ".join(sorted(settings.get("MAILTO", set()) - {""})):
            yield (
                f"MAILTO={mailed}: output is kept with its run (cronsensus runs show); for mail about what "
                "failed write Scheduler(…, alerts=[Alert('mailto://…', on=['failed'])]), see docs/alerts.md"
            )
        if "RANDOM_DELAY" in settings:
            yield "RANDOM_DELAY is left out: write cron(…, jitter='5m')"
        if system:
            yield "users: a node that runs as root runs commands by runuser; another node can run its own user's only"
        yield "commands run on any machine that has a node: each needs what they call, read and write"
        yield "commands get the environment that cron gives them: nothing of the node's, and PATH=/usr/bin:/bin"
        yield "cron starts a command beside one that still runs; here that time is skipped, or say overlap='allow'"
        yield "cron forgets times at which it was down; here the latest is caught up, or say catch_up='none'"
        yield "a command whose node dies is started again on another, or say on_crash='fail'"


def _comment(text: str) -> str:
    return "# " + "".join(sign if sign.isprintable() else "?" for sign in text)
