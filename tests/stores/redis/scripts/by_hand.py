"""What stands in a space, written by hand, and one script that runs on it alone.

The tests with it are for what the suite of stores cannot see: the keys that a script leaves behind, damaged rows, the
size of a page, and what comes between a look and a write.

A state is what its keys hold: a hash, ``Scores`` (a sorted set), a set or a list. Times are counted from ``NOW``, which
is the time of the server's clock for each script.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import redis

from cronsensus.model.claim_order import level_of
from cronsensus.model.states import Origin
from cronsensus.stores.redis.redis_codec import pack, unpack_answer
from cronsensus.stores.redis.scripts import script_of

NOW = 1_800_000_000_000_000
J, K, L = "000000001", "000000002", "000000003"
"""Numbers of jobs."""
SERIAL = {"schedule", "manual", "backfill"}
FOUND_BY_STATE = {"failed", "cancelled", "skipped", "missed"}


class Scores(dict[str, Any]):
    """A sorted set: members and their scores."""


State = dict[str, Any]


class Refused(NamedTuple):
    """What a script answers that writes nothing."""

    words: str


class Case(NamedTuple):
    """What stands there, what a script is told, what it answers, and what stands there then: if None, the same."""

    name: str
    before: State
    told: tuple[Any, ...]
    answers: Any
    after: State | None = None


def by_name(case: Case) -> str:
    """Return what a case is called."""
    return case.name


def at(micros: int) -> str:
    """Return an instant, so long after NOW."""
    return str(NOW + micros)


def occurrence_id(n: int) -> str:
    """Return an occurrence's number as the keys have it."""
    return f"{n:014d}"


def merged(*parts: Mapping[str, Any]) -> State:
    """Put parts together. Later ones win; None takes a key out, or what stands in it under that name."""
    whole: State = {}
    for part in parts:
        for key, content in part.items():
            if content is None:
                whole.pop(key, None)
            elif isinstance(content, dict):
                kept = {**whole.get(key, {}), **content}
                whole[key] = type(content)({name: value for name, value in kept.items() if value is not None})
            elif isinstance(content, set) and key in whole:
                whole[key] = whole[key] | content
            else:
                whole[key] = content
    return {key: content for key, content in whole.items() if content}


def world(*parts: Mapping[str, Any]) -> State:
    """Put parts together, with the heads of their lines."""
    whole = merged(*parts)
    for key, line in list(whole.items()):
        if key.startswith("line:"):
            _, level, name = key.split(":", 2)
            head = min(line, key=lambda one: (int(line[one]), one))
            whole.setdefault(f"level:{level}", Scores())[f"{head}:{name}"] = line[head]
            whole.setdefault("levels", Scores())[level] = level
    return whole


# --- parts ------------------------------------------------------------------------------------------------------------


def meta(**fields: str | None) -> State:
    """Return what a space says of itself."""
    return merged({"meta": {"schema": "5", "token": "100", "identity": "this one"}}, {"meta": fields})


def job(number: str = J, name: str = "job", **fields: str | None) -> State:
    """Return a job that fires."""
    row = {
        "name": name, "function": "f", "source": "api", "digest": "d", "spec": f"spec of {name}", "args": "[1]",
        "kwargs": "{}", "payload": "", "revision": "1", "overlap": "skip", "priority": "0", "on_crash": "retry",
        "max_crashes": "3", "keep": "1000", "watermark": at(-100), "last_since": at(-100),
    }  # fmt: skip
    return merged({f"job:{number}": row, "names": {name: number}}, {f"job:{number}": fields})


def _occurrence(n: int, job: str, origin: str, key: str | None, row: Mapping[str, str | None]) -> State:
    number, key = occurrence_id(n), key or f"k{n}"
    level = level_of(int(row.get("priority") or 0), Origin(origin), n if row.get("parent") else None)
    base: State = {
        f"occurrence:{number}": {
            "job": job, "key": key, "origin": origin, "due": at(-10), "priority": "0", "level": str(level),
            "payload": "p", "created": at(-50),
        },
        f"job:{job}:keys": {key: number},
        f"job:{job}:ids": Scores({number: n}),
        "ids": Scores({number: n}),
    }  # fmt: skip
    whole = merged(base, {f"occurrence:{number}": row})
    if row.get("nominal"):
        whole[f"job:{job}:nominal"] = Scores({number: row["nominal"]})
    return whole


