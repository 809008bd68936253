"""What the driver's errors mean: what happened, why, and the next thing to type."""

from __future__ import annotations

import re

from redis import exceptions

from cronsensus.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)

_CODE = re.compile(
    r"\b(OOM|READONLY|MISCONF|NOREPLICAS|NOPERM|WRONGTYPE|BUSY|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|(?:MOVED|ASK)(?= \d))\b"
)
_MOVED = re.compile(r"(?:MOVED )?\d+ (.*):(\d+)")
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MovedError, "MOVED"),  # a kind of AskError
    (exceptions.AskError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
)
_OF_SCRIPT = re.compile(r"attempt to|bad argument|Expected .* found|not an integer|not a valid float")
"""What Lua says of a value that is not of its kind."""
_NON_LOCAL = "non local key"
"""What a script hears of a key that a Cluster is moving away."""


class Refusal(Exception):
    """A script refused: it wrote nothing. Never leaves this package."""

    def __init__(self, word: str, rest: str) -> None:
        super().__init__(f"{word} {rest}")
        self.word = word
        self.rest = rest


SCHEMA = 5
"""See lua/base.lua."""
REFUSALS = {
    "LEASELOST", "UNKNOWNJOB", "RETIRED", "TOOOLD", "TOOEARLY", "TOOLARGE", "NOTTHERE", "FINAL", "ACTIVE", "RUNNING",
    "AGAIN", "SCHEMA", "SETBACK", "ELSEWHERE",
}  # fmt: skip


def refusal_of(error: exceptions.ResponseError) -> Refusal | None:
    """Return what a script of ours refused; ``None``: the error is the server's."""
    word, _, rest = str(error).partition(" ")
    return Refusal(word, rest) if word in REFUSALS else None


def code_of(error: exceptions.ResponseError) -> str:
    """Return the server's word for an error.

    Some drivers have a class for it and cut the word off, others leave it in the text; and servers before 7 wrap it in
    the place of the script where it happened.
    """
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    match = _CODE.search(str(error))
    if match:
        return "TRYAGAIN" if match[1] == "ASK" else match[1]
    return "TRYAGAIN" if _NON_LOCAL in str(error) else ""


def moved_to(error: exceptions.ResponseError) -> tuple[str, int] | None:
    """Return the address to which a Cluster refers; ``None``: the error is none of that kind."""
    match = _MOVED.fullmatch(str(error)) if code_of(error) == "MOVED" else None
    return None if match is None else (match[1], int(match[2]))


def translate_error(error: Exception, where: str) -> StoreError:
    """Return what ``error``, met while talking to the store at ``where``, means to the user."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable(f"{where} still loads its data set into memory; wait until it has")
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return StoreRefused(f"{where} refuses the user or the password ({text}); correct them in the URL")
    if isinstance(error, exceptions.MaxConnectionsError):
        return StoreUnavailable(f"{where}: too many threads of this process use the store at once ({text})")
    if isinstance(error, exceptions.TimeoutError):
        return StoreUnavailable(
            f"{where} did not answer in time ({text}); whether it did what it was asked is unknown. If it is only "
            "slow, allow more with ?timeout="
        )
    if isinstance(error, exceptions.ResponseError):
        return _meaning_of_answer(code_of(error), text, where)
    return StoreUnavailable(f"{where} cannot be reached ({text}); start it, or correct the URL")


def _meaning_of_answer(code: str, text: str, where: str) -> StoreError:
    """Return the meaning of an error that the server answered."""
    match code:
        case "OOM":
            return StoreFull(
                f"{where} has used up its memory and refuses to write; give it more: CONFIG SET maxmemory …, or keep "
                "less: cronsensus db prune, which works now too"
            )
        case "READONLY":
            return StoreReadOnly(
                f"{where} is a replica, which can be read but not written; name the master in the URL, or the "
                "Sentinels that know it: redis+sentinel://…/service"
            )
        case "MISCONF":
            return StoreUnavailable(
                f"{where} cannot save to its disk and refuses to write; free some space there, "
                f"and look at the server's log ({text})"
            )
        case "NOREPLICAS":
            return StoreUnavailable(
                f"{where} has fewer healthy replicas than its min-replicas-to-write and refuses to write; start them"
            )
        case "NOPERM":
            return StoreRefused(
                f"{where} does not allow this user what is needed ({text}); allow scripts, the keys of the prefix and "
                "its channel: ACL SETUSER … +@all -@admin -@dangerous +info ~{prefix:* resetchannels &{prefix:*"
            )
        case "WRONGTYPE":
            return StoreCorrupt(
                f"{where} holds a key of ours that is not of our making ({text}); choose another prefix: ?prefix="
            )
        case "BUSY":
            return StoreBusy(f"{where} is busy with a long script of another client; look at its log, or: SCRIPT KILL")
        case "CLUSTERDOWN":
            return StoreUnavailable(
                f"{where}: the Cluster has lost part of its slots ({text}); redis-cli --cluster check"
            )
        case "TRYAGAIN":
            return StoreUnavailable(
                f"{where}: the Cluster is moving our slot to another server; nothing is written until it has"
            )
        case "MASTERDOWN":
            return StoreUnavailable(f"{where} is a replica that has lost its master; wait for the failover")
        case "MOVED":
            return StoreRefused(f"{where} belongs to a Cluster; write redis+cluster:// in place of redis://")
        case _:
            return _unknown_error(text, where)


def _unknown_error(text: str, where: str) -> StoreError:
    if _OF_SCRIPT.search(text):
        return StoreCorrupt(
            f"{where} holds what this version cannot read ({text[:200]}); upgrade cronsensus here, or mend it by hand"
        )
    return StoreUnavailable(f"{where} answered with an error: {text}")


def other_schema(version: str, where: str, keyspace: str) -> SchemaMismatch:
    """Return the error for what another version of cronsensus wrote."""
    if version.isdecimal() and len(version) < 5 and int(version) < SCHEMA:
        return SchemaMismatch(
            f"{where} holds {keyspace} in version {version} of the schema, made before cronsensus 0.1.0, and no "
            "release can upgrade it; make a new one: name another prefix in its URL, as redis://HOST/0?prefix=shop"
        )
    return SchemaMismatch(
        f"{where} holds {keyspace} in version {version[:20]} of the schema, which is newer than this cronsensus knows; "
        "upgrade cronsensus here"
    )
