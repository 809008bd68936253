"""What MySQL's and MariaDB's errors mean: what happened, why, and the next thing to type."""

from __future__ import annotations

from pymysql.constants import CR, ER
from pymysql.err import InterfaceError, MySQLError

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
from cronsensus.stores.sql.mysql.mysql_url import MysqlUrl

# Numbers of both servers, some of which PyMySQL has no names for.
_TRY_AGAIN = {ER.LOCK_DEADLOCK, 1020, 1412}  # changed since it was read: a row; a table, by a migration
_NO_SPACE = {ER.DISK_FULL, ER.RECORD_FILE_FULL}
_NO_SPACE_TEXTS = ("No space left on device", "Got error 28 from storage engine", "(Errcode: 28 ", "error: 28 ")

_PARTED, _NO_COMMIT = 1047, 1180
_CUT = {
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    CR.CR_SERVER_LOST_EXTENDED,
    ER.SERVER_SHUTDOWN,
    1158,  # the server could not read from the connection; or not in time
    1159,
    1160,  # nor write to it
    1161,
    1927,  # it was ended by KILL (MariaDB); MySQL says "server lost"
    4031,  # it lay idle for too long (MySQL)
    _PARTED,  # Galera: this server is parted from its cluster; another one may be behind the same address
}
_NO_CONNECTION = {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST}
_REFUSED = {ER.ACCESS_DENIED_ERROR, 1698}
_NOT_ALLOWED = {ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR}
_TOO_MANY = {ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED}
_READ_ONLY = {ER.OPTION_PREVENTS_STATEMENT, 1836, 1792}
_NO_SCHEMA = {ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}
_TOOK_TOO_LONG = {ER.QUERY_INTERRUPTED, 1969, 3024}  # by KILL QUERY; by a limit of MariaDB's; of MySQL's
_NO_VALUE = {
    ER.WARN_DATA_OUT_OF_RANGE,
    ER.DATA_TOO_LONG,
    1265,  # cut off
    1366,  # no text of this column's kind
    1406,
    1690,  # out of range in an expression
    3988,  # cannot be converted to the character set
}
_DAMAGED = {126, 127, 134, 144, 145, ER.NOT_KEYFILE, ER.CRASHED_ON_USAGE, ER.CRASHED_ON_REPAIR, 1712, 1877}


def code_of(error: BaseException) -> int:
    """Return the number of an error; 0: it has none."""
    code = error.args[0] if isinstance(error, MySQLError) and error.args else 0
    return code if isinstance(code, int) else 0


def is_connection_error(error: BaseException) -> bool:
    """Whether the connection is gone, so that whatever was not committed is gone with it."""
    return code_of(error) in _CUT or (isinstance(error, InterfaceError) and code_of(error) == 0)


def is_duplicate_key_error(error: BaseException) -> bool:
    """Whether a unique key let another row in."""
    return code_of(error) == ER.DUP_ENTRY


def try_again(error: BaseException, url: MysqlUrl) -> TryAgain | None:
    """Return what is raised when InnoDB undid something in favour of another transaction; ``None``: it did not.

    After a deadlock InnoDB has rolled back everything; after a lock wait that was too long, only the last statement:
    the caller rolls back the rest.
    """
    code, answer = code_of(error), mask(_text_of(error), secrets=url.secrets)
    if code in _TRY_AGAIN:
        return TryAgain(
            f"{url.where}: two transactions stood in each other's way, again and again ({answer}); try later"
        )
    if code == ER.LOCK_WAIT_TIMEOUT:
        return TryAgain(
            f"{url.where}: another transaction held a lock for longer than {url.lock_timeout} s; see whose: "
            f'{url.client} -e "SHOW ENGINE INNODB STATUS", or allow more: ?timeout='
        )
    return None


def translate_error(error: BaseException, url: MysqlUrl) -> CronsensusError | None:
    """Return what ``error``, met while working on ``url``, means to the user; ``None``: it is a mistake of ours."""
    if not isinstance(error, MySQLError):
        return None
    again = try_again(error, url)
    if again is not None:
        return again
    code, answer = code_of(error), mask(_text_of(error), secrets=url.secrets)
    if code in _NO_CONNECTION:
        return _not_reached(answer, url)
    if code == _PARTED:
        return StoreUnavailable(f"{url.where} is not part of its cluster just now ({answer}); it is tried again")
    if is_connection_error(error):
        return StoreUnavailable(
            f"{url.where}: the connection was lost ({answer or 'it is closed'}); it is tried again. Look: {url.client}"
        )
    if code in _NO_VALUE:
        return InvalidOption(f"{url.where} cannot keep this value: {answer}")
    return _of_access(code, answer, url) or _of_state(code, answer, url) or _of_settings(code, answer, url)


