"""Fencing tokens: a sequence that is never below the server's clock.

A standby that takes over may lack the last numbers that were given, and a subscriber of logical replication has no
sequences at all. The clock has moved on since then, so numbers that begin at the clock are not given twice.

To read the clock, compare it with the sequence and move the sequence is three steps. They are done in a function of the
server (``migrations.postgres_functions``) under an advisory lock, which the function lets go of before it returns; to
wait for the end of the transaction would let one claim of the whole store stand in line behind the other. What a
sequence was set to stays, also if the transaction fails: then some numbers are never given.
"""

from __future__ import annotations


def token_expression(schema: str, count: str, now: str) -> str:
    """Return the call that takes ``count`` tokens and gives the last; ``at``: an injected clock, or ``NULL``."""
    sequence = f'"{schema}".cronsensus_tokens'.replace("'", "''")
    return f"\"{schema}\".cronsensus_take_tokens('{sequence}'::regclass, {count}, {now})"
