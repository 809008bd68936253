"""The demo's plot: start, watch, kill in the middle of a run, watch the takeover, replace, drain.

One loop looks at what the runs append to the trace, about fifty times a second, and acts on it. Nothing is assumed:
that the kill cut a run is read from the trace (a start without an end), and when it did not, another node is killed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime

from cronsensus.audit import audit
from cronsensus.cli.demo.lanes import TICK, Lanes, label
from cronsensus.cli.demo.nodes import Nodes
from cronsensus.cli.demo.screen import Screen
from cronsensus.cli.demo.trace import Line, Tail
from cronsensus.cli.errors import FAILED, CommandError
from cronsensus.clock import Clock
from cronsensus.errors import StoreError, UnknownJob
from cronsensus.model.occurrence import Item
from cronsensus.stores.base import Store

LOOK = 0.015
START_WITHIN = 60.0
MIDDLE = 0.15
"""A tick that started that long ago is in its middle: it works for 0.4 s, or longer on a busy machine."""
MOST_KILLS = 5
TAKEOVER_WITHIN = 30.0
"""Longer than the default lease: a takeover without the fast evidence is slow, not wrong."""
REPLACE_AFTER = 5.0
CLOSING = 3.0
SETTLE_WITHIN = 30.0
DRAIN_WITHIN = 30.0
ORDER_EVERY = 3.0


@dataclass(slots=True)
class Performance:
    """What happened, as seen from outside of the store.

    Attributes:
        until: the last nominal time that the closing audit judges; everything up to it was decided when the nodes
        were stopped. cut: runs that a kill cut off. takeovers: seconds from the kill to the restart elsewhere, by
        occurrence.
    """

    lines: list[Line] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    cut: list[Line] = field(default_factory=list)
    takeovers: dict[tuple[str, str], float] = field(default_factory=dict)
    taken_by: dict[tuple[str, str], Line] = field(default_factory=dict)
    until: datetime | None = None
    in_order: bool = False

    @property
    def complete(self) -> bool:
        """Whether a kill cut a run and every run that was cut started again."""
        return bool(self.cut) and self.takeovers.keys() >= {line.occurrence for line in self.cut}


class Stage:
    """Plays the demo once."""

    def __init__(self, nodes: Nodes, store: Store, screen: Screen, names: list[str], *, clock: Clock) -> None:
        self._nodes = nodes
        self._store = store
        self._screen = screen
        self._names = names
        self._clock = clock
        self._tail = Tail(nodes.trace)
        self._lanes = Lanes(names)
        self._done = Performance()
        self._begun = clock.monotonic()
        self._killed_at: dict[str, float] = {}
        self._kill_from = float("inf")
        self._victim: Line | None = None
        self._orders = 0
        self._order_at = 0.0

    def play(self, seconds: float) -> Performance:
        """Play for about ``seconds``.

        Raises:
            CommandError: a node did not start, or ended by itself.
            StoreError: the store cannot be used.
        """
        self._start_all()
        ready = self._at
        self._kill_from = ready + max(2.0, (seconds - ready) * 0.2)
        self._order_at = ready + 1.0
        while self._at < seconds - CLOSING or not (self._done.complete or self._gave_up(seconds)):
            self._look()
            self._enqueue()
            self._kill()
            self._replace()
            _rest()
        self._settle()
        self._screen.say(self._at, "SIGTERM to all nodes: they finish what they run, and leave")
        self._look()
        self._done.in_order = self._nodes.stop(DRAIN_WITHIN)
        self._look(expect_alive=False)
        for name in self._names:
            self._lanes.node(name, "stopped")
        self._draw()
        return self._done

    @property
    def _at(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._begun

    def _gave_up(self, seconds: float) -> bool:
        """Whether waiting longer makes no sense: all kills are spent, or a takeover does not come."""
        last = max(self._killed_at.values(), default=self._begun) - self._begun
        return self._at > max(seconds, last + TAKEOVER_WITHIN) and (
            bool(self._done.cut) or len(self._done.killed) >= MOST_KILLS or self._at > seconds + TAKEOVER_WITHIN
        )

    def _draw(self) -> None:
        self._screen.draw(self._at, self._lanes)

    # --- acts -----------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        for name in self._names:
            node = self._nodes.start(name)
            self._lanes.node(name, "starting", node.pid)
        self._draw()
        while True:
            alive = {session.node for session in self._store.sessions()}
            for name in self._names:
                if name in alive:
                    self._lanes.node(name, "alive")
            if alive.issuperset(self._names):
                break
            self._look()
            if self._at > START_WITHIN:
                missing = next(name for name in self._names if name not in alive)
                raise self._broken(missing, f"{missing} did not start within {START_WITHIN:.0f} s")
            _rest()
        self._screen.say(self._at, f"{len(self._names)} nodes run the same code on one store; none of them leads")

    def _enqueue(self) -> None:
        """Put an order into the queue now and then."""
        if self._at < self._order_at:
            return
        self._order_at = self._at + ORDER_EVERY
        number = self._orders + 1
        try:
            self._store.enqueue([Item(job="order", key=f"order:{number}", args=(number,), kwargs={})])
        except (UnknownJob, StoreError):
            return
        self._orders = number
        self._store.notify()
        self._screen.mention(self._at, f"order #{number} is enqueued")

    def _kill(self) -> None:
        """Kill the node that is in the middle of the run that was chosen, and see what that cut."""
        victim = self._victim
        if victim is None or self._clock.monotonic() - victim.at < MIDDLE:
            return
        self._look()
        self._victim, name = None, victim.node
        if victim.token not in self._lanes.by_name[name].running:
            return  # this look came too late; there are more ticks
        at = self._nodes.kill(name)
        self._killed_at[name] = at
        self._done.killed.append(name)
        self._look(expect_alive=False)
        cut = self._lanes.killed(name)
        if not cut:
            self._screen.say(self._at, f"{name} was killed between two runs; once more", "yellow")
            self._restart(name)
            return
        self._done.cut += cut
        self._kill_from = float("inf")
        what = f"{cut[0].job} {label(cut[0])}" if len(cut) == 1 else f"{len(cut)} runs"
        pid = self._nodes.by_name[name].pid
        self._screen.say(at - self._begun, f"kill -9 {pid}: {name} dies in the middle of {what}", "bold red")

    def _replace(self) -> None:
        """Start a killed node again, some time after its death."""
        for name, at in list(self._killed_at.items()):
            if self._lanes.by_name[name].state == "dead" and self._clock.monotonic() - at > REPLACE_AFTER:
                self._restart(name)

    def _restart(self, name: str) -> None:
        node = self._nodes.start(name)
        self._lanes.node(name, "alive", node.pid)
        self._screen.say(self._at, f"{name} is started again as pid {node.pid}")

    def _settle(self) -> None:
        """Choose the end of what is judged, and let the nodes decide everything up to it."""
        # In the later half of a second: the tick of this second is over, the next has not begun.
        while not 500_000 <= self._store.now().microsecond < 800_000:
            self._look()
            _rest()
        self._done.until = until = self._store.now()
        deadline = self._at + SETTLE_WITHIN
        while self._at < deadline and (audit(self._store, until=until).pending or self._store.counts().pending):
            for _ in range(10):
                self._look()
                _rest()

    # --- what the runs say ----------------------------------------------------------------------------------------

    def _look(self, *, expect_alive: bool = True) -> None:
        """Read what is new in the trace, and show it."""
        for line in self._tail.read():
            self._done.lines.append(line)
            match line.event:
                case "start":
                    self._started(line)
                case "end":
                    self._lanes.ended(line)
                    self._screen.mention(self._at, f"{line.node} finished {line.job} {label(line)}")
                case "broken":
                    self._lanes.broken(line)
                    self._screen.mention(self._at, f"{line.node} was stopped in {line.job} {label(line)}")
        if expect_alive:
            for name, node in self._nodes.by_name.items():
                if self._lanes.by_name[name].state in {"alive", "starting"} and not node.running:
                    raise self._broken(name, f"{name} ended by itself with exit code {node.process.returncode}")
        self._draw()

    def _started(self, line: Line) -> None:
        taken = self._lanes.started(line)
        if taken:
            self._taken_over(line)
        else:
            self._screen.mention(self._at, f"{line.node} runs {line.job} {label(line)}")
        lane = self._lanes.by_name[line.node]
        wanted = self._at >= self._kill_from and len(self._done.killed) < MOST_KILLS
        if wanted and line.job == TICK and lane.state == "alive" and line.pid == lane.pid:
            self._victim = line

    def _taken_over(self, line: Line) -> None:
        cut = next(cut for cut in self._done.cut if cut.occurrence == line.occurrence)
        seconds = line.at - self._killed_at[cut.node]
        if line.occurrence not in self._done.takeovers:
            self._done.takeovers[line.occurrence] = seconds
            self._done.taken_by[line.occurrence] = line
        self._screen.say(
            line.at - self._begun,
            f"{line.node} takes over {line.job} {label(line)}: attempt {line.attempt}, {seconds:.2f} s after the kill",
            "bold yellow",
        )

    def _broken(self, name: str, what: str) -> CommandError:
        return CommandError(what, why=self._nodes.by_name[name].last_words(), then="cronsensus doctor", code=FAILED)


def _rest() -> None:
    threading.Event().wait(LOOK)
