"""The URL of a MySQL store: its options, defaults and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from cronsensus.errors import InvalidOption
from cronsensus.model.job import unknown_option
from cronsensus.security.masking import mask
from cronsensus.timing.durations import parse_duration

PORT = 3306
TIMEOUT = 10.0
CONNECT_TIMEOUT = 5.0
LEAST_TIMEOUT = 2.0
"""Seconds. A wait for a lock ends at half of it, and the server counts that in whole seconds."""
_TLS_TEXTS = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password"}
_TLS_FLAGS = {"ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"}
_FILES = {"unix_socket", "read_default_file"}
_OPTIONS = {"timeout", "connect_timeout", "charset"} | _FILES | _TLS_TEXTS | _TLS_FLAGS
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class MysqlUrl:
    """A parsed URL.

    Attributes:
        timeout: seconds after which a statement is ended; a wait for a row's lock ends at half of it.
        connect_timeout: seconds to reach the server.
        driver: further settings of PyMySQL, by its own names: TLS, a socket file, a file of options.
    """

    host: str
    port: int
    database: str
    user: str | None = None
    password: str = field(default="", repr=False)
    timeout: float = TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT
    driver: Mapping[str, str | bool] = field(default_factory=dict, repr=False)

    @property
    def where(self) -> str:
        """Return the store's name in messages, without the password."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        socket = self.driver.get("unix_socket")
        return f"mysql://{user}{host}:{self.port}/{self.database}" + (f"?unix_socket={socket}" if socket else "")

    @property
    def lock_timeout(self) -> int:
        """Return the seconds after which a wait for a row's lock ends."""
        return max(1, round(self.timeout / 2))

    @property
    def client(self) -> str:
        """Return the beginning of a command line that reaches the same server."""
        socket = self.driver.get("unix_socket")
        place = f"-S {socket}" if socket else f"-h {self.host} -P {self.port}"
        return f"mysql {place} -u {self.user or 'USER'} -p"

    @property
    def secrets(self) -> tuple[str, str]:
        """Return the texts to mask in messages of the server."""
        return self.password, str(self.driver.get("ssl_key_password", ""))


def read_url(url: str) -> MysqlUrl:
    """Read ``mysql://user:password@host:3306/database`` (or ``mariadb://…``), with options.

    Raises:
        InvalidOption: it cannot be read, has no database, or has an unknown option. The message never has the password.
    """
    head, _, query = url.partition("?")
    try:
        parts = urlsplit(head)
        several = "," in parts.netloc.rpartition("@")[2]
        host, port = parts.hostname, None if several else parts.port
    except ValueError:
        # The error's message may contain the password.
        raise InvalidOption(
            f"the URL {mask(head)} cannot be read; write mysql://user:password@host:3306/database, "
            "with special characters of the password as %XX"
        ) from None
    if several:
        raise InvalidOption(
            f"the URL {mask(head)} names several hosts, and of MySQL and MariaDB one server may be written to at "
            "a time; name a proxy that leads to it (docs/stores.md, Failovers)"
        )
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or parts.fragment:
        raise InvalidOption(
            f"the URL {mask(head)} names no database; write mysql://user:password@host:3306/database, "
            "with special characters of the password as %XX"
        )
    parsed = MysqlUrl(
        host=unquote(host or "localhost"),
        port=port or PORT,
        database=database,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
    )
    for option, value in parse_qsl(query, keep_blank_values=True):
        parsed = _with_option(parsed, option, value)
    return parsed


def _with_option(url: MysqlUrl, option: str, value: str) -> MysqlUrl:
    if option not in _OPTIONS:
        raise unknown_option(option, _OPTIONS, where="a MySQL URL")
    if option == "timeout":
        timeout = _read_seconds(option, value)
        if timeout < LEAST_TIMEOUT:
            raise InvalidOption(f"timeout={value!r}: give a statement at least {LEAST_TIMEOUT:g} s")
        return replace(url, timeout=timeout)
    if option == "connect_timeout":
        return replace(url, connect_timeout=max(1.0, _read_seconds(option, value)))
    if option == "charset":
        # Many URLs have it. It changes nothing: the store's tables and connections always use utf8mb4.
        if value.lower() != "utf8mb4":
            raise InvalidOption(f"charset={value!r}: the store is always utf8mb4; leave the option out")
        return url
    return replace(url, driver={**url.driver, option: _read_flag(option, value) if option in _TLS_FLAGS else value})


def _read_seconds(option: str, value: str) -> float:
    return parse_duration(value, what=option).total_seconds()


def _read_flag(option: str, value: str) -> bool:
    if value.lower() not in _YES | _NO:
        raise InvalidOption(f"{option}={value!r}: choose one of 'true', 'false'")
    return value.lower() in _YES
