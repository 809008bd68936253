"""Each reason of the ledger has its words."""

from datetime import timedelta

import pytest

from cronsensus.insight.reasons import reason_clause, reason_of
from cronsensus.model.job import Policies
from cronsensus.model.states import Reason


@pytest.mark.parametrize("reason", Reason)
def test_clause_of_each_reason_is_filled_in_and_can_stand_within_a_sentence(reason: Reason) -> None:
    words = str(reason_clause(reason, Policies()))
    assert words != reason
    assert not set("{}") & set(words)
    assert not words.endswith(".")


def test_clause_names_what_the_policy_says() -> None:
    policies = Policies(grace=timedelta(seconds=90), overlap="queue")
    assert str(reason_clause("late", policies)) == "grace is 1m 30s"
    assert str(reason_clause("overlap", policies)).endswith("and overlap=queue")
    assert str(reason_clause("late", Policies())) == "grace is none"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("catch_up_window", Reason.BEYOND_WINDOW, ""),
        ("operator: wrong month", Reason.OPERATOR, "wrong month"),
        ("timeout (in its thread)", Reason.TIMEOUT, "in its thread"),
        ("crashed: node lost: its lease ended", Reason.CRASHED, "node lost: its lease ended"),
        ("jobless", None, "jobless"),
        ("lateness: 3s", None, "lateness: 3s"),
        (None, None, ""),
    ],
)
def test_reason_of_a_text_is_its_first_word_and_the_rest_is_detail(
    text: str | None, reason: Reason | None, detail: str
) -> None:
    assert reason_of(text) == (reason, detail)


def test_clause_keeps_the_detail_and_a_text_that_is_no_reason() -> None:
    assert str(reason_clause("job: no orders", Policies())) == "the job said so: no orders"
    assert reason_clause("something of yours", Policies()) == "something of yours"
    assert reason_clause(None, Policies()) == ""
