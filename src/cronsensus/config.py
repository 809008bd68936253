"""Settings: where each comes from, and what it may be.

Highest first: a command's flag, an argument of ``Scheduler``, ``CRONSENSUS_*`` in the environment,
``[tool.cronsensus]`` in the nearest ``pyproject.toml`` (of the current folder or the first one above that has one), the
default. A setting that is not given is no value, so a default on a level never hides a value of a lower level.
``DATABASE_URL`` belongs to the application and is not read.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from cronsensus.errors import ConfigurationError, InvalidDuration, InvalidOption, InvalidTrigger
from cronsensus.model.job import check_choice, check_name, unknown_option
from cronsensus.security.masking import mask, mask_target
from cronsensus.timing.durations import format_duration, parse_duration


class Unset(enum.Enum):
    """The type of ``UNSET``."""

    UNSET = "not given"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""The default of an argument that may be ``None``."""

LogFormat = Literal["text", "json"]
OnStoreLoss = Literal["warn", "stop"]
LogLevel = Literal["debug", "info", "warning", "error"]

LEASE_BOUNDS = (timedelta(seconds=1), timedelta(hours=1))
"""A third of the shortest lease leaves room for a slow commit and a busy interpreter. With less, a node would lose its
session to its own garbage collector. The longest lease is how long a crash may go unnoticed."""
MOST_CONCURRENCY = 10_000
TABLE = "tool.cronsensus"
PREFIX = "CRONSENSUS_"

