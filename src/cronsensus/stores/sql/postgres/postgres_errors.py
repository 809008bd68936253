"""What PostgreSQL's errors mean: what happened, why, and the next thing to type."""

from __future__ import annotations

import psycopg

from cronsensus.errors import (
    CronsensusError,
    InvalidOption,
    SchemaMissing,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from cronsensus.security.masking import mask
from cronsensus.stores.sql.dialect import TryAgain
from cronsensus.stores.sql.postgres.postgres_driver import NoAnswer
from cronsensus.stores.sql.postgres.postgres_url import PostgresUrl

_CUT = {"57P01", "57P02", "57P05", "25P03", "25P04"}
"""The server ended the connection: shut down, crashed, idle for too long in or out of a transaction."""
_GONE = {"08", "53", "57", "58"}
"""Classes of errors after which the same may work in a while."""

_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "40P01": (TryAgain, "two transactions stood in each other's way, again and again ({answer}); try later"),
    # The server ended it before it had the COMMIT, if one was on its way: nothing of it was written.
    "25P03": (
        TryAgain,
        (
            "this process stood still in a transaction, and the server ended it ({answer}), again and again: look what "
            "holds the process up, such as the load of this machine"
        ),
    ),
    "55P03": (
        StoreBusy,
        (
            "another transaction held a lock for longer than {half:g} s; see who: SELECT * FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock'; or allow more with ?timeout="
        ),
    ),
    "25P02": (
        StoreBusy,
        (
            "a statement before this one failed, so your transaction can only be rolled back ({answer}); what may fail "
            "and be gone on from goes into a savepoint"
        ),
    ),
    "57014": (
        StoreBusy,
        (
            "a statement took longer than {timeout:g} s and was cancelled; nothing of it was written. Look at the "
            "server's load, or allow more with ?timeout="
        ),
    ),
    "28P01": (
        StoreRefused,
        (
            "the server refused the user or the password ({answer}); correct them in the URL, "
            "in PGPASSWORD or ~/.pgpass, and see pg_hba.conf there"
        ),
    ),
    "3D000": (StoreRefused, "there is no such database ({answer}); make it: createdb {address} {database}"),
    "53300": (
        StoreUnavailable,
        (
            "the server has no connection left ({answer}). A node keeps 4 open, its locks and guarded functions up to "
            "3 each (docs/stores.md): raise max_connections, or put a pooler in front. See who has them: "
            "SELECT application_name, usename, count(*) FROM pg_stat_activity GROUP BY 1, 2"
        ),
    ),
    "53100": (
        StoreFull,
        (
            "the server's disk is full ({answer}); free some space there, or keep less: cronsensus db prune. "
            "Nothing was half written"
        ),
    ),
    "25006": (
        StoreReadOnly,
        (
            "it can be read but not written ({answer}): a standby, or read-only by a setting; name the primary, or "
            "several hosts with ?target_session_attrs=read-write"
        ),
    ),
    "42501": (
        StoreRefused,
        (
            "this user may not do that ({answer}); as the owner: GRANT ALL ON SCHEMA {schema} TO {user}; and on all "
            "tables and sequences in it (for the schema to be made: GRANT CREATE ON DATABASE)"
        ),
    ),
    "42P01": (
        SchemaMissing,
        "there is no cronsensus schema, or an older one; create or upgrade it: cronsensus db upgrade",
    ),
    "57P03": (StoreUnavailable, "the server is starting up or shutting down ({answer}); it is tried again"),
    "XX001": (StoreCorrupt, "data of the server is damaged ({answer}); see its log, and restore a backup"),
    "no name": (StoreUnavailable, "the host's name leads nowhere ({answer}); correct it in the URL"),
    "no server": (
        StoreUnavailable,
        "no server listens there ({answer}); start it, or correct host and port. Look: pg_isready {address}",
    ),
    "silent": (
        StoreUnavailable,
        (
            "no answer came in time ({answer}); is the server hung, or cut off from here by a firewall? "
            "Look: pg_isready {address}; if statements may take that long, allow more with ?timeout="
        ),
    ),
    "lost": (StoreUnavailable, "the connection was lost or could not be made ({answer}); it is tried again"),
}
_SAME = {
    "40001": "40P01",
    "28000": "28P01",
    "53400": "53300",
    "3F000": "42P01",
    "42703": "42P01",
    "XX002": "XX001",
}
# While a connection is made, libpq passes on what the server says, but not the code.
_WORDS = (
    ("too many clients", "53300"),
    ("too many connections", "53300"),
    ("remaining connection slots", "53300"),
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28P01"),
    ('role "', "28P01"),
    ('database "', "3D000"),
    ("starting up", "57P03"),
    ("shutting down", "57P03"),
    ("could not translate host name", "no name"),
    ("failed to resolve host", "no name"),
    ("timeout expired", "silent"),
    ("timed out", "silent"),
    ("Connection refused", "no server"),
    ("No such file or directory", "no server"),
)


def is_connection_error(error: BaseException) -> bool:
    """Whether the connection is gone, so that whatever was not committed is gone with it."""
    code = error.sqlstate if isinstance(error, psycopg.Error) else None
    if code is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return code.startswith("08") or code in _CUT


def is_duplicate_key_error(error: BaseException) -> bool:
    """Whether a unique key let another row in."""
    return isinstance(error, psycopg.errors.UniqueViolation)


def translate_error(error: BaseException, url: PostgresUrl) -> CronsensusError | None:
    """Return what ``error``, met while working on ``url``, means to the user; ``None``: it is a mistake of ours."""
    if not isinstance(error, psycopg.Error):
        return None
    kind = _kind_of(error)
    if kind is None:
        if isinstance(error, psycopg.DataError):
            return InvalidOption(f"{url.where} cannot keep this value: {mask(_first_line(error), secrets=url.secrets)}")
        return None
    parameters = url.connection
    meaning, text = _MEANINGS[kind]
    answer = text.format(
        answer=mask(_first_line(error), secrets=url.secrets),
        timeout=url.timeout,
        half=url.timeout / 2,
        schema=url.schema,
        user=parameters.get("user", "this user"),
        database=parameters.get("dbname", "NAME"),
        address=" ".join(
            f"-{flag} {parameters[name]}" for flag, name in (("h", "host"), ("p", "port")) if name in parameters
        ),
    )
    return meaning(f"{url.where}: {answer}")


def _kind_of(error: psycopg.Error) -> str | None:
    """Return which of the meanings an error has."""
    if isinstance(error, NoAnswer):
        return "silent"
    code = error.sqlstate
    if code is None:
        if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            return None
        text = str(error)
        return next((kind for words, kind in _WORDS if words in text), "lost")
    code = _SAME.get(code, code)
    if code in _MEANINGS:
        return code
    return "lost" if code in _CUT or code[:2] in _GONE else None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
