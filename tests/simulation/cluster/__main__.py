"""Replay a seed, or look through many: ``python -m tests.simulation.cluster --seed N [--seeds K]``."""

from __future__ import annotations

import sys
from random import SystemRandom

import click

from cronsensus.timing.clock import SystemClock
from tests.simulation.cluster import Parts, Simulation, simulate


@click.command()
@click.option("--seed", type=int, default=None, help="The first seed. Defaults to a random one.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many, counting up.")
@click.option(
    "--trace/--no-trace", default=None, help="Print what happened. Defaults to: when something must not have."
)
@click.option("--about", default=None, help="Print only the lines in which this text occurs.")
@click.option("--forgets", is_flag=True, help="Let the store lose what it acknowledged in its last moments.")
def main(seed: int | None, seeds: int, trace: bool | None, about: str | None, forgets: bool) -> None:
    """Simulate a cluster with crashes, pauses, wrong clocks and lost answers; exit 1 if a promise was broken."""
    first = SystemRandom().randrange(10**9) if seed is None else seed
    clock = SystemClock()
    started = clock.monotonic()
    broken: list[Simulation] = []
    seconds, verbs, faults = 0.0, 0, 0
    for number in range(first, first + seeds):
        result = simulate(number, Parts(forgets=True)) if forgets else simulate(number)
        seconds, verbs, faults = seconds + result.seconds, verbs + result.verbs, faults + result.faults
        if trace or (trace is None and not result.ok and not broken):
            for line in result.trace.lines(about):
                click.echo(line)
        if not result.ok:
            broken.append(result)
            for violation in result.violations:
                click.echo(f"seed {number}: {violation}")
    took = clock.monotonic() - started
    click.echo(
        f"{seeds} seeds from {first}: {len(broken)} broken; {seconds / 60:.0f} virtual minutes, {verbs} verbs, "
        f"{faults} faults; {seeds / took:.0f} seeds a second"
    )
    if seeds == 1:
        click.echo(f"trace {result.trace.digest()}")
    if broken:
        click.echo(f"again: make simulate SEED={broken[0].seed}")
        sys.exit(1)


if __name__ == "__main__":
    main()
