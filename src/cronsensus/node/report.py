"""What a node has yet to report about its claims: ends and releases, sent until the store answers.

An end can be sent again, so after a lost answer it is. What the store has accepted is remembered for a while, see
``accepted_ends.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cronsensus.errors import StoreError
from cronsensus.model.ends import End, is_snoozed
from cronsensus.model.occurrence import Claim, Cut, Note, Settled
from cronsensus.model.states import State
from cronsensus.model.step import Done, GiveBack, Step
from cronsensus.node.accepted_ends import AcceptedEnds, Key
from cronsensus.node.holding import Back, Over
from cronsensus.node.run_events import RunEvents
from cronsensus.node.run_log import RunLog
from cronsensus.node.run_transaction import uncommitted_end
from cronsensus.node.waking import Waking
from cronsensus.process.logger import ExcInfo, together
from cronsensus.timing.clock import Clock


class Report:
    """Ends of runs and released claims, by key.

    Any thread may release a claim and read; the rest belongs to the thread of the node's rounds.

    Attributes:
        owed: what the store has yet to accept.
        accepted: which ends the store has accepted, for a while.
    """

    def __init__(self, clock: Clock, *, waking: Waking, run_log: RunLog, run_events: RunEvents) -> None:
        self.owed: dict[Key, Over | Back] = {}
        self.accepted = AcceptedEnds(clock)
        self._waking = waking
        self._run_log = run_log
        self._run_events = run_events

    @property
    def unsent_ends(self) -> list[End]:
        """Return the ends that the store has not recorded yet."""
        return [owed.end for owed in list(self.owed.values()) if isinstance(owed, Over)]

    @property
    def given_back(self) -> list[GiveBack]:
        """Return the released claims that the store has yet to accept."""
        return [owed.give_back for owed in list(self.owed.values()) if isinstance(owed, Back)]

    def record_end(self, claim: Claim, end: End, raised: ExcInfo = None, *, may_have_committed: bool = False) -> None:
        """Record the end of an attempt.

        Args:
            claim: of the attempt.
            end: the occurrence's next state.
            raised: the exception, for the log.
            may_have_committed: whether a transaction of the run's own may have written its end already.
        """
        triggers = self._waking.triggers_of_end(claim, end.then)
        self.owed[claim.id, claim.token] = Over(end, triggers, claim if may_have_committed else None)
        self._run_log.remember_end(claim, end, raised)
        self._run_events.remember_claim(claim)

    def record_release(self, claim: Claim, cut: Cut | None, *, may_have_committed: bool = False) -> None:
        """Release a claim; ``cut``: how it was cut off, if it had started."""
        self.owed[claim.id, claim.token] = Back(GiveBack(claim=claim, cut=cut), may_have_committed)

    def send_again(self, key: Key) -> bool:
        """Send an end again that the store accepted and has lost; ``False``: this node does not know it any more."""
        match self.accepted.pop_end(key):
            case End() as end:
                self.owed[key] = Over(end)
            case GiveBack() as back:
                self.owed[key] = Back(back)
            case None:
                return False
        return True

    @contextmanager
    def open_step(self, notes: tuple[Note, ...]) -> Iterator[Step]:
        """Give the report as a step, with notes of active runs; it stays here until ``drop_accepted``."""
        step = Step(notes=notes, ends=tuple(self.unsent_ends), give_back=tuple(self.given_back))
        try:
            yield step
        except StoreError:
            # It may be carried out all the same; the store then refuses the second request.
            for back in step.give_back:
                if isinstance(owed := self.owed.get((back.claim.id, back.claim.token)), Back):
                    owed.may_be_back = True
            raise

    def drop_accepted(self, sent: Step, done: Done) -> None:
        """Drop what the store has recorded."""
        with together():
            for answer in done.settled:
                self._accept_end(answer)
        if sent.give_back:
            for back, accepted in zip(sent.give_back, done.returned, strict=True):
                self._accept_release(back, accepted=accepted)

    def _accept_end(self, answer: Settled) -> None:
        key = answer.id, answer.token
        over = self.owed.pop(key)
        assert isinstance(over, Over)  # noqa: S101 - it was sent as one
        end = over.end
        # A failed run that is retried frees nothing.
        if over.triggers and (answer.state is not State.PENDING or is_snoozed(end.then)):
            self._waking.queue_triggers(over.triggers)
        if answer.accepted:
            if over.committing is not None and answer.state is State.SUCCEEDED:
                # Its effects are in the same database: if that loses its end, it loses them too, and the run is needed.
                self.accepted.remember_end(key, GiveBack(claim=over.committing, cut="stopped"))
            else:
                self.accepted.remember_end(key, end)
        self._run_log.log_end(answer, end)
        self._run_events.publish_end(answer, end)

    def _accept_release(self, back: GiveBack, *, accepted: bool) -> None:
        key = back.claim.id, back.claim.token
        owed = self.owed.pop(key)
        assert isinstance(owed, Back)  # noqa: S101 - it was sent as one
        if owed.may_have_committed and not accepted:
            # It may have committed, and the answer was lost: only the answer to an end shows how a run ended.
            self.record_end(back.claim, uncommitted_end(back.claim), may_have_committed=True)
            return
        is_back = accepted or owed.may_be_back
        self._run_events.publish_release(back, accepted=is_back)
        if is_back:
            self.accepted.remember_end(key, back)
        else:
            self._run_log.log_refusal(*key, State.PENDING)
