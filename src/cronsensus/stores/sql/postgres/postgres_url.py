"""The URL of a PostgreSQL store: its options, defaults and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from cronsensus.errors import InvalidOption
from cronsensus.model.job import unknown_option
from cronsensus.security.masking import mask
from cronsensus.timing.durations import parse_duration

SCHEMA = "cronsensus"
TIMEOUT = 10.0
_PORT = "5432"
POOLERS = ("auto", "transaction", "session")
WAKES = ("inside", "after")
_OPTIONS = {"schema", "timeout", "pooler", "wake"}
_LIBPQ = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()} - {"replication", "client_encoding"}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LEAST_TIMEOUT = 0.1
_SECRET = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}

_DEFAULTS = {
    "application_name": "cronsensus",
    "connect_timeout": "5",
    # A dead peer is noticed in seconds, also by a connection that only listens.
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_DEFAULTS_OF_SEVERAL = {
    # A standby accepts connections, but no writes.
    "target_session_attrs": "read-write",
    # How long a new connection waits for each unresponsive host before the primary; libpq's minimum.
    "connect_timeout": "2",
}


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A parsed URL.

    Attributes:
        connection: parameters for libpq; the environment (``PGUSER``, ``PGPASSFILE``, …) fills in the rest.
        schema: of the tables; created by ``migrate``.
        timeout: seconds after which the server cancels a statement; a wait for a lock ends earlier, and a wait for a
            server that does not answer at all a little later.
        pooler: whether a pooler between this process and the server shares server connections among clients:
            ``"auto"`` finds out, and treats any pooler as a transaction pooler.
        wake: where a run that is enqueued in a user's transaction notifies nodes: ``"inside"`` it, which takes a lock
            of the whole server while it commits; or ``"after"`` it, if there is a hook.
    """

    connection: Mapping[str, str] = field(repr=False)
    schema: str = SCHEMA
    timeout: float = TIMEOUT
    pooler: str = "auto"
    wake: str = "inside"

    @property
    def where(self) -> str:
        """Return the store's name in messages, without the password."""
        parameters = {each.keyword.decode(): (each.val or b"").decode() for each in psycopg.pq.Conninfo.get_defaults()}
        parameters.update(self.connection)
        user, host = parameters["user"], parameters["host"] or parameters["hostaddr"] or "localhost"
        name = parameters["dbname"] or user
        if host.startswith("/"):
            place = f"{name}?{urlencode({'host': host, 'port': parameters['port']}, safe='/')}&"
            return f"postgresql://{user}@/{place}schema={self.schema}"
        hosts, ports = host.split(","), parameters["port"].split(",")
        ports = ports if len(ports) == len(hosts) else ports * len(hosts)  # one port is for all of them
        places = ",".join(f"{host}:{port or _PORT}" for host, port in zip(hosts, ports, strict=False))
        return f"postgresql://{user}@{places}/{name}?schema={self.schema}"

    @property
    def secrets(self) -> list[str]:
        """Return the texts to mask in messages of the server and libpq."""
        return [self.connection[name] for name in _SECRET if name in self.connection]


def read_url(url: str) -> PostgresUrl:
    """Read ``postgresql://user:password@host:port/database?schema=…``, with any option that libpq knows.

    Of several hosts (``host,host,host``) the one that accepts writes is used.

    Raises:
        InvalidOption: it cannot be read, or has an unknown option. The message never has the password.
    """
    head, _, query = url.partition("?")
    options = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))  # libpq reads a plus as a plus
    for name in options:
        if name not in _OPTIONS and name not in _LIBPQ:
            raise unknown_option(name, _OPTIONS | _LIBPQ, where="a PostgreSQL URL")
    passed_on = urlencode({name: value for name, value in options.items() if name not in _OPTIONS}, quote_via=quote)
    try:
        parameters = conninfo_to_dict(f"{head}?{passed_on}" if passed_on else head)
    except psycopg.Error:
        # libpq's message may contain the whole URL, with the password.
        raise InvalidOption(
            f"the URL {mask(head)} cannot be read; write postgresql://user:password@host:5432/database, "
            "with special characters of the password as %XX"
        ) from None
    connection = {name: str(value) for name, value in parameters.items() if value is not None}
    for port in connection.get("port", "").split(","):
        if port and not port.isdecimal():
            raise InvalidOption(f"the URL {mask(head)} cannot be read: {port!r} is no port number")
    has_several_hosts = "," in connection.get("host", connection.get("hostaddr", ""))
    parsed = PostgresUrl({**_DEFAULTS, **(_DEFAULTS_OF_SEVERAL if has_several_hosts else {}), **connection})
    if "schema" in options:
        parsed = replace(parsed, schema=_read_identifier(options["schema"]))
    if "timeout" in options:
        timeout = parse_duration(options["timeout"], what="timeout").total_seconds()
        if timeout < _LEAST_TIMEOUT:
            raise InvalidOption(f"timeout={options['timeout']!r}: give a statement at least {_LEAST_TIMEOUT:g} s")
        parsed = replace(parsed, timeout=timeout)
    if "pooler" in options:
        parsed = replace(parsed, pooler=_read_choice("pooler", options["pooler"], POOLERS))
    if "wake" in options:
        parsed = replace(parsed, wake=_read_choice("wake", options["wake"], WAKES))
    return parsed


def _read_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidOption(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}")
    return value


def _read_identifier(name: str) -> str:
    if not _IDENTIFIER.fullmatch(name) or name.lower().startswith("pg_"):
        raise InvalidOption(
            f"schema={name!r}: use up to 63 letters, digits and underscores, not beginning with a digit or pg_"
        )
    return name
