"""Read the URL of a Redis store: its options, defaults and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from cronsensus.errors import InvalidOption
from cronsensus.model.job import unknown_option
from cronsensus.timing.durations import parse_duration

Kind = Literal["server", "sentinel", "cluster"]

_SCHEME = re.compile(r"redis(s?)(?:\+(sentinel|cluster))?")
_PLACE = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::(\d*))?")
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_PORTS: dict[Kind, int] = {"server": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    """What a URL says. Passwords do not show in ``repr``.

    Attributes:
        kind: a server, the Sentinels that know the master, or some servers of a Cluster.
        hosts: addresses of the servers or of the Sentinels.
        service: what Sentinels call the master.
        tls: options for the driver; ``None``: no TLS.
        prefix: what the names of all keys begin with.
        min_replicas: how many replicas must have a write before it counts as done.
        replica_timeout: seconds to wait for them.
        timeout: seconds to wait for an answer.
        connect_timeout: seconds to wait for a connection.
    """

    kind: Kind
    hosts: tuple[tuple[str, int], ...]
    database: int = 0
    service: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    tls: dict[str, Any] | None = None
    prefix: str = "cronsensus"
    min_replicas: int = 0
    replica_timeout: float = 1.0
    timeout: float = 5.0
    connect_timeout: float = 3.0

    @property
    def where(self) -> str:
        """The place, as errors name it: without user and password."""
        scheme = "redis" if self.tls is None else "rediss"
        if self.kind != "server":
            scheme += f"+{self.kind}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        service = f"/{self.service}" if self.service else ""
        return f"{scheme}://{hosts}{service}" + (f"/{self.database}" if self.kind != "cluster" else "")


def read_url(url: str) -> RedisUrl:
    """Read one of these; ``rediss`` in place of ``redis`` asks for TLS.

    ::

        redis://[[user]:password@]host[:6379][/database]
        redis+sentinel://[[user]:password@]host[:26379][,host…]/service[/database]
        redis+cluster://[[user]:password@]host[:6379][,host…]

    Raises:
        InvalidOption: it names no server, or an option that does not exist. The message never shows the URL.
    """
    rest, _, query = url.partition("?")
    scheme, separator, rest = rest.partition("://")
    match = _SCHEME.fullmatch(scheme)
    if not match or not separator:
        raise InvalidOption(
            f"the URL of a Redis store begins with redis:// (or rediss:// for TLS), not with {scheme[:30]!r}"
        )
    kind: Kind = "server" if match[2] is None else "sentinel" if match[2] == "sentinel" else "cluster"
    credentials, _, rest = rest.rpartition("@")
    places, _, path = rest.partition("/")
    hosts = tuple(_read_host(place, _PORTS[kind]) for place in places.split(","))
    if kind == "server" and len(hosts) > 1:
        raise InvalidOption(
            "a redis:// URL names one server; for several write redis+sentinel://… or redis+cluster://…"
        )
    username, _, password = credentials.partition(":")
    parsed = RedisUrl(
        kind=kind,
        hosts=hosts,
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls={} if match[1] else None,
    )
    parsed = _with_path(parsed, path)
    for option, value in parse_qsl(query, keep_blank_values=True):
        parsed = _with_option(parsed, option, value)
    return parsed


def _read_host(place: str, port: int) -> tuple[str, int]:
    match = _PLACE.fullmatch(place)
    if match is None:
        raise InvalidOption("the URL names no server; write redis://host, redis://host:6379 or redis://[::1]:6379")
    name, port_text = match[1] or match[2], match[3]
    if port_text and not 0 < int(port_text) < 65536:
        raise InvalidOption(f"the port {port_text} in the URL is none; ports go from 1 to 65535")
    return unquote(name) or "localhost", int(port_text) if port_text else port


def _with_path(parsed: RedisUrl, path: str) -> RedisUrl:
    path = path.strip("/")
    if parsed.kind == "sentinel":
        service, _, path = path.partition("/")
        if not service:
            raise InvalidOption(
                "a redis+sentinel:// URL ends with what the Sentinels call the master: …/mymaster, or …/mymaster/0"
            )
        parsed = replace(parsed, service=unquote(service))
    if not path:
        return parsed
    if parsed.kind == "cluster" and path != "0":
        raise InvalidOption(f"a Cluster has no databases; leave out /{path[:30]}")
    if not path.isdigit():
        raise InvalidOption(f"/{path[:30]} in the URL is no number of a database; write /0 or leave it out")
    return replace(parsed, database=int(path))


def _with_option(parsed: RedisUrl, option: str, value: str) -> RedisUrl:
    if option in _TEXTS:
        return replace(parsed, **{option: _TEXTS[option](value)})
    if option in _TIMES:
        duration = parse_duration(value, what=option)
        if duration <= timedelta(0):
            raise InvalidOption(f"{option}={value[:30]!r}: without a limit a dead server would never be noticed")
        changed: dict[str, Any] = {option: duration.total_seconds()}
        return replace(parsed, **changed)
    if option in _TLS:
        if parsed.tls is None:
            raise InvalidOption(f"{option} is about TLS; begin the URL with rediss")
        return replace(parsed, tls=parsed.tls | _TLS[option](value))
    raise unknown_option(option, {*_TEXTS, *_TIMES, *_TLS}, where="a Redis URL")


def _read_prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise InvalidOption(f"prefix={value[:80]!r}: use 1 to 64 letters, digits and any of . _ : -")
    return value


def _min_replicas(value: str) -> int:
    if not value.isdigit() or int(value) > 100:
        raise InvalidOption(f"min_replicas={value[:30]!r}: a whole number, 0 for none")
    return int(value)


def _read_verify(value: str) -> dict[str, Any]:
    if value.lower() in {"1", "true", "yes", "on"}:
        return {}
    if value.lower() in {"0", "false", "no", "off"}:
        return {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    raise InvalidOption(f"verify={value[:30]!r}: yes or no")


_TEXTS: dict[str, Callable[[str], Any]] = {
    "prefix": _read_prefix,
    "min_replicas": _min_replicas,
    "sentinel_username": str,
    "sentinel_password": str,
}
_TIMES = {"replica_timeout", "timeout", "connect_timeout"}
_TLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "ca_certs": lambda value: {"ssl_ca_certs": value},
    "certfile": lambda value: {"ssl_certfile": value},
    "keyfile": lambda value: {"ssl_keyfile": value},
    "verify": _read_verify,
}
