"""Finishing, releasing and noting: only under the current token, and only once."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from cronsensus.errors import InvalidTransition
from cronsensus.model.ends import Again, End, Final, Parked
from cronsensus.model.occurrence import Claim, Item, LogLine, Note, RunError, Settled
from cronsensus.model.states import Reason, State
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.testing.conformance.fixtures import DAY, HOUR, LEASE, MINUTE, SECOND, START, StoreTest
from cronsensus.testing.conformance.steps import an_end, give_back, say, settle

ENDS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.SKIPPED: "skipped",
}


class Finishing(StoreTest):
    """Hazards of finishing: a node that was given up for dead comes back with a result."""

    def running(self, **policies: Any) -> Claim:
        """Return the claim of one running occurrence of session ``s1``."""
        self.queue(**policies)
        self.session()
        self.enqueue()
        return self.take()

    def taken_over(self) -> tuple[Claim, Claim]:
        """Return the claim of a session that was given up, and that of its successor."""
        old = self.running()
        self.lease_out()
        self.store.reclaim()
        self.session("s2")
        return old, self.take("s2")

    # --- the result -------------------------------------------------------------------------------------------------

    def test_a_final_state_is_written_with_reason_result_and_error(self) -> None:
        self.queue()
        self.session()
        error = RunError(type="ValueError", message="bad ü🧨", traceback="line 1\n  line 2")
        for state in ENDS:
            self.enqueue()
            claim = self.take()
            self.clock.advance(SECOND)
            answer = self.finish(claim, state, reason="why", result='{"a": [1, "ü🧨"]}', error=error)
            assert Settled(claim.id, claim.token, accepted=True, state=state) == answer
            found = self.look(claim)
            assert (state, "why", '{"a": [1, "ü🧨"]}', error) == (
                found.state,
                found.reason,
                found.result,
                found.error,
            )
            assert self.store.now() == found.finished_at
            assert (1, "s1", "node of s1") == (found.attempt, found.session, found.node)

    def test_an_accepted_outcome_leaves_a_run_record_with_its_token(self) -> None:
        self.queue()
        self.session()
        error = RunError(type="ValueError", message="bad")
        for state, end in ENDS.items():
            self.enqueue()
            claim = self.take()
            self.clock.advance(SECOND)
            self.finish(claim, state, reason="why", error=error)
            run = self.runs(claim)[0]
            assert (end, claim.token, 1, "s1") == (run.end, run.token, run.attempt, run.session)
            assert ("why", error) == (run.reason, run.error)
            assert SECOND == (run.finished_at or START) - run.started_at

    def test_large_results_come_back_whole(self) -> None:
        claim = self.running()
        result = '"' + "🧨" * 60_000 + '"'
        self.finish(claim, result=result)
        assert result == self.look(claim).result

    def test_text_that_a_database_cannot_keep_costs_no_result(self) -> None:
        claim = self.running()
        hostile = "before \0 \ud83d \x1b[2J ' ;-- after"
        error = RunError(type="Error", message=hostile, traceback=hostile)
        assert [True] == say(self.store, [Note(claim.id, claim.token, None, (LogLine(START, "info", hostile),))])
        assert self.finish(claim, State.FAILED, reason=hostile, error=error).accepted
        found = self.look(claim)
        assert found.error is not None
        texts = [found.reason or "", found.error.message, found.error.traceback, self.store.logs(claim.id)[0][2].text]
        for text in texts:
            assert (True, True) == (text.startswith("before "), text.endswith(" ' ;-- after"))

    def test_no_secret_is_kept_of_an_error_a_reason_or_a_log_line(self) -> None:
        claim = self.running()
        told, masked = "redis://:hunter2@cache PGPASSWORD=hunter2", "redis://:***@cache PGPASSWORD=***"
        error = RunError(type="Error", message=told, traceback=told)
        assert [True] == say(self.store, [Note(claim.id, claim.token, None, (LogLine(START, "info", told),))])
        assert self.finish(claim, State.FAILED, reason=told, error=error).accepted
        found, [run] = self.look(claim), self.runs(claim)
        kept = RunError(type="Error", message=masked, traceback=masked)
        assert (masked, kept, masked, kept) == (found.reason, found.error, run.reason, run.error)
        assert masked == self.store.logs(claim.id)[0][2].text

    def test_no_secret_is_kept_of_what_an_operator_says(self) -> None:
        self.queue()
        waits = self.enqueue()
        self.store.cancel(waits.id, by="ann", why="token=hunter2")
        self.store.pause("queue", by="ann", why="token=hunter2")
        view = self.store.job("queue")
        assert view is not None
        assert (f"{Reason.OPERATOR}: token=***", "token=***") == (self.look(waits).reason, view.paused_why)
        assert {"token=***"} == {act.why for act in self.store.trail(target="queue") if act.action != "define"}

    def test_any_handle_may_finish(self) -> None:
        claim = self.running()
        assert self.finish(claim, store=self.sibling()).accepted
        assert State.SUCCEEDED is self.look(claim).state

    def test_result_under_an_expired_lease_counts_before_a_takeover(self) -> None:
        claim = self.running()
        self.lease_out()
        assert self.finish(claim).accepted
        assert [] == self.store.reclaim()

    def test_finishing_nothing_is_nothing(self) -> None:
        assert [] == settle(self.store, [])

    # --- the retry --------------------------------------------------------------------------------------------------

    def test_a_retry_goes_back_to_pending_with_one_failure_more(self) -> None:
        claim = self.running()
        answer = self.finish(claim, State.PENDING, retry_in=MINUTE)
        found = self.look(claim)
        assert Settled(claim.id, claim.token, accepted=True, state=State.PENDING) == answer
        assert (State.PENDING, 1, 1, 0) == (found.state, found.attempt, found.failures, found.crashes)
        assert START + MINUTE == found.due_at
        assert found.finished_at is None

    def test_a_retry_is_due_after_the_delay_on_the_clock_of_the_store(self) -> None:
        claim = self.running()
        self.clock.advance(SECOND)
        self.finish(claim, State.PENDING, retry_in=5 * SECOND)
        self.clock.advance(timedelta(seconds=5, microseconds=-1))
        assert [] == self.claim()
        self.clock.advance(timedelta(microseconds=1))
        again = self.take()
        assert (claim.id, 2, 1, 0) == (again.id, again.attempt, again.failures, again.crashes)

    def test_a_retry_without_a_delay_is_due_at_once(self) -> None:
        claim = self.running()
        self.finish(claim, State.PENDING)
        assert claim.id == self.take().id

    def test_a_snooze_counts_as_no_attempt_and_outlives_its_expiry(self) -> None:
        self.queue()
        self.session()
        self.store.enqueue([Item(job="queue", key="k", expires_in=SECOND)])
        failed = self.take()
        self.finish(failed, State.PENDING, reason="lost", error=RunError(type="ValueError", message="x"))
        claim = self.take()
        answer = self.finish(claim, State.PENDING, reason="not yet", retry_in=2 * SECOND, waiting=True)
        assert Settled(claim.id, claim.token, accepted=True, state=State.PENDING) == answer
        assert answer == self.finish(claim, State.PENDING, reason="not yet", retry_in=HOUR, waiting=True)
        found = self.look(claim)
        assert (State.PENDING, 1, 1, 0) == (found.state, found.attempt, found.failures, found.crashes)
        assert ("not yet", None, START + 2 * SECOND) == (found.reason, found.error, found.due_at)
        self.clock.advance(timedelta(seconds=2, microseconds=-1))
        assert [] == self.claim()
        self.clock.advance(timedelta(microseconds=1))
        again = self.take()
        assert (claim.id, 2, 1) == (again.id, again.attempt, again.failures)
        assert again.token > claim.token
        assert ["retry", "snoozed", None] == [run.end for run in self.runs(claim)]

    def test_what_waited_and_then_succeeds_says_no_more_why_it_waited(self) -> None:
        self.queue()
        self.session()
        self.enqueue("k")
        claim = self.take()
        self.finish(claim, State.PENDING, reason="not yet", retry_in=timedelta(0), waiting=True)
        again = self.take()
        assert self.look(again).reason is None
        self.finish(again, State.SUCCEEDED)
        assert self.look(again).reason is None

    def test_a_snooze_keeps_crashes_and_what_is_parked_begins_anew(self) -> None:
        _, claim = self.taken_over()
        self.finish(claim, State.PENDING, reason="not yet", retry_in=timedelta(0), waiting=True)
        again = self.take("s2")
        assert (1, 1) == (claim.crashes, again.crashes)
        assert settle(self.store, [End.of(again, Parked("items", 0))])[0].accepted
        assert 0 == self.look(claim).crashes
        self.store.wake([claim.id])
        assert 0 == self.take("s2").crashes

    def test_an_attempt_that_never_began_counts_nothing(self) -> None:
        self.queue(retries=5)
        self.session()
        self.enqueue("k")
        self.finish(self.take(), State.PENDING, retry_in=timedelta(0))
        claim = self.take()
        assert settle(self.store, [End.of(claim, Again(timedelta(0), failed=False))])[0].accepted
        again = self.take()
        assert (2, 1, 2, 1) == (claim.attempt, claim.failures, again.attempt, again.failures)

    def test_a_snooze_of_a_run_that_was_asked_to_stop_is_its_end(self) -> None:
        claim = self.running()
        self.store.cancel(claim.id, by="ann", why="enough")
        answer = self.finish(claim, State.PENDING, reason="not yet", retry_in=MINUTE, waiting=True)
        assert State.CANCELLED is answer.state
        assert ["cancelled"] == [run.end for run in self.runs(claim)]

    def test_every_attempt_leaves_its_run_record(self) -> None:
        claim = self.running()
        error = RunError(type="ValueError", message="first")
        self.finish(claim, State.PENDING, reason="again", error=error)
        second = self.take()
        assert ["retry", None] == [run.end for run in self.runs(claim)]
        self.finish(second)
        first_run, second_run = self.runs(claim)
        assert (claim.token, second.token) == (first_run.token, second_run.token)
        assert ((1, "retry", "again", error), (2, "succeeded")) == (
            (first_run.attempt, first_run.end, first_run.reason, first_run.error),
            (second_run.attempt, second_run.end),
        )

    # --- the fence --------------------------------------------------------------------------------------------------

    def test_an_outcome_under_an_old_token_is_refused(self) -> None:
        old, new = self.taken_over()
        before = self.snapshot()
        for state in (*ENDS, State.PENDING):
            assert Settled(old.id, old.token, accepted=False, state=State.RUNNING) == self.finish(old, state)
        assert before == self.snapshot()
        assert self.finish(new, result="1").accepted
        assert Settled(old.id, old.token, accepted=False, state=State.SUCCEEDED) == self.finish(old, State.FAILED)
        assert (State.SUCCEEDED, "1") == (self.look(new).state, self.look(new).result)

    def test_an_outcome_is_refused_while_the_occurrence_waits_for_its_next_holder(self) -> None:
        claim = self.running()
        self.lease_out()
        self.store.reclaim()
        assert not self.finish(claim).accepted
        assert State.PENDING is self.look(claim).state

    def test_an_outcome_after_a_release_is_refused(self) -> None:
        claim = self.running()
        give_back(self.store, [claim])
        assert Settled(claim.id, claim.token, accepted=False, state=State.PENDING) == self.finish(claim)
        assert State.PENDING is self.look(claim).state

    def test_tokens_of_others_are_refused(self) -> None:
        claim = self.running()
        for token in (0, -1, claim.token + 1, 2**62):
            assert not self.finish(structs.replace(claim, token=token)).accepted
        assert State.RUNNING is self.look(claim).state

    def test_under_the_right_token_another_session_writes_nothing(self) -> None:
        # Such a token was given twice: by a server that forgot, and whose clock lags behind.
        claim = self.running()
        before = self.snapshot()
        stranger = structs.replace(claim, session="another")
        outcome = an_end(id=claim.id, token=claim.token, session="another", state=State.SUCCEEDED, result="1")
        assert [Settled(claim.id, claim.token, accepted=False, state=State.RUNNING)] == settle(self.store, [outcome])
        assert [False] == give_back(self.store, [stranger])
        note = Note(claim.id, claim.token, (1.0, 2.0), (LogLine(START, "info", "x"),), "another")
        assert [False] == say(self.store, [note])
        assert before == self.snapshot()
        assert [True] == say(self.store, [replace(note, session=claim.session)])
        own = structs.replace(outcome, session=claim.session)
        for _ in range(2):  # also when it is said again
            assert [Settled(claim.id, claim.token, accepted=True, state=State.SUCCEEDED)] == settle(self.store, [own])
            assert [False] == [answer.accepted for answer in settle(self.store, [outcome])]

    def test_a_retry_that_another_session_asked_for_is_not_answered_as_ones_own(self) -> None:
        claim = self.running()
        own = an_end(id=claim.id, token=claim.token, session=claim.session, state=State.PENDING, retry_in=HOUR)
        assert settle(self.store, [own])[0].accepted
        assert settle(self.store, [own])[0].accepted
        assert not settle(self.store, [structs.replace(own, session="another")])[0].accepted

    def test_the_token_belongs_to_its_occurrence(self) -> None:
        self.queue()
        self.session()
        self.fill(2)
        first, second = self.claim()
        assert not self.finish(structs.replace(first, token=second.token)).accepted
        assert [State.RUNNING, State.RUNNING] == [self.look(first).state, self.look(second).state]

    def test_an_unclaimed_occurrence_cannot_be_finished(self) -> None:
        self.queue()
        made = self.enqueue()
        outcome = an_end(id=made.id, token=self.look(made).token, state=State.SUCCEEDED)
        assert [Settled(made.id, outcome.token, accepted=False, state=State.PENDING)] == settle(self.store, [outcome])
        assert State.PENDING is self.look(made).state

    def test_an_occurrence_that_does_not_exist_cannot_be_finished(self) -> None:
        outcome = an_end(id=987_654, token=1, state=State.SUCCEEDED)
        assert [Settled(987_654, 1, accepted=False, state=None)] == settle(self.store, [outcome])

    def test_states_in_which_no_run_ends_are_refused_and_nothing_is_written(self) -> None:
        self.queue()
        self.session()
        self.fill(2)
        first, second = self.claim()
        before = self.snapshot()
        for state in (State.RUNNING, State.MISSED):
            good = an_end(id=first.id, token=first.token, state=State.SUCCEEDED)
            with pytest.raises(InvalidTransition):
                settle(self.store, [good, an_end(id=second.id, token=second.token, state=state)])
        assert before == self.snapshot()

    # --- once -------------------------------------------------------------------------------------------------------

    def test_repeating_gives_the_first_answer_and_writes_nothing(self) -> None:
        for state in (*ENDS, State.PENDING):
            name = f"queue {state}"
            self.queue(name)
            self.session(name)
            self.enqueue(job=name)
            claim = self.take(name, functions=[name])
            first = self.finish(claim, state, reason="first", retry_in=HOUR)
            before = self.snapshot()
            self.clock.advance(SECOND)
            assert first == self.finish(claim, state, reason="second", retry_in=2 * HOUR)
            assert before[:4] == self.snapshot()[:4]

    def test_repeating_with_another_state_gives_the_first_answer_too(self) -> None:
        claim = self.running()
        first = self.finish(claim, State.FAILED, reason="first")
        before = self.snapshot()
        for state in (State.SUCCEEDED, State.PENDING, State.CANCELLED, State.SKIPPED):
            assert first == self.finish(claim, state, result="2")
        assert before == self.snapshot()

    def test_repeating_a_retry_does_not_disturb_the_next_attempt(self) -> None:
        claim = self.running()
        first = self.finish(claim, State.PENDING)
        second = self.take()
        before = self.snapshot()
        assert first == self.finish(claim, State.PENDING)
        assert first == self.finish(claim, State.SUCCEEDED)
        assert before == self.snapshot()
        assert self.finish(second).accepted
        assert first == self.finish(claim, State.PENDING)
        assert 1 == self.look(claim).failures

    def test_a_refused_outcome_stays_refused(self) -> None:
        old, new = self.taken_over()
        assert not self.finish(old).accepted
        self.finish(new, State.PENDING)
        assert not self.finish(old).accepted

    def test_of_two_outcomes_of_one_run_in_one_call_the_first_counts(self) -> None:
        claim = self.running()
        first = an_end(id=claim.id, token=claim.token, state=State.FAILED, reason="first")
        answers = settle(self.store, [first, structs.replace(first, then=Final(State.SUCCEEDED))])
        assert [(True, State.FAILED)] * 2 == [(answer.accepted, answer.state) for answer in answers]
        assert "first" == self.look(claim).reason
        assert 1 == len(self.runs(claim))

    # --- batches ----------------------------------------------------------------------------------------------------

    def test_answers_come_in_the_order_of_the_outcomes(self) -> None:
        self.queue()
        self.session()
        self.fill(4)
        a, b, c, d = self.claim()
        give_back(self.store, [b])
        outcomes = [
            an_end(id=d.id, token=d.token, state=State.FAILED),
            an_end(id=b.id, token=b.token, state=State.SUCCEEDED),
            an_end(id=987_654, token=1, state=State.SUCCEEDED),
            an_end(id=a.id, token=a.token, state=State.PENDING, retry_in=HOUR),
            an_end(id=c.id, token=c.token, state=State.SKIPPED),
        ]
        answers = settle(self.store, outcomes)
        assert [(outcome.id, outcome.token) for outcome in outcomes] == [
            (answer.id, answer.token) for answer in answers
        ]
        assert [True, False, False, True, True] == [answer.accepted for answer in answers]
        assert [State.FAILED, State.PENDING, None, State.PENDING, State.SKIPPED] == [one.state for one in answers]

    def test_many_outcomes_are_recorded_in_one_call(self) -> None:
        self.queue()
        self.session()
        self.fill(2000)
        claims = self.claim(limit=2000)
        outcomes = [an_end(id=one.id, token=one.token, state=State.SUCCEEDED, result=str(one.id)) for one in claims]
        assert [True] * 2000 == [answer.accepted for answer in settle(self.store, outcomes)]
        assert [str(claim.id) for claim in claims] == [one.result for one in self.all(states=(State.SUCCEEDED,))]

    # --- release ----------------------------------------------------------------------------------------------------

    def test_a_release_gives_the_attempt_back(self) -> None:
        claim = self.running()
        assert [True] == give_back(self.store, [claim])
        found = self.look(claim)
        assert (State.PENDING, 0, 0, 0) == (found.state, found.attempt, found.failures, found.crashes)
        assert found.session is None
        again = self.take()
        assert (claim.id, 1) == (again.id, again.attempt)
        assert claim.token < again.token

    def test_a_released_claim_is_due_at_once_for_others(self) -> None:
        claim = self.running()
        give_back(self.store, [claim])
        self.session("s2")
        assert claim.id == self.take("s2", store=self.sibling()).id

    def test_a_released_claim_is_due_very_soon_also_after_the_clock_stepped_back(self) -> None:
        claim = self.running()
        self.clock.step(-HOUR)
        give_back(self.store, [claim])
        self.clock.advance(MOST_AHEAD)
        assert claim.id == self.take().id

    def test_releasing_twice_gives_the_attempt_back_once(self) -> None:
        claim = self.running()
        self.finish(claim, State.PENDING)
        second = self.take()
        assert [True] == give_back(self.store, [second])
        give_back(self.store, [second])
        assert 1 == self.look(claim).attempt
        third = self.take()
        assert [False, False] == give_back(self.store, [claim, second])
        assert (2, State.RUNNING) == (third.attempt, self.look(third).state)

    def test_a_release_under_an_old_token_changes_nothing(self) -> None:
        old, new = self.taken_over()
        before = self.snapshot()
        assert [False] == give_back(self.store, [old])
        assert before == self.snapshot()
        self.finish(new)
        assert [False] == give_back(self.store, [new])
        assert State.SUCCEEDED is self.look(new).state

    def test_a_released_run_has_a_record_that_says_so(self) -> None:
        claim = self.running()
        give_back(self.store, [claim])
        second = self.take()
        self.finish(second)
        runs = [(run.token, run.attempt, run.end) for run in self.runs(claim)]
        assert [(claim.token, 1, "released"), (second.token, 1, "succeeded")] == runs

    def test_a_run_that_its_node_stopped_keeps_the_number_of_its_attempt(self) -> None:
        claim = self.running(max_crashes=1)
        assert [True] == give_back(self.store, [claim], cut="stopped")
        found = self.look(claim)
        assert (State.PENDING, 1, 0, 0) == (found.state, found.attempt, found.failures, found.crashes)
        assert (None, claim.due_at) == (found.session, found.due_at)
        again = self.take()
        assert (claim.id, 2, 0) == (again.id, again.attempt, again.crashes)
        self.finish(again)
        runs = [(run.token, run.attempt, run.end) for run in self.runs(claim)]
        assert [(claim.token, 1, "released"), (again.token, 2, "succeeded")] == runs

    def test_a_run_that_its_node_could_not_hold_counts_as_a_crash(self) -> None:
        claim = self.running(max_crashes=3)
        for number in (1, 2):
            assert [True] == give_back(self.store, [claim], cut="crashed")
            found = self.look(claim)
            assert (State.PENDING, number, number) == (found.state, found.attempt, found.crashes)
            assert Reason.CRASHED == (found.reason or "").split(":")[0]
            claim = self.take()
            assert (number + 1, number) == (claim.attempt, claim.crashes)
        assert [True] == give_back(self.store, [claim], cut="crashed")
        found = self.look(claim)
        assert (State.FAILED, 3) == (found.state, found.crashes)
        assert Reason.CRASHED == (found.reason or "").split(":")[0]
        assert [(1, "crashed"), (2, "crashed"), (3, "crashed")] == [(run.attempt, run.end) for run in self.runs(claim)]
        assert [] == self.claim()

    def test_an_at_most_once_run_that_had_begun_does_not_come_back(self) -> None:
        self.queue(on_crash="fail")
        self.session()
        self.fill(3)
        stopped, crashed, unbegun = self.claim(limit=3)
        assert [True] == give_back(self.store, [stopped], cut="stopped")
        assert [True] == give_back(self.store, [crashed], cut="crashed")
        assert [True] == give_back(self.store, [unbegun])
        assert [State.FAILED, State.FAILED] == [self.look(stopped).state, self.look(crashed).state]
        assert (0, 1) == (self.look(stopped).crashes, self.look(crashed).crashes)
        assert unbegun.id == self.take().id

    def test_a_cut_off_run_that_was_asked_to_stop_does_not_come_back(self) -> None:
        claim = self.running()
        self.store.cancel(claim.id, by="ann", why="enough")
        assert [True] == give_back(self.store, [claim], cut="crashed")
        found = self.look(claim)
        assert (State.CANCELLED, "operator: enough") == (found.state, found.reason)

    def test_cut_off_runs_are_given_back_once_and_under_a_current_token_only(self) -> None:
        old, new = self.taken_over()
        before = self.snapshot()
        assert [False] == give_back(self.store, [old], cut="crashed")
        assert before == self.snapshot()
        assert [True, False] == give_back(self.store, [new, new], cut="crashed")
        assert [False] == give_back(self.store, [new], cut="stopped")
        assert 2 == self.look(new).crashes
        assert [] == give_back(self.store, [], cut="crashed")

    def test_releasing_nothing_is_nothing(self) -> None:
        assert [] == give_back(self.store, [])

    # --- notes ------------------------------------------------------------------------------------------------------

    def test_progress_and_lines_of_a_running_attempt_are_recorded(self) -> None:
        claim = self.running()
        lines = (LogLine(START, "info", "one ü🧨"), LogLine(START - DAY, "warning", "two\n'; DROP TABLE x; --"))
        assert [True] == say(self.store, [Note(claim.id, claim.token, (1.0, 4.0), lines)])
        assert (1.0, 4.0) == self.look(claim).progress
        assert [(1, line) for line in lines] == [(attempt, line) for _, attempt, line in self.store.logs(claim.id)]

    def test_a_note_of_lines_leaves_the_progress(self) -> None:
        claim = self.running()
        say(self.store, [Note(claim.id, claim.token, (1.0, 4.0))])
        say(self.store, [Note(claim.id, claim.token, None, (LogLine(START, "info", "x"),))])
        assert (1.0, 4.0) == self.look(claim).progress

    def test_lines_of_all_attempts_are_one_sequence(self) -> None:
        claim = self.running()
        for number in range(3):
            note = Note(claim.id, claim.token, None, tuple(LogLine(START, "info", f"{number}.{n}") for n in range(2)))
            assert [True] == say(self.store, [note])
            self.finish(claim, State.PENDING)
            claim = self.take()
        logs = self.store.logs(claim.id)
        assert [(1, "0.0"), (1, "0.1"), (2, "1.0"), (2, "1.1"), (3, "2.0"), (3, "2.1")] == [
            (attempt, line.text) for _, attempt, line in logs
        ]
        assert sorted({sequence for sequence, _, _ in logs}) == [sequence for sequence, _, _ in logs]

    def test_notes_under_an_old_token_are_refused(self) -> None:
        old, new = self.taken_over()
        line = (LogLine(START, "info", "from the grave"),)
        assert [False, True] == say(self.store, [Note(old.id, old.token, (9.0, 9.0), line), Note(new.id, new.token)])
        self.finish(new)
        assert [False, False] == say(
            self.store, [Note(new.id, new.token, (9.0, 9.0), line), Note(987_654, 1, (9.0, 9.0), line)]
        )
        assert self.look(new).progress is None
        assert [] == self.store.logs(new.id)

    def test_the_next_attempt_begins_without_progress(self) -> None:
        claim = self.running()
        say(self.store, [Note(claim.id, claim.token, (3.0, 4.0))])
        self.finish(claim, State.PENDING)
        self.take()
        assert self.look(claim).progress is None

    def test_noting_keeps_no_lease_alive(self) -> None:
        claim = self.running()
        self.clock.advance(9)
        say(self.store, [Note(claim.id, claim.token, (1.0, 2.0))])
        self.clock.advance(2)
        assert not self.store.renew("s1", lease=LEASE).alive
