"""How long a node trusts its session's lease, by the answers that it got and in whatever order they came."""

from datetime import timedelta

import pytest

from cronsensus.membership.lease import UNTRUSTED_SHARE, SessionLease
from cronsensus.timing.clock import ManualClock

SHORT, LONG = timedelta(seconds=10), timedelta(seconds=600)
SHORT_TRUST, LONG_TRUST = SHORT.total_seconds() * (1 - UNTRUSTED_SHARE), LONG.total_seconds() * (1 - UNTRUSTED_SHARE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lease(clock: ManualClock) -> SessionLease:
    """Return the lease of an idle session, confirmed a moment ago."""
    lease = SessionLease("s", clock)
    lease.confirm_renewal(lease.note_request(), LONG)
    return lease


def test_a_lease_is_trusted_from_the_question_on_less_a_margin(clock: ManualClock) -> None:
    lease = SessionLease("s", clock)
    asked = lease.note_request()
    clock.advance(3)
    lease.confirm_renewal(asked, SHORT)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST - 3)


def test_a_claim_whose_answer_was_lost_may_have_shortened_it(clock: ManualClock, lease: SessionLease) -> None:
    asked = lease.note_request()
    clock.advance(2)
    lease.shorten_trust(asked, SHORT)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST - 2)
    assert lease.length == SHORT


def test_a_lost_answer_never_lengthens_the_trust(clock: ManualClock, lease: SessionLease) -> None:
    # All but a second of the long lease is over; the claim may not have been carried out at all.
    clock.advance(LONG_TRUST - 1)
    lease.shorten_trust(lease.note_request(), SHORT)
    assert lease.trusted_for == pytest.approx(1)


def test_a_lost_answer_to_a_claim_with_the_same_lease_changes_nothing(clock: ManualClock, lease: SessionLease) -> None:
    lease.confirm_claim(lease.note_request(), SHORT)
    clock.advance(5)
    lease.shorten_trust(lease.note_request(), SHORT)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST - 5)


def test_a_renewal_that_was_asked_before_a_claim_gives_no_long_lease_back(
    clock: ManualClock, lease: SessionLease
) -> None:
    renewal = lease.note_request()
    lease.shorten_trust(lease.note_request(), SHORT)
    clock.advance(1)
    lease.confirm_renewal(renewal, LONG)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST - 1)
    lease.confirm_renewal(lease.note_request(), LONG)
    assert lease.trusted_for == pytest.approx(LONG_TRUST)


def test_a_renewal_that_crosses_a_claim_counts_where_it_is_no_longer(clock: ManualClock) -> None:
    lease = SessionLease("s", clock)
    before = lease.note_request()
    clock.advance(1)
    claim = lease.note_request()
    clock.advance(1)
    after = lease.note_request()
    lease.confirm_claim(claim, SHORT)
    lease.confirm_renewal(before, SHORT)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST - 1), "asked earlier than the claim"
    lease.confirm_renewal(after, SHORT)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST), "asked later than the claim, and as short"


def test_of_two_claims_whose_answers_cross_the_later_one_counts(clock: ManualClock) -> None:
    lease = SessionLease("s", clock)
    first = lease.note_request()
    clock.advance(1)
    second = lease.note_request()
    lease.confirm_claim(second, SHORT)
    lease.confirm_claim(first, SHORT)
    assert lease.trusted_for == pytest.approx(SHORT_TRUST)


@pytest.mark.parametrize("verb", ["confirm_claim", "shorten_trust"])
def test_on_lease_shortened_is_called_for_a_shorter_lease_and_no_other(clock: ManualClock, verb: str) -> None:
    told: list[float] = []
    watched = SessionLease("s", clock, lambda: told.append(watched.trusted_for))
    watched.confirm_renewal(watched.note_request(), LONG)
    assert told == []
    getattr(watched, verb)(watched.note_request(), SHORT)
    assert told == [pytest.approx(SHORT_TRUST)]
    getattr(watched, verb)(watched.note_request(), SHORT)
    getattr(watched, verb)(watched.note_request(), LONG)
    assert len(told) == 1


def test_a_session_that_is_lost_is_trusted_no_more(lease: SessionLease) -> None:
    lease.mark_lost()
    assert not lease.is_trusted
    assert lease.trusted_for < 0
    lease.confirm_renewal(lease.note_request(), LONG)
    assert not lease.is_trusted


def test_in_the_very_moment_in_which_trust_ends_there_is_none(clock: ManualClock, lease: SessionLease) -> None:
    lease._trusted_until = clock.monotonic()
    assert not lease.is_trusted
