"""A plugin of pytest that guards each scheduler that APScheduler's own tests make; a stub wins each time.

``GUARDED``: ``at-once``, as with a shared job store; ``soon``: on another thread; ``bare``: not at all.
"""

import importlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from apscheduler.schedulers.base import BaseScheduler

from cronsensus.model.acquiring import Ask, NotWon

# The package has a function of this name.
module: Any = importlib.import_module("cronsensus.integrations.apscheduler.guard")
WAY = os.environ["GUARDED"]


@dataclass(frozen=True)
class Won:
    """A time that was won."""

    time: datetime


class Stub(MagicMock):
    """A participant that wins each time, and records nothing."""

    def acquire(self, wanted: Sequence[tuple[Any, Ask]]) -> list[list[Won | NotWon]]:
        """Answer what the store would, were this the only process."""
        refused = {"late": NotWon.LATE, "full": NotWon.FULL}
        return [[refused.get(ask.intent) or Won(time) for time in ask.times] for _, ask in wanted]

    def acquire_soon(self, spec: Any, ask: Ask, then: Callable[[Any], object]) -> None:
        """Answer on another thread."""
        threading.Thread(target=lambda: then(self.acquire([(spec, ask)])[0])).start()


def pytest_configure() -> None:
    """Guard what is made from now on."""
    if WAY == "bare":
        return
    module.Won = Won
    module.Participant = lambda *_, **__: Stub()
    module.is_memory = lambda *_: WAY == "soon"
    # They make jobs without ids, and jobs that are mocks: what is refused is not their question.
    module.needs_no_guard = lambda *_: False
    module.check_job = module.check_change = lambda *_, **__: None
    module.is_late = lambda *_: False  # their clock stands still in 2011
    vars(module)["_spec"] = lambda job: SimpleNamespace(name=job.id)
    make = BaseScheduler.__init__

    @wraps(make)
    def make_guarded(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        self._cronsensus = module.Guard(self, MagicMock(), align=False)
        vars(self._cronsensus).update(_participant=(stub := Stub()), _looked=stub)

    BaseScheduler.__init__ = make_guarded
