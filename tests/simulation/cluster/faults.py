"""What may go wrong with a verb on its way to the store and back.

A fault is armed for a crank and bites at one of the verbs of its next turn (``linger`` at all of them):

==================  ===================================================================================
fault               what the node sees, and what the store did
==================  ===================================================================================
``fail``            an error; nothing happened
``lost``            an error; it was done
``hang``            an error after a while; nothing happened
``hang_lost``       an error after a while; it was done at once
``late``            an error after a while; it is done some time after that
``slow``            the answer, late; it was done at once, or late (as behind a lock)
``freeze``          as ``slow``, and the whole process stood still
``crash``           nothing: the process is gone; it was done, or is done some time after that, or never
``linger``          the answer, a little late, at every verb, so that others come in between: also somebody who
                    changes what a plan rests on
==================  ===================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["fail", "lost", "hang", "hang_lost", "late", "slow", "freeze", "crash", "linger"]
INSTANT: frozenset[Kind] = frozenset({"fail", "lost", "crash"})
"""Faults for which nobody has to wait."""


@dataclass(slots=True)
class Fault:
    """What goes wrong in a turn of a crank: at which of its verbs, and for how long."""

    kind: Kind
    verb: int
    micros: int = 0