def pending(n: int, job: str = J, origin: str = "enqueue", key: str | None = None, **row: str | None) -> State:
    """Return an occurrence that waits, with what leads to it."""
    whole = _occurrence(n, job, origin, key, {"state": "pending", **row})
    number = occurrence_id(n)
    due = whole[f"occurrence:{number}"]["due"]
    kind = "s" if origin in SERIAL else "w"
    level = whole[f"occurrence:{number}"]["level"]
    indexes = {"pending": Scores({number: due}), f"line:{level}:{job}:{kind}": Scores({number: due})}
    if origin in SERIAL:
        indexes[f"job:{job}:serial"] = Scores({number: 0})
    if row.get("expires") and not int(row.get("attempt") or 0):
        indexes["expiring"] = Scores({number: row["expires"]})
    return merged(whole, indexes)


def running(
    n: int, job: str = J, origin: str = "enqueue", session: str = "s1", key: str | None = None, **row: str | None
) -> State:
    """Return an occurrence that runs, with what leads to it."""
    fields = {
        "state": "running", "attempt": "1", "token": "7", "session": session, "node": "node", "started": at(-5), **row,
    }  # fmt: skip
    number = occurrence_id(n)
    indexes: State = {
        "running": Scores({number: n}),
        f"holds:{session}": Scores({number: n}),
        "holding": Scores({session: int(session[1:])}),
        f"job:{job}:running": {number: session},
    }
    if origin in SERIAL:
        indexes |= {f"job:{job}:serial": Scores({number: 0}), f"job:{job}:busy": {number}}
    return merged(_occurrence(n, job, origin, key, fields), indexes)


def final(
    n: int, job: str = J, origin: str = "enqueue", state: str = "succeeded", key: str | None = None, **row: str | None
) -> State:
    """Return an occurrence that is over, with what leads to it."""
    fields = {"state": state, "attempt": "1", "token": "7", "session": "s1", "node": "node", "finished": at(-5), **row}
    indexes = {f"state:{state}": Scores({occurrence_id(n): n})} if state in FOUND_BY_STATE else {}
    if state in {"failed", "missed", "cancelled"}:
        indexes["unwell"] = Scores({occurrence_id(n): fields["finished"]})
    return merged(_occurrence(n, job, origin, key, fields), indexes)


def session(name: str = "s1", until: int = 1000, **fields: str | None) -> State:
    """Return a session that is open until then and knows the function f."""
    number = name[1:]
    row = {"spec": f"spec of {name}", "node": "node", "number": number, "started": at(-500), "functions": "digest"}
    whole: State = {
        f"session:{name}": row,
        f"functions:{name}": {"f"},
        "open": Scores({name: at(until)}),
        "sessions": Scores({name: number}),
    }
    return merged(whole, {f"session:{name}": fields})


def renewed(name: str = "s1", until: int = 500) -> State:
    """Return what changes of a session whose lease is set now."""
    return {"open": Scores({name: at(until)}), f"session:{name}": {"renewed": at(0)}}


def row(n: int, **fields: str | None) -> State:
    """Return a change of an occurrence's row alone."""
    return {f"occurrence:{occurrence_id(n)}": fields}


# --- on the server ----------------------------------------------------------------------------------------------------

