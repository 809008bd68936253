"""What a run of the benchmarks is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Of a bench that has no use for one of them, it is ignored.

    Attributes:
        quick: a short look.
        jobs: how many jobs ``stored`` stores, and how many ``drain`` drains (instead of as many as take some seconds).
        seconds: for how long ``cadence`` measures each library, and ``apscheduler`` each of its four.
        rounds: how often ``drain`` measures each, ``takeover`` kills ours, ``lock`` hands each lock around,
            `pages` asks each, `metrics` scrapes.
        only: the libraries to run beside ours; empty: all.
    """

    quick: bool = False
    jobs: int | None = None
    seconds: int | None = None
    rounds: int | None = None
    only: tuple[str, ...] = ()
