"""The demo's plot: start, watch, kill in the middle of a run, watch the takeover, replace, drain.

One loop reads what the runs append to the trace, about fifty times a second, and acts on it. A node is frozen before
it is killed, and goes on if its run has ended by then. So the kill always cuts a run.
"""

from __future__ import annotations

import threading

from cronsensus.audit import audit
from cronsensus.cli.demo.nodes import Nodes
from cronsensus.cli.demo.screen import PICTURES, SHRINK, TICK, Screen, occurrence_label
from cronsensus.cli.demo.trace import Line, Tail
from cronsensus.cli.errors import FAILED, CommandError
from cronsensus.insight.batches import items_text
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

READ_EVERY = 0.015
START_WITHIN = 60.0
MIDDLE = 0.15
"""Seconds after which a started tick is in its middle: it works for 0.4 s, or longer on a busy machine."""
TAKEOVER_WITHIN = 30.0
"""Longer than the default lease: a takeover without the fast evidence is slow, not wrong."""
REPLACE_AFTER = 5.0
CLOSING = 3.0
BATCH_BEFORE = 1.0
"""Seconds before the kill at which the batch begins, so that its items run then."""
SETTLE_WITHIN = DRAIN_WITHIN = 30.0


class Stage:
    """Plays the demo once, and keeps what was observed outside of the store.

    Attributes:
        lines: the lines that the runs wrote.
        killed: the node that was killed; ``None``: none yet.
        until: the last nominal time that the closing audit judges; everything up to it was decided when the nodes
            were stopped.
        batch: the number of the batch, once it has begun; ``None``: there is none.
        in_order: whether all nodes ended by themselves after SIGTERM.
    """

    def __init__(self, nodes: Nodes, store: Store, screen: Screen, *, clock: Clock, batch: bool = False) -> None:
        self.lanes = screen.lanes
        self.lines: list[Line] = []
        self.killed: str | None = None
        self.until = store.now()
        self.batch: int | None = None
        self._wants_batch = batch
        self._show_batch_at = 0.0
        self.in_order = False
        self._nodes, self._store, self._screen, self._clock = nodes, store, screen, clock
        self._tail = Tail(nodes.trace)
        self._begun = clock.monotonic()
        self._killed_at = 0.0

    def play(self, seconds: float) -> None:
        """Play for about ``seconds``.

        Raises:
            CommandError: a node did not start, or ended by itself.
            StoreError: the store cannot be used.
        """
        self._start_all()
        kill_from = self._at + max(2.0, (seconds - self._at) * 0.2)
        while not self._is_over(seconds):
            self._read_trace()
            if self._wants_batch and self._at > kill_from - BATCH_BEFORE:
                self._begin_batch()
            if self.killed is None and self._at > kill_from:
                self._kill()
            elif self.killed and self.lanes[self.killed].state == "dead" and self._at > self._killed_at + REPLACE_AFTER:
                self._restart(self.killed)
        self.until = self._store.now()
        deadline = self._at + SETTLE_WITHIN
        while self._at < deadline and self._is_at_work():
            self._read_trace()
        self._show_batch(last=True)
        self._show_event("SIGTERM to all nodes: they finish what they run, and leave")
        self.in_order = self._nodes.stop(DRAIN_WITHIN)
        for lane in self.lanes.values():
            lane.state = "stopped"
        self._read_trace()

    @property
    def _at(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._begun

    def _show_event(self, text: str, style: str = "", *, in_lanes: bool = False) -> None:
        self._screen.add_event(self._at, text, style, in_lanes=in_lanes)

    def _is_over(self, seconds: float) -> bool:
        """Whether every cut run has started again, or waiting longer is of no use."""
        cuts = self.lanes.cuts.values()
        if cuts and all(cut.takeover for cut in cuts):
            return self._at > seconds - CLOSING
        return self._at > max(seconds, self._killed_at) + TAKEOVER_WITHIN

    def _is_at_work(self) -> bool:
        """Whether a time up to ``until`` is undecided, a run waits, or the batch has not ended."""
        if audit(self._store, until=self.until).pending or self._store.counts().pending:
            return True
        batch = None if self.batch is None else self._store.occurrence(self.batch)
        return batch is not None and not batch.state.final

    def _begin_batch(self) -> None:
        self._wants_batch = False
        self.batch = self._store.trigger(SHRINK, by="cronsensus demo", why="to be seen").id
        self._store.notify()
        self._show_event(f"a batch: {PICTURES} pictures to {SHRINK}, at most 6 at a time, on whichever node is free")

    def _show_batch(self, *, last: bool = False) -> None:
        """Show the progress of the batch once a second, until it has ended; ``last``: this is the last call."""
        if self.batch is None or (self._at < self._show_batch_at and not (last and self._show_batch_at < float("inf"))):
            return
        self._show_batch_at = self._at + 1
        children = self._store.children([self.batch], limit=PICTURES)[self.batch]
        self._show_event(f"the batch: {items_text(children)}")
        if children.state is not None and children.state.final:
            self._show_batch_at = float("inf")

    def _start_all(self) -> None:
        for name, lane in self.lanes.items():
            lane.pid = self._nodes.start(name)
        while missing := self.lanes.keys() - {session.node for session in self._store.sessions()}:
            self._read_trace()
            if self._at > START_WITHIN:
                raise self._node_error(min(missing), f"did not start within {START_WITHIN:.0f} s")
        for lane in self.lanes.values():
            lane.state = "alive"
        self._show_event(f"{len(self.lanes)} nodes run the same code on one store; none of them leads")

    def _kill(self) -> None:
        """Kill a node that is in the middle of a tick, if there is such a node, and record the cut runs."""
        running = [line for lane in self.lanes.values() for line in lane.running.values() if line.job == TICK]
        victim = next((line for line in running if self._clock.monotonic() - line.at > MIDDLE), None)
        if victim is None:
            return
        name = victim.node
        self._nodes.freeze(name)
        self._read_trace()
        if victim.token not in self.lanes[name].running:
            self._nodes.thaw(name)
            return
        at = self._nodes.kill(name)
        self.killed, self._killed_at = name, at - self._begun
        cut = self.lanes.show_kill(name, at)
        cut_text = occurrence_label(cut[0]) if len(cut) == 1 else f"{len(cut)} runs"
        text = f"kill -9 {self.lanes[name].pid}: {name} dies in the middle of {cut_text}"
        self._screen.add_event(self._killed_at, text, "bold red")

    def _restart(self, name: str) -> None:
        lane = self.lanes[name]
        lane.pid, lane.state = self._nodes.start(name), "alive"
        self._show_event(f"{name} is started again as pid {lane.pid}")

    def _read_trace(self) -> None:
        """Read the new lines of the trace, show them, and rest for a moment."""
        for line in self._tail.read():
            self.lines.append(line)
            if line.event == "start":
                self._show_start(line)
            else:
                self.lanes.show_end(line)
                how = "finished" if line.event == "end" else "was stopped in"
                if line.job != SHRINK:
                    self._show_event(f"{line.node} {how} {occurrence_label(line)}", in_lanes=True)
        self._show_batch()
        for name, lane in self.lanes.items():
            if lane.state in {"alive", "starting"} and (code := self._nodes.exit_code(name)) is not None:
                raise self._node_error(name, f"ended by itself with exit code {code}")
        threading.Event().wait(READ_EVERY)

    def _show_start(self, line: Line) -> None:
        cut = self.lanes.show_start(line)
        if cut is None and line.job == SHRINK:
            return
        if cut is None:
            self._show_event(f"{line.node} runs {occurrence_label(line)}", in_lanes=True)
        else:
            after = f"attempt {line.attempt}, {line.at - cut.at:.2f} s after the kill"
            text = f"{line.node} takes over {occurrence_label(line)}: {after}"
            self._screen.add_event(line.at - self._begun, text, "bold yellow")

    def _node_error(self, name: str, what: str) -> CommandError:
        return CommandError(f"{name} {what}", why=self._nodes.read_log_end(name), then="cronsensus doctor", code=FAILED)
