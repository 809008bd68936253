"""The store in Redis 6.2 or Valkey.

Each verb is one Lua script (``lua/verbs``), so it is one atomic step and one journey. Time is the server's, asked for
inside the script. Lua knows no triggers: what takes them is worked out in Python and compared when it is written.
"""

from cronsensus.stores.redis.redis_store import RedisStore

__all__ = ["RedisStore"]