_LOOK = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', key).ok
  local content
  if kind == 'hash' then content = redis.call('HGETALL', key)
  elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then content = redis.call('SMEMBERS', key)
  elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1)
  else content = { redis.call('GET', key) } end
  found[#found + 1] = { string.sub(key, #ARGV[1] + 1), kind, content }
end
return found
"""


class Place:
    """A space of its own on the server that all tests share, where it has few keys: in another database."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url.partition("?")[0])
        self._client = redis.Redis.from_url(urlunsplit(parts._replace(path="/9")))
        self._space = f"{{scripts-{uuid.uuid4().hex}:n}}:"

    def put(self, state: State) -> None:
        """Let this stand there, and nothing else."""
        self.empty()
        with self._client.pipeline(transaction=False) as pipe:
            for name, content in state.items():
                key = self._space + name
                if isinstance(content, Scores):
                    pipe.zadd(key, content)
                elif isinstance(content, Mapping):
                    pipe.hset(key, mapping=dict(content))
                elif isinstance(content, set):
                    pipe.sadd(key, *content)
                elif isinstance(content, list):
                    pipe.rpush(key, *content)
                else:
                    pipe.set(key, content)
            pipe.execute()

    def run(self, verb: str, *told: Any, smaller: Mapping[str, str] | None = None) -> Any:
        """Run a script; return its answer. ``smaller``: what is written in the place of a text of it."""
        text = script_of(verb).text.decode()
        for was, now in (smaller or {}).items():
            if text.count(was) != 1:
                raise ValueError(f"{verb} does not say {was!r} once")
            text = text.replace(was, now)
        try:
            answer = self._client.eval(
                text, 2, self._space + "meta", self._space + "never", pack(told), str(NOW), "", ""
            )
        except redis.ResponseError as refused:
            return Refused(str(refused))
        said, value = unpack_answer(answer)
        assert said == str(NOW)
        return value

    def stands(self) -> dict[str, str]:
        """Return what stands there, each entry by its key and its name."""
        return {
            f"{name.decode()} {entry}": value
            for name, kind, content in self._client.eval(_LOOK, 0, self._space)
            for entry, value in _entries(kind.decode(), [one.decode() for one in content])
        }

    def empty(self) -> None:
        """Take everything away."""
        if keys := self._client.keys(self._space + "*"):
            self._client.unlink(*keys)

    def close(self) -> None:
        """Let go of the server."""
        self.empty()
        self._client.close()


def flat(state: State) -> dict[str, str]:
    """Return a state as ``Place.stands`` does."""
    found: dict[str, str] = {}
    for name, content in state.items():
        if isinstance(content, Mapping):
            kind = "zset" if isinstance(content, Scores) else "hash"
            words = [str(word) for pair in content.items() for word in pair]
        else:
            kind, words = ("set" if isinstance(content, set) else "list"), [str(word) for word in content]
        found |= {f"{name} {entry}": value for entry, value in _entries(kind, words)}
    return found


def _entries(kind: str, words: Sequence[str]) -> list[tuple[str, str]]:
    match kind:
        case "hash":
            return list(zip(words[::2], words[1::2], strict=True))
        case "zset":
            return [(name, str(int(float(score)))) for name, score in zip(words[::2], words[1::2], strict=True)]
        case "set":
            return [(word, "in it") for word in words]
        case _:
            return [(str(place), word) for place, word in enumerate(words)]


def said(
    *plans: list[Any],
    notes: Sequence[Any] = (),
    outcomes: Sequence[Any] = (),
    back: Sequence[Any] = (),
    want: Sequence[Any] = (),
) -> tuple[Any, ...]:
    """Return what a step of the session s1 is told."""
    return notes, outcomes, back, plans, 0, 0, 1, False, "s1", *want


NOTHING: list[Any] = [at(0), [], []]


def done(
    *won: bool,
    noted: tuple[bool, ...] = (),
    settled: tuple[Any, ...] = (),
    back: tuple[bool, ...] = (),
    lost: bool = False,
    taken: list[Any] = NOTHING,
) -> list[Any]:
    """Return what a step answers."""
    return [list(noted), list(settled), list(back), list(won), lost, *taken]


def check(place: Place, verb: str, case: Case, **how: Any) -> None:
    """Run a script on the state of a case; see that it answers and leaves what it is to."""
    place.put(case.before)
    assert place.run(verb, *case.told, **how) == case.answers
    assert place.stands() == flat(case.before if case.after is None else case.after)
