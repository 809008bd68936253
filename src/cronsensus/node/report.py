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
from cronsensus.node.holding import Ended, Released
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
        self.owed: dict[Key, Ended | Released] = {}
        self.accepted = AcceptedEnds(clock)
        self._waking = waking
        self._run_log = run_log
        self._run_events = run_events

    @property
    def unsent_ends(self) -> list[End]:
        """Return the ends that the store has not recorded yet."""
        return [owed.end for owed in list(self.owed.values()) if isinstance(owed, Ended)]

    @property
    def given_back(self) -> list[GiveBack]:
        """Return the released claims that the store has yet to accept."""
        return [owed.give_back for owed in list(self.owed.values()) if isinstance(owed, Released)]

    def record_end(self, claim: Claim, end: End, raised: ExcInfo = None, *, may_have_committed: bool = False) -> None:
        """Record the end of an attempt.

        Args:
            claim: of the attempt.
            end: the occurrence's next state.
            raised: the exception, for the log.
            may_have_committed: whether the run's own transaction may have recorded its end already.
        """
        triggers = self._waking.triggers_of_end(claim, end.then)
        self.owed[claim.id, claim.token] = Ended(end, triggers, claim if may_have_committed else None)
        self._run_log.remember_end(claim, end, raised)
        self._run_events.remember_claim(claim)

    def record_release(self, claim: Claim, cut: Cut | None, *, may_have_committed: bool = False) -> None:
        """Release a claim; ``cut``: how it was cut off, if it had started."""
        self.owed[claim.id, claim.token] = Released(GiveBack(claim=claim, cut=cut), may_have_committed)

    def send_again(self, key: Key) -> bool:
        """Send an end again that the store accepted and has lost; ``False``: this node does not know it any more."""
        match self.accepted.pop_end(key):
            case End() as end:
                self.owed[key] = Ended(end)
            case GiveBack() as release:
                self.owed[key] = Released(release)
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
            # The store may have accepted the release all the same; then it refuses the second one.
            for release in step.give_back:
                if isinstance(owed := self.owed.get((release.claim.id, release.claim.token)), Released):
                    owed.may_be_accepted = True
            raise

    def drop_accepted(self, sent: Step, done: Done) -> None:
        """Drop what the store has recorded."""
        with together():
            for answer in done.settled:
                self._accept_end(answer)
        if sent.give_back:
            for release, accepted in zip(sent.give_back, done.returned, strict=True):
                self._accept_release(release, accepted=accepted)

    def _accept_end(self, answer: Settled) -> None:
        key = answer.id, answer.token
        ended = self.owed.pop(key)
        assert isinstance(ended, Ended)  # noqa: S101 - it was sent as one
        end = ended.end
        # A failed run that is retried frees nothing.
        if ended.triggers and (answer.state is not State.PENDING or is_snoozed(end.then)):
            self._waking.queue_triggers(ended.triggers)
        if answer.accepted:
            if ended.committing is not None and answer.state is State.SUCCEEDED:
                # Its effects are in the same database: if that loses its end, it loses them too, and the run is needed.
                self.accepted.remember_end(key, GiveBack(claim=ended.committing, cut="stopped"))
            else:
                self.accepted.remember_end(key, end)
        self._run_log.log_end(answer, end)
        self._run_events.publish_end(answer, end)

    def _accept_release(self, release: GiveBack, *, accepted: bool) -> None:
        key = release.claim.id, release.claim.token
        owed = self.owed.pop(key)
        assert isinstance(owed, Released)  # noqa: S101 - it was sent as one
        if owed.may_have_committed and not accepted:
            # It may have committed, and the answer was lost: only the answer to an end shows how a run ended.
            self.record_end(release.claim, uncommitted_end(release.claim), may_have_committed=True)
            return
        is_released = accepted or owed.may_be_accepted
        self._run_events.publish_release(release, accepted=is_released)
        if is_released:
            self.accepted.remember_end(key, release)
        else:
            self._run_log.log_refusal(*key, State.PENDING)
