"""``Alert``: who gets a message about which events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from cronsensus.alerts.events import EVENTS, Event
from cronsensus.alerts.sending import Target, check_target
from cronsensus.errors import InvalidOption
from cronsensus.security.masking import mask_target
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers.options import describe_unknown_option

DEFAULT_EVENTS = ("failed", "missed")
DEFAULT_BACKLOG = "10m"
MOST_IN_ROW = 50
_NAME = re.compile(r"[\w.-]{1,100}")


class Alert:
    """Who gets a message about what goes wrong. A single node of the cluster sends it; another does if that dies.

    Example:
        >>> from cronsensus import Alert, Scheduler
        >>> told = []
        >>> scheduler = Scheduler("memory://", alerts=[Alert(told.extend, on=["failed"], jobs="billing-*", name="ops")])

    Args:
        target: a URL: ``https://…`` gets JSON, ``mailto://ops@example.org`` a mail, others go through ``apprise``
            (``pip install "cronsensus[alerts]"``). Or a function, which is called with the events in a thread.
        on: which events: ``"failed"`` (for good), ``"items_failed"``, ``"missed"``, ``"cancelled"``, ``"overdue"``,
            ``"retired"``, ``"slow"``, ``"stalled"``, ``"backlog"``, ``"recovered"``, ``"taken_over"``,
            ``"node_lost"``. Defaults to failed and missed.
        jobs: patterns of the names of jobs, as ``"billing-*"``. Defaults to all.
        name: the alert's identity, the same on each replica. Defaults to a name that is made of the target.
        secret: a webhook is signed with it: ``X-Cronsensus-Signature`` is ``sha256=`` and the HMAC of the body.
        in_row: send a message only after so many failures of a job in a row; 1 to 50. Defaults to each failure.
        backlog: a run that is due for longer, and not begun, is a backlog; seconds, or text as ``"10m"``.

    Raises:
        InvalidOption: an unknown event, an invalid target, or an invalid ``in_row``.
        MissingExtra: the URL needs ``apprise``.
    """

    def __init__(
        self,
        target: Target,
        *,
        on: Sequence[str] = DEFAULT_EVENTS,
        jobs: str | Sequence[str] = "*",
        name: str | None = None,
        secret: str | None = None,
        in_row: int = 1,
        backlog: Duration = DEFAULT_BACKLOG,
    ) -> None:
        check_target(target)
        on, jobs = _read_texts(on, "on=['failed', 'missed']"), _read_texts(jobs, "jobs='billing-*'")
        for event in on:
            if event not in EVENTS:
                raise InvalidOption(describe_unknown_option(event, EVENTS, where="on=[…] of an Alert", instead={}))
        if not on:
            raise InvalidOption("Alert(on=[]) tells of nothing; name events, as on=['failed', 'missed']")
        if not jobs or jobs == ("",):
            raise InvalidOption("Alert(jobs=[]) is about no job; leave it out for all of them")
        if name is not None and not _NAME.fullmatch(str(name)):
            raise InvalidOption(f"Alert(name={name!r}): text of letters, digits, '.', '_' and '-'")
        if not isinstance(secret, str | None):
            raise InvalidOption("Alert(secret=…): write text in quotes")
        self.target = target
        self.on = on
        self.jobs = jobs
        self.name: str = _name_target(target) if name is None else str(name)
        self.secret = secret
        self.in_row: int = _read_row(in_row)
        self.backlog: timedelta = parse_duration(backlog, what="backlog")

    def wants_event(self, event: Event) -> bool:
        """Whether this alert is about an event. The end of a condition counts if its beginning does."""
        began = event.key.split(":")[1] if event.event == "recovered" else event.event
        return {event.event, began} <= set(self.on) and (
            event.job is None or any(fnmatchcase(event.job, pattern) for pattern in self.jobs)
        )

    def fits_none(self, jobs: Iterable[str]) -> bool:
        """Whether it is about jobs, but about none of these."""
        about = set(self.on) - {"node_lost"}
        return bool(about) and not any(fnmatchcase(job, pattern) for job in jobs for pattern in self.jobs)

    @property
    def shown_target(self) -> str:
        """The target as it may be shown to anybody."""
        target = self.target
        return mask_target(target) if isinstance(target, str) else getattr(target, "__name__", "a function")

    def __repr__(self) -> str:
        return f"<Alert {self.name}: {', '.join(self.on)} of {', '.join(self.jobs)} to {self.shown_target}>"


def read_alerts(setting: str | Sequence[Mapping[str, Any]]) -> list[Alert]:
    """Return the alerts that a setting names: ``"URL on=failed,missed jobs=a-*; URL …"``, or tables of the same words.

    Raises:
        InvalidOption: an unknown word, or an invalid alert.
    """
    if not isinstance(setting, str):
        return [_read_options(dict(options)) for options in setting]
    return [_read_options(_read_words(options)) for options in setting.split(";") if options.strip()]


def _read_words(text: str) -> dict[str, Any]:
    target, *options = text.split()
    options_by_name: dict[str, Any] = {"target": target}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise InvalidOption(
                f"alerts: {option!r} after {mask_target(target)!r} is no option; write on=failed,missed without spaces"
            )
        options_by_name[name] = value.split(",") if name in {"on", "jobs"} else value
    return options_by_name


def _read_options(options: dict[str, Any]) -> Alert:
    known = {"target", "on", "jobs", "name", "secret", "in_row", "backlog"}
    for name in options:
        if name not in known:
            raise InvalidOption(describe_unknown_option(name, known, where="an alert of the settings", instead={}))
    if "target" not in options:
        raise InvalidOption("an alert of the settings has no target; write target='https://hooks.example/…'")
    return Alert(options.pop("target"), **options)


def _read_texts(value: Any, example: str) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for text in texts:
        if not isinstance(text, str):
            raise InvalidOption(f"Alert({example.partition('=')[0]}=…): {text!r} is no text; write {example}")
    return texts


def _read_row(value: Any) -> int:
    try:
        row = int(value)
    except (TypeError, ValueError):
        row = 0
    if isinstance(value, bool) or not 1 <= row <= MOST_IN_ROW:
        raise InvalidOption(f"Alert(in_row={value!r}): a number of failures, from 1 to {MOST_IN_ROW}")
    return row


def _name_target(target: Target) -> str:
    if not isinstance(target, str):
        name = re.sub(r"[^\w.-]", "-", getattr(target, "__qualname__", type(target).__name__))
        return name.strip("-")[:100] or "function"
    scheme = target.partition(":")[0]
    # In URLs of other services the host is a secret, too.
    host = urlsplit(target).hostname if scheme.lower() in {"http", "https", "mailto"} else None
    host = re.sub(r"[^\w.-]", "-", host or scheme)
    return f"{host[:60]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
