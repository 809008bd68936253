"""What follows the end of an attempt."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.model.ending import Ending
from cronsensus.model.ends import Again, Final
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, RunError
from cronsensus.model.states import TRANSITIONS, Origin, State
from cronsensus.retry import JITTER, decide_end, retry_delay

T0 = datetime(2026, 3, 1, tzinfo=UTC)
ERROR = RunError(type="ValueError", message="no such shop")


def a_claim(*, failures=0, crashes=0, **policies):
    return Claim(
        id=41,
        spec=JobSpec(name="job", function="job", policies=Policies.read(policies)),
        key="k",
        origin=Origin.SCHEDULE,
        scheduled_for=T0,
        due_at=T0,
        attempt=failures + crashes + 1,
        token=99,
        session="s",
        args=(),
        kwargs={},
        claimed_at=T0,
        created_at=T0,
        crashes=crashes,
        failures=failures,
    )


def test_a_returned_value_is_the_result():
    end = decide_end(a_claim(), Ending(kind="returned", result="[1]", elapsed=timedelta(seconds=2)))
    assert (end.id, end.token, end.elapsed) == (41, 99, timedelta(seconds=2))
    assert end.then == Final(State.SUCCEEDED, result="[1]")


@pytest.mark.parametrize(
    ("ending", "state", "reason"),
    [
        (Ending(kind="skipped", reason="no new orders"), State.SKIPPED, "job: no new orders"),
        (Ending(kind="skipped"), State.SKIPPED, "job: nothing to do"),
        (Ending(kind="cancelled", reason="operator: wrong shop"), State.CANCELLED, "operator: wrong shop"),
        (Ending(kind="cancelled"), State.CANCELLED, "operator"),
    ],
)
def test_what_the_job_or_an_operator_ended_is_not_retried(ending, state, reason):
    end = decide_end(a_claim(retries=5), ending)
    assert end.then == Final(state, reason)


def test_a_cancelled_attempt_keeps_the_error_it_ended_with():
    assert decide_end(a_claim(), Ending(kind="cancelled", error=ERROR)).error == ERROR


@pytest.mark.parametrize("kind", ["raised", "timed_out", "retry"])
@pytest.mark.parametrize(("failures", "retries", "again"), [(0, 0, False), (0, 1, True), (1, 1, False), (4, 5, True)])
def test_a_failure_is_retried_until_none_is_left(kind, failures, retries, again):
    end = decide_end(a_claim(failures=failures, retries=retries), Ending(kind=kind, error=ERROR))
    assert end.state == (State.PENDING if again else State.FAILED)
    assert isinstance(end.then, Again) is again
    assert end.error == ERROR


@pytest.mark.parametrize("failures", [0, 1])
def test_what_cannot_end_otherwise_is_not_tried_again(failures):
    end = decide_end(a_claim(failures=failures, retries=5), Ending(kind="raised", error=ERROR, permanent=True))
    assert end.then == Final(State.FAILED, error=ERROR)


@pytest.mark.parametrize(
    ("policies", "failures", "words"),
    [
        ({}, 0, "gateway busy (a retry was asked for, but the job has retries=0)"),
        ({"retries": 2}, 2, "gateway busy (a retry was asked for, but none is left)"),
    ],
)
def test_a_retry_that_cannot_be_had_keeps_the_job_s_own_words(policies, failures, words):
    end = decide_end(a_claim(failures=failures, **policies), Ending(kind="retry", reason="gateway busy"))
    assert end.error == RunError(type="Retry", message=words)


def test_crashes_use_up_no_retries():
    assert decide_end(a_claim(crashes=2, retries=1), Ending(kind="raised", error=ERROR)).state is State.PENDING


@pytest.mark.parametrize("kind", ["raised", "timed_out", "retry"])
def test_a_last_failure_never_goes_without_an_error(kind):
    error = decide_end(a_claim(), Ending(kind=kind)).error
    assert error is not None
    assert error.type != ""
    assert error.message != ""


def test_a_timeout_says_so():
    assert decide_end(a_claim(retries=1), Ending(kind="timed_out")).then.reason == "timeout"


def test_the_job_may_say_when():
    ending = Ending(kind="retry", retry_after=timedelta(0), reason="the shop is closed")
    end = decide_end(a_claim(retries=1, retry_delay="1h"), ending)
    assert end.then == Again(timedelta(0), failed=True, reason="the shop is closed")


def test_a_snooze_counts_nothing_and_says_why():
    then = Again(timedelta(minutes=5), failed=False)
    end = decide_end(a_claim(failures=1), Ending(kind="snoozed", reason="no file", then=then))
    assert end.then == Again(timedelta(minutes=5), failed=False, reason="no file")


endings = st.builds(
    Ending,
    kind=st.sampled_from(["returned", "raised", "timed_out", "cancelled", "skipped", "retry"]),
    reason=st.none() | st.text(),
    retry_after=st.none() | st.timedeltas(timedelta(0), timedelta(days=1)),
)


@given(endings, st.integers(0, 10), st.integers(0, 10))
def test_every_ending_leads_where_a_run_may_go_under_its_token(ending, failures, retries):
    end = decide_end(a_claim(failures=failures, retries=retries), ending)
    assert end.state in TRANSITIONS[State.RUNNING]
    assert (end.id, end.token) == (41, 99)
    assert isinstance(end.then, Final) is end.state.final
    assert isinstance(end.then, Final) or (isinstance(end.then, Again) and end.then.after >= timedelta(0))


delays = st.timedeltas(timedelta(0), timedelta(days=400))


@given(delays, st.floats(1, 100), delays, st.integers(), st.integers(0, 100_000))
def test_the_delay_grows_to_its_most_less_a_quarter_at_most(first, factor, most, occurrence, failures):
    policies = Policies.read({"retry_delay": first, "retry_factor": factor, "retry_max_delay": most})
    delay = retry_delay(policies, occurrence, failures)
    try:
        full = min(first.total_seconds() * factor**failures, most.total_seconds())
    except OverflowError:
        full = most.total_seconds() if first else 0.0
    microsecond = timedelta(microseconds=1)
    assert timedelta(seconds=full * (1 - JITTER)) - microsecond <= delay <= timedelta(seconds=full) + microsecond
    assert delay == retry_delay(policies, occurrence, failures), "every node computes the same"


def test_the_default_doubles_from_a_second():
    bare = [retry_delay(Policies(), 1, failures).total_seconds() for failures in range(5)]
    for failures, delay in enumerate(bare):
        assert 2**failures * (1 - JITTER) <= delay <= 2**failures


def test_failures_of_one_cause_do_not_come_back_as_one_herd():
    assert len({retry_delay(Policies(), occurrence, 0) for occurrence in range(100)}) > 90


def test_no_delay_stays_no_delay_after_any_number_of_failures():
    policies = Policies.read({"retry_delay": 0})
    assert {retry_delay(policies, 1, failures) for failures in (0, 1, 1000, 5000)} == {timedelta(0)}