_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a scheduler. Each value has a source.

    Example:
        >>> settings = load_settings(arguments={"lease": "5s"}, env={"CRONSENSUS_CONCURRENCY": "4"}, start="/")
        >>> settings.lease, settings.source("lease")
        (datetime.timedelta(seconds=5), 'argument')
        >>> settings.concurrency, settings.source("concurrency")
        (4, 'CRONSENSUS_CONCURRENCY')

    Attributes:
        url: where the store is.
        app: ``MODULE:ATTR`` of the scheduler that the commands load.
        namespace: keeps applications on the same store apart.
        tz: the time zone of cron expressions that name none; an IANA name.
        lease: how long a node that gives no sign of life keeps what it runs; from 1 second to 1 hour.
        concurrency: most runs of one node at a time; from 1 to 10,000.
        node: the node's name for people; ``None``: host name and pid.
        release: the version of the application's code; ``None``: a hash of all declared jobs.
        drain_timeout: how long running jobs may go on when the node is asked to stop.
        log_format: ``"text"`` or ``"json"``; what the commands write to standard error.
        log_level: the least serious records that the commands write.
        fast_evidence: whether a dead process on this host is treated as dead before its lease ends.
        retire_after: how long the pending runs of a job are kept after a release that no longer declares it.
        keep: how long final occurrences are kept, for jobs that do not set it.
        on_store_loss: what nodes, locks and guarded functions do when their store was emptied or exchanged while they
            worked: ``"warn"`` logs it and goes on in the empty store, ``"stop"`` logs it and starts nothing more.
        alerts: who gets a message when something goes wrong, unless the code sets it: text, or tables of ``target``, …
        heartbeat_url: a URL that a node pings each minute while it decides on time, for a service that alerts on
            silence.
        dashboard_url: where people see the dashboard, for links in alerts.
        deploy_id: which deploy this is, for start-up tasks with ``scope="deploy"``; ``None``: as far as the code shows.
        generation: which generation of workers, for start-up tasks; ``None``: that of the master process.
    """

    url: str = "sqlite:///cronsensus.db"
    app: str | None = None
    namespace: str = "default"
    tz: str = "UTC"
    lease: timedelta = timedelta(seconds=10)
    concurrency: int = 20
    node: str | None = None
    release: str | None = None
    drain_timeout: timedelta = timedelta(seconds=25)
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    fast_evidence: bool = True
    keep: timedelta = timedelta(days=30)
    retire_after: timedelta = timedelta(days=1)
    on_store_loss: OnStoreLoss = "warn"
    alerts: str | tuple[Mapping[str, Any], ...] | None = None
    heartbeat_url: str | None = None
    dashboard_url: str | None = None
    deploy_id: str | None = None
    generation: str | None = None
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def value(self, name: str) -> Any:
        """Return a setting by its name."""
        _require_known(name, "the settings")
        return getattr(self, name)

    def source(self, name: str) -> str:
        """Return where a setting's value came from: ``flag``, ``argument``, a variable, a file, or ``default``."""
        _require_known(name, "the settings")
        return self.sources.get(name, "default")

    def shown(self, name: str) -> str:
        """Return a setting as text that may be shown to anybody: what is secret in a URL is masked."""
        value = self.value(name)
        if value is None:
            return ""
        if isinstance(value, timedelta):
            return format_duration(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if name == "heartbeat_url":  # who knows it may ping in our place
            return mask_target(str(value))
        if name == "alerts":  # the paths of webhooks are secrets
            shown = str(value) if isinstance(value, str) else "; ".join(str(alert.get("target")) for alert in value)
            return mask(re.sub(r"[\w+.-]+://[^\s;]*", lambda url: mask_target(url[0]), shown))
        return mask(str(value)) if name == "url" else str(value)

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={self.shown(name)!r}' for name in self.names())})"

    def names(self) -> Iterator[str]:
        """Yield the names of all settings."""
        yield from _READERS


def load_settings(
    flags: Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    start: str | os.PathLike[str] | None = None,
) -> Settings:
    """Resolve every setting.

    Args:
        flags: by name, from the command line; ``None`` and ``UNSET`` mean not given.
        arguments: by name, from ``Scheduler(…)``; likewise.
        env: instead of the process's environment.
        start: the folder where the search for ``pyproject.toml`` begins, instead of the current one.

    Raises:
        InvalidOption: an unknown name (with the nearest known one), or an impossible value; the message names the
            source.
        InvalidDuration: likewise.
        ConfigurationError: the ``pyproject.toml`` cannot be read.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in (
        _given(flags, "flag", lambda name: "--" + name.replace("_", "-")),
        _given(arguments, "argument", lambda name: name),
        _from_environment(os.environ if env is None else env),
        _from_project(Path.cwd() if start is None else Path(start)),
    ):
        for name, (value, source, shown) in layer.items():
            if name not in values:
                values[name] = _READERS[name](value, shown)
                sources[name] = source
    return Settings(**values, sources=sources)


def misspelt(env: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each variable of the environment that is probably meant as a setting and is none.

    Not an error: others may have variables of that prefix, too.
    """
    import difflib

    variable_names = [PREFIX + name.upper() for name in _READERS]
    sentences = []
    variables = os.environ if env is None else env
    # Kubernetes gives each pod variables of each Service, also of one that is called cronsensus-log.
    services = tuple(
        variable_name.removesuffix("_SERVICE_HOST") + "_"
        for variable_name in variables
        if variable_name.endswith("_SERVICE_HOST")
    )
    for variable in sorted(variables):
        if variable.startswith(PREFIX) and variable not in variable_names and not variable.startswith(services):
            close = difflib.get_close_matches(variable, variable_names, n=1, cutoff=0.9)
            sentences += [f"{variable} is no setting; did you mean {close[0]}?"] if close else []
    return sentences


_Layer = dict[str, tuple[object, str, str]]
"""By name: the value as it was written, the source, and how an error names it."""


def _given(values: Mapping[str, object] | None, source: str, shown: Callable[[str], str]) -> _Layer:
    layer: _Layer = {}
    for name, value in (values or {}).items():
        _require_known(name, f"a {source}" if source == "flag" else "Scheduler")
        if value is not None and value is not UNSET:
            layer[name] = (value, source, shown(name))
    return layer


def _from_environment(env: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for name in _READERS:
        variable = PREFIX + name.upper()
        # An empty variable is how a shell or a compose file says "not given".
        if env.get(variable):
            layer[name] = (env[variable], variable, variable)
    return layer


def _from_project(start: Path) -> _Layer:
    path = next(
        (folder / "pyproject.toml" for folder in _upwards(start) if (folder / "pyproject.toml").is_file()), None
    )
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if "cronsensus" not in text:
        return {}
    import tomllib

    try:
        table = tomllib.loads(text).get("tool", {}).get("cronsensus", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    if not isinstance(table, dict):
        raise ConfigurationError(f"{path}: {TABLE} is not a table; write [{TABLE}]")
    layer: _Layer = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        _require_known(name, f"[{TABLE}] in {path}", key)
        layer[name] = (value, str(path), f"{key} in {path}: {name}")
    return layer


def _upwards(start: Path) -> Iterator[Path]:
    folder = start.absolute()
    yield folder
    yield from folder.parents


def _require_known(name: str, place: str, written_name: str | None = None) -> None:
    if name not in _READERS:
        raise unknown_option(written_name or name, set(_READERS), where=place)


# --- what each setting may be ----------------------------------------------------------------------------------------


def _text(value: object, shown: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(f"{shown}={value!r}: write some text")
    return value


def _name(value: object, shown: str) -> str:
    return check_name(_text(value, shown), what=shown)


def _app(value: object, shown: str) -> str:
    text = _text(value, shown)
    module, colon, attribute = text.partition(":")
    if not colon or not module.strip() or not attribute.strip():
        raise InvalidOption(f"{shown}={text!r}: write MODULE:ATTR, for example jobs:scheduler")
    return text


def _alerts(value: object, shown: str) -> str | tuple[Mapping[str, Any], ...]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and all(isinstance(table, Mapping) for table in value):
        return tuple(value)
    # Not the value: it may hold what is secret.
    raise InvalidOption(
        f"{shown}: write text, as 'https://hooks.example/… on=failed,missed jobs=billing-*', or in pyproject.toml "
        "tables, each below a line [[tool.cronsensus.alerts]] with two brackets"
    )


def _url(value: object, shown: str) -> str:
    if not isinstance(value, str) or not value.strip():
        path = value if isinstance(value, os.PathLike) else "cronsensus.db"
        raise InvalidOption(f"{shown}={value!r} is no URL; write one such as sqlite:///{path}")
    return value.strip()


def _web_url(value: object, shown: str) -> str:
    if not isinstance(value, str) or not value.strip().lower().startswith(("http://", "https://")):
        raise InvalidOption(
            f"{shown}={mask_target(str(value))!r}: write a URL that takes a ping, such as https://hc-ping.com/UUID"
        )
    return value.strip()


def _duration(value: object, shown: str) -> timedelta:
    if not isinstance(value, (timedelta, int, float, str)):
        raise InvalidDuration(f"{shown}={value!r}: write seconds or text like '15m'")
    return parse_duration(value, what=shown)


def _lease(value: object, shown: str) -> timedelta:
    lease = _duration(value, shown)
    least, most = LEASE_BOUNDS
    if not least <= lease <= most:
        raise InvalidOption(
            f"{shown}={value!r}: a lease lasts from {format_duration(least)} to {format_duration(most)}; "
            "a shorter one would be lost to a slow commit, a longer one would hide a crash"
        )
    return lease


def _concurrency(value: object, shown: str) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        number: object = int(value)
    else:
        number = value
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_CONCURRENCY:
        raise InvalidOption(f"{shown}={value!r}: a whole number from 1 to {MOST_CONCURRENCY:,}")
    return number


def _zone(value: object, shown: str) -> str:
    from cronsensus.triggers.zones import zone_name

    try:
        return zone_name(value)
    except InvalidTrigger as error:
        raise InvalidOption(f"{shown}: {error}") from error


def read_switch(value: object, shown: str) -> bool:
    """Return what ``true``, ``no``, ``1`` and the like mean; ``shown`` names the setting.

    Raises:
        InvalidOption: none of them.
    """
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _YES | _NO:
            return word in _YES
    if not isinstance(value, bool):
        raise InvalidOption(f"{shown}={value!r}: write true or false")
    return value


def _choice(literal: Any) -> Callable[[object, str], object]:
    return lambda value, shown: check_choice(
        value.strip().lower() if isinstance(value, str) else value, literal, what=shown
    )


_READERS: dict[str, Callable[[object, str], Any]] = {
    "url": _url,
    "app": _app,
    "namespace": _name,
    "tz": _zone,
    "lease": _lease,
    "concurrency": _concurrency,
    "node": _name,
    "release": _name,
    "drain_timeout": _duration,
    "log_format": _choice(LogFormat),
    "log_level": _choice(LogLevel),
    "fast_evidence": read_switch,
    "keep": _duration,
    "retire_after": _duration,
    "on_store_loss": _choice(OnStoreLoss),
    "alerts": _alerts,
    "heartbeat_url": _web_url,
    "dashboard_url": _text,
    "deploy_id": _name,
    "generation": _name,
}
