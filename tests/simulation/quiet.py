"""What became of the quiet nights: ``python -m tests.simulation.quiet [--ledger SEED] [--write]``.

A kernel that decides something else, or late, gives another digest; one that only asks the store more or less often
gives the same. ``quiet_digests.txt`` holds those of a hundred nights. Where one differs, ``--ledger SEED`` before and
after the change, and ``diff``, show the occurrences.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import click

from tests.simulation.cluster import suspend_log_and_collector
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.quiet_night import QuietWorld

NIGHTS = 100
KEPT = Path(__file__).with_name("quiet_digests.txt")


class Quiet(NamedTuple):
    """What became of a quiet night: ``violations`` of promises, and one line for each outcome."""

    seed: int
    violations: tuple[str, ...]
    ledger: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A short text that stands for the ledger."""
        return hashlib.sha256("\n".join(self.ledger).encode()).hexdigest()[:16]


def play_night(seed: int, world: type[QuietWorld] = QuietWorld) -> Quiet:
    """Play one quiet night."""
    with suspend_log_and_collector():
        night = world(seed, Parts())
        night.run()
        return Quiet(seed, tuple(night.judge.violations), tuple(night.ledger()))


def read_kept() -> dict[int, str]:
    """Return the digests that are kept, by seed."""
    return {int(seed): digest for seed, digest in map(str.split, KEPT.read_text("utf-8").splitlines())}


def write_kept(nights: Iterable[Quiet]) -> None:
    """Keep digests."""
    KEPT.write_text("".join(f"{night.seed} {night.digest}\n" for night in nights), "utf-8")


@click.command()
@click.option("--ledger", type=int, default=None, metavar="SEED", help="Print what became of one night.")
@click.option("--write", is_flag=True, help="Keep the digests of this kernel from now on.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="How many nights at a time.")
def main(ledger: int | None, *, write: bool, processes: int) -> None:
    """Print the digests of a hundred quiet nights; exit 1 if one differs from what is kept, or broke a promise."""
    if ledger is not None:
        night = play_night(ledger)
        for line in (*night.ledger, *night.violations):
            click.echo(line)
        sys.exit(bool(night.violations))
    with Pool(processes) as pool:
        nights = pool.map(play_night, range(NIGHTS), chunksize=1)
    if write:
        write_kept(nights)
    kept, bad = read_kept(), 0
    for night in nights:
        wrong = ["differs"] if kept.get(night.seed) != night.digest else []
        wrong += night.violations
        bad += bool(wrong)
        click.echo(" ".join([str(night.seed), night.digest, *wrong]))
    click.echo(
        f"{len(nights)} nights, {sum(len(night.ledger) for night in nights)} outcomes: {bad} differ or broke a promise"
    )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
