"""The demo's plot: start, watch, kill in the middle of a run, watch the takeover, replace, drain.

One loop reads what the runs append to the trace, about fifty times a second, and acts on it. Nothing is assumed: that
the kill cut a run is read from the trace (a start without an end), and when it did not, another node is killed.
"""

from __future__ import annotations

import threading
from datetime import datetime

from cronsensus.audit import audit
from cronsensus.cli.demo.nodes import Nodes
from cronsensus.cli.demo.screen import TICK, Lanes, Screen, label
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
SETTLE_WITHIN = DRAIN_WITHIN = 30.0
ORDER_EVERY = 3.0


class Stage:
    """Plays the demo once; then it has what was seen from outside of the store.

    Attributes:
        lines: what the runs wrote.
        killed: the names of the nodes that were, at which moment (monotonic) last.
        until: the last nominal time that the closing audit judges; everything up to it was decided when the nodes
            were stopped.
        in_order: whether all nodes left when they were asked to.
    """

    def __init__(self, nodes: Nodes, store: Store, screen: Screen, lanes: Lanes, *, clock: Clock) -> None:
        self.lanes = lanes
        self.lines: list[Line] = []
        self.killed: list[tuple[str, float]] = []
        self.until: datetime | None = None
        self.in_order = False
        self._nodes, self._store, self._screen, self._clock = nodes, store, screen, clock
        self._tail = Tail(nodes.trace)
        self._begun = clock.monotonic()
        self._kill_from = self._order_at = float("inf")
        self._victim: Line | None = None
        self._orders = 0

    def play(self, seconds: float) -> None:
        """Play for about ``seconds``.

        Raises:
            CommandError: a node did not start, or ended by itself.
            StoreError: the store cannot be used.
        """
        self._start_all()
        self._kill_from = self._at + max(2.0, (seconds - self._at) * 0.2)
        self._order_at = self._at + 1.0
        while self._at < seconds - CLOSING or not self._is_over(seconds):
            self._look()
            self._enqueue()
            self._kill()
            for name, at in dict(self.killed).items():
                if self.lanes.by_name[name].state == "dead" and self._clock.monotonic() - at > REPLACE_AFTER:
                    self._restart(name)
        self._settle()
        self._say("SIGTERM to all nodes: they finish what they run, and leave")
        self.in_order = self._nodes.stop(DRAIN_WITHIN)
        for name in self.lanes.by_name:
            self.lanes.node(name, "stopped")
        self._look()

    @property
    def _at(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._begun

    def _say(self, text: str, style: str = "", *, in_lanes: bool = False) -> None:
        self._screen.say(self._at, text, style, in_lanes=in_lanes)

    def _is_over(self, seconds: float) -> bool:
        """Whether every run that was cut started again, or more patience is of no use."""
        cuts = self.lanes.cuts
        if cuts and all(cut.taken for cut in cuts.values()):
            return True
        last = self.killed[-1][1] - self._begun if self.killed else 0.0
        no_more_kills = bool(cuts) or len(self.killed) >= MOST_KILLS or self._at > seconds + TAKEOVER_WITHIN
        return no_more_kills and self._at > max(seconds, last + TAKEOVER_WITHIN)

    # --- acts -----------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        names = self.lanes.by_name
        for name in names:
            self.lanes.node(name, "starting", self._nodes.start(name))
        while missing := names.keys() - {session.node for session in self._store.sessions()}:
            for name in names.keys() - missing:
                self.lanes.node(name, "alive")
            self._look()
            if self._at > START_WITHIN:
                raise self._broken(min(missing), f"did not start within {START_WITHIN:.0f} s")
        for name in names:
            self.lanes.node(name, "alive")
        self._say(f"{len(names)} nodes run the same code on one store; none of them leads")

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
        self._say(f"order #{number} is enqueued", in_lanes=True)

    def _kill(self) -> None:
        """Kill the node that is in the middle of the run that was chosen, and see what that cut."""
        victim = self._victim
        if victim is None or self._clock.monotonic() - victim.at < MIDDLE:
            return
        self._look()
        self._victim, name = None, victim.node
        lane = self.lanes.by_name[name]
        if victim.token not in lane.running:
            return  # this look came too late; there are more ticks
        at, lane.state = self._nodes.kill(name), "dead"
        self.killed.append((name, at))
        self._look()
        cut = self.lanes.killed(name, at)
        if not cut:
            self._say(f"{name} was killed between two runs; once more", "yellow")
            self._restart(name)
            return
        self._kill_from = float("inf")
        what = label(cut[0]) if len(cut) == 1 else f"{len(cut)} runs"
        self._screen.say(at - self._begun, f"kill -9 {lane.pid}: {name} dies in the middle of {what}", "bold red")

    def _restart(self, name: str) -> None:
        pid = self._nodes.start(name)
        self.lanes.node(name, "alive", pid)
        self._say(f"{name} is started again as pid {pid}")

    def _settle(self) -> None:
        """Choose the end of what is judged, and let the nodes decide everything up to it."""
        # In the later half of a second: the tick of this second is over, the next has not begun.
        while not 500_000 <= self._store.now().microsecond < 800_000:
            self._look()
        self.until = self._store.now()
        deadline = self._at + SETTLE_WITHIN
        while self._at < deadline and (audit(self._store, until=self.until).pending or self._store.counts().pending):
            for _ in range(10):
                self._look()

    # --- what the runs say ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what is new in the trace, show it, and rest for a moment."""
        for line in self._tail.read():
            self.lines.append(line)
            if line.event == "start":
                self._started(line)
            else:
                self.lanes.ended(line)
                how = "finished" if line.event == "end" else "was stopped in"
                self._say(f"{line.node} {how} {label(line)}", in_lanes=True)
        for name, lane in self.lanes.by_name.items():
            if lane.state in {"alive", "starting"} and (code := self._nodes.exit_code(name)) is not None:
                raise self._broken(name, f"ended by itself with exit code {code}")
        threading.Event().wait(LOOK)

    def _started(self, line: Line) -> None:
        cut = self.lanes.started(line)
        if cut is None:
            self._say(f"{line.node} runs {label(line)}", in_lanes=True)
        else:
            after = f"attempt {line.attempt}, {line.at - cut.at:.2f} s after the kill"
            takes = f"{line.node} takes over {label(line)}: {after}"
            self._screen.say(line.at - self._begun, takes, "bold yellow")
        lane = self.lanes.by_name[line.node]
        may_kill = self._at >= self._kill_from and len(self.killed) < MOST_KILLS
        if may_kill and line.job == TICK and lane.state == "alive" and line.pid == lane.pid:
            self._victim = line

    def _broken(self, name: str, what: str) -> CommandError:
        return CommandError(f"{name} {what}", why=self._nodes.last_words(name), then="cronsensus doctor", code=FAILED)
