"""May an occurrence begin, seeing what became of those that it comes after? As a table."""

from datetime import timedelta

import pytest

from cronsensus.model.gate import Gate, Rule, decide_gate

A, B = Rule("a"), Rule("b")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("rules", "verdicts", "expected"),
    [
        ([A], {"a": ["succeeded"]}, Gate("run")),
        ([A, B], {"a": ["succeeded"], "b": ["succeeded"]}, Gate("run")),
        ([A], {"a": ["wait"]}, Gate("wait", "for a")),
        ([A, B], {"a": ["wait"], "b": ["wait"]}, Gate("wait", "for a, b")),
        ([A], {"a": ["failed"]}, Gate("skip", "upstream failed: a")),
        ([A], {"a": ["cancelled"]}, Gate("skip", "upstream failed: a")),
        ([A], {"a": ["skipped"]}, Gate("skip", "upstream skipped: a")),
        ([A], {"a": ["missed"]}, Gate("skip", "upstream missing: a")),
        ([A], {"a": ["missing"]}, Gate("skip", "upstream missing: a")),
        ([A], {"a": ["pruned"]}, Gate("skip", "upstream unknown: pruned: a")),
        ([Rule("a", "ended")], {"a": ["pruned"]}, Gate("skip", "upstream unknown: pruned: a")),
        ([A, B], {"a": ["wait"], "b": ["failed"]}, Gate("skip", "upstream failed: b")),
        ([A], {"a": ["succeeded", "wait", "succeeded"]}, Gate("wait", "for a")),
        ([A], {"a": ["succeeded", "failed"]}, Gate("skip", "upstream failed: a")),
        ([Rule("a", "ended")], {"a": ["failed"]}, Gate("run")),
        ([Rule("a", "ended")], {"a": ["skipped"]}, Gate("run")),
        ([Rule("a", "ended")], {"a": ["missed"]}, Gate("skip", "upstream missing: a")),
        ([Rule("a", "failed")], {"a": ["failed"]}, Gate("run")),
        ([Rule("a", "failed")], {"a": ["succeeded"]}, Gate("skip", "upstream succeeded: a")),
        ([Rule("a", "failed")], {"a": ["wait"]}, Gate("wait", "for a")),
    ],
)
def test_what_becomes_of_it_follows_from_its_upstreams(rules, verdicts, expected):
    assert decide_gate(rules, verdicts, waited=MINUTE, wait_for=DAY) == expected


def test_it_does_not_wait_for_ever():
    assert decide_gate([A, B], {"a": ["wait"], "b": ["succeeded"]}, waited=DAY + MINUTE, wait_for=DAY) == Gate(
        "skip", "upstream late: a"
    )