def _not_reached(answer: str, url: MysqlUrl) -> StoreUnavailable:
    if "refused" in answer or "No such file" in answer:
        return StoreUnavailable(
            f"{url.where}: no server listens there ({answer}); start it, or correct host and port. Look: {url.client}"
        )
    if any(words in answer for words in ("Name or service", "name resolution", "nodename", "getaddrinfo")):
        return StoreUnavailable(f"{url.where}: the host's name leads nowhere ({answer}); correct it in the URL")
    return StoreUnavailable(
        f"{url.where} did not answer in time ({answer}); is the host right, and does a firewall let you through? "
        f"Look: {url.client}"
    )


def _of_access(code: int, answer: str, url: MysqlUrl) -> StoreError | None:
    """Return what an error of logging in, or of rights, means."""
    where = url.where
    if code in _REFUSED:
        return StoreRefused(
            f"{where} refused the user or the password ({answer}); correct them in the URL, with special characters "
            f"as %XX. Try: {url.client} {url.database}"
        )
    if code in _NOT_ALLOWED:
        return StoreRefused(
            f"{where}: this user may not do that ({answer}); as an administrator: "
            f"GRANT ALL ON `{url.database}`.* TO {url.user or 'USER'!r}"
        )
    if code == ER.BAD_DB_ERROR:
        return StoreRefused(
            f'{where}: there is no such database ({answer}); make it: {url.client} -e "CREATE DATABASE {url.database}"'
        )
    if code in _TOO_MANY:
        return StoreUnavailable(
            f"{where} has no connection left ({answer}). A node keeps 3 open, its locks and guarded functions up to 2 "
            "each (docs/stores.md): raise max_connections, or the limit of this user. See who has them: "
            f'{url.client} -e "SHOW PROCESSLIST"'
        )
    return None


def _of_state(code: int, answer: str, url: MysqlUrl) -> StoreError | None:
    """Return what an error of the server's disk, role or tables means."""
    where = url.where
    if code in _NO_SPACE or any(words in answer for words in _NO_SPACE_TEXTS):
        return StoreFull(
            f"{where}: the server's disk is full ({answer}); free some space there, or keep less: cronsensus db prune. "
            "Nothing was half written"
        )
    if code == _NO_COMMIT:
        return StoreUnavailable(f"{where} could not commit ({answer}); it is tried again. Look: {url.client}")
    if code in _READ_ONLY:
        return StoreReadOnly(
            f"{where} can be read but not written ({answer}): it is a replica, or read-only by setting; "
            "name the primary in the URL"
        )
    if code in _NO_SCHEMA:
        return no_schema(url)
    if code in _DAMAGED:
        return StoreCorrupt(f"{where}: data of the server is damaged ({answer}); see its log, and restore a backup")
    if code in _TOOK_TOO_LONG:
        return StoreBusy(
            f"{where}: a statement took longer than {url.timeout:g} s and was cancelled ({answer}); "
            "nothing of it was written. Look at the server's load, or allow more: ?timeout="
        )
    return None


def _of_settings(code: int, answer: str, url: MysqlUrl) -> StoreError | None:
    """Return what an error means that settings of the server are the cause of."""
    where = url.where
    if code == ER.NET_PACKET_TOO_LARGE:
        return StoreUnavailable(
            f"{where}: the server takes no statement that long ({answer}); raise it: "
            f'{url.client} -e "SET GLOBAL max_allowed_packet = 16777216"'
        )
    if code == 1665:
        return StoreRefused(
            f"{where}: the server's binlog_format=STATEMENT cannot record transactions at READ COMMITTED ({answer}); "
            "set binlog_format=ROW or MIXED in its configuration"
        )
    if code in {ER.UNKNOWN_STORAGE_ENGINE, ER.FEATURE_DISABLED}:
        return StoreRefused(
            f"{where}: the server runs without InnoDB ({answer}), and nothing else there has transactions; "
            "enable it in the server's configuration"
        )
    return None


def no_schema(url: MysqlUrl) -> SchemaMissing:
    """Return the error for a database that holds no tables of ours, or only some."""
    return SchemaMissing(
        f"{url.where} holds no cronsensus schema, or an older one; create or upgrade it: cronsensus db upgrade"
    )


def _text_of(error: BaseException) -> str:
    text = str(error.args[-1]) if error.args else ""
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
