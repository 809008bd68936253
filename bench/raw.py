"""The raw limit of a queue: claim some, finish them with the token checked and a line of history, nothing else.

``python raw.py URL fill N`` makes the tables; ``python raw.py URL work BATCH`` works them off, once stdin says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Claimed = list[tuple[int, int]]
"""Number of the job and token."""

TABLES = """
    CREATE TABLE o(id bigint PRIMARY KEY, state text NOT NULL, due bigint NOT NULL, token bigint NOT NULL,
                   attempt int NOT NULL) WITH (fillfactor=70);
    CREATE INDEX p ON o(due, id) WHERE state = 'pending';
    CREATE SEQUENCE t CACHE 1000;
    CREATE TABLE r(id bigserial PRIMARY KEY, token bigint NOT NULL, occurrence bigint NOT NULL,
                   at timestamptz NOT NULL);
    CREATE INDEX ro ON r(occurrence);
"""
CLAIM = """
    UPDATE o SET state = 'running', token = nextval('t'), attempt = attempt + 1
    FROM (SELECT id FROM o WHERE state = 'pending' ORDER BY due, id LIMIT %s FOR UPDATE SKIP LOCKED) x
    WHERE o.id = x.id RETURNING o.id, o.token
"""
FINISH = """
    WITH done AS (
        UPDATE o SET state = 'succeeded' FROM unnest(%s::bigint[], %s::bigint[]) AS g(id, token)
        WHERE o.id = g.id AND o.token = g.token AND o.state = 'running' RETURNING o.id, o.token)
    INSERT INTO r(token, occurrence, at) SELECT token, id, clock_timestamp() FROM done
"""
CLAIM_LUA = """
    local claimed = {}
    local popped = redis.call('ZPOPMIN', 'pending', ARGV[1])
    for i = 1, #popped, 2 do
        local token = redis.call('INCR', 'token')
        redis.call('HSET', 'o:' .. popped[i], 'state', 'running', 'token', token)
        redis.call('HINCRBY', 'o:' .. popped[i], 'attempt', 1)
        claimed[#claimed + 1] = tonumber(popped[i])
        claimed[#claimed + 1] = token
    end
    return claimed
"""
FINISH_LUA = """
    local done, at = 0, redis.call('TIME')[1]
    for i = 1, #ARGV, 2 do
        if redis.call('HGET', 'o:' .. ARGV[i], 'token') == ARGV[i + 1] then
            redis.call('HSET', 'o:' .. ARGV[i], 'state', 'succeeded')
            redis.call('RPUSH', 'r:' .. ARGV[i], ARGV[i + 1] .. ' ' .. at)
            done = done + 1
        end
    end
    return done
"""


def _postgres(url: str) -> tuple[Callable[[int], None], Callable[[int], Claimed], Callable[[Claimed], int]]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def fill(count: int) -> None:
        connection.execute(TABLES)
        connection.execute("INSERT INTO o SELECT n, 'pending', n, 0, 0 FROM generate_series(1, %s) n", (count,))
        connection.execute("ANALYZE o")

    def claim(limit: int) -> Claimed:
        return connection.execute(CLAIM, (limit,)).fetchall()

    def finish(claimed: Claimed) -> int:
        return connection.execute(FINISH, ([n for n, _ in claimed], [token for _, token in claimed])).rowcount

    return fill, claim, finish


def _redis(url: str) -> tuple[Callable[[int], None], Callable[[int], Claimed], Callable[[Claimed], int]]:
    import redis

    client: Any = redis.Redis.from_url(url)
    claiming, finishing = client.register_script(CLAIM_LUA), client.register_script(FINISH_LUA)

    def fill(count: int) -> None:
        with client.pipeline() as many:
            for number in range(count):
                many.zadd("pending", {str(number): number})
                many.hset(f"o:{number}", mapping={"state": "pending", "due": number})
            many.execute()

    def claim(limit: int) -> Claimed:
        flat = claiming(args=[limit])
        return list(zip(flat[::2], flat[1::2], strict=True))

    def finish(claimed: Claimed) -> int:
        return int(finishing(args=[value for pair in claimed for value in pair]))

    return fill, claim, finish


def main() -> None:
    """Fill, or work."""
    url, verb, number = sys.argv[1:]
    fill, claim, finish = _postgres(url) if url.startswith("postgres") else _redis(url)
    if verb == "fill":
        fill(int(number))
        return
    sys.stdin.readline()
    while claimed := claim(int(number)):
        done = finish(claimed)
        assert done == len(claimed), f"{len(claimed) - done} lost their token"


if __name__ == "__main__":
    main()
