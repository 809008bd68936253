"""Chance: each thing that draws it has a source of its own, so that one draw more here moves nothing there."""

from __future__ import annotations

from random import Random


class Chance(dict[str, Random]):
    """The sources of one night, by name. Each is made of the night's seed and its name when it is first asked for.

    A name is what draws, and where several of a kind draw, which of them: ``troubles``, ``order n0``, ``wire n0 step``.
    So a node that makes a statement more or less moves only what else it draws under that name, and a run has one fate
    whichever node runs it.

    Example:
        >>> Chance(1)["people"].random() == Chance(1)["people"].random()
        True
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def __missing__(self, name: str) -> Random:
        source = self[name] = Random(f"{self._seed}:{name}")
        return source
