from itertools import product

import pytest

from cronsensus.model.claim_order import first_level, ignores_classes, level_of, level_when_woken, priority_of
from cronsensus.model.states import Origin

FIRST = [Origin.SCHEDULE, Origin.MANUAL, Origin.STARTUP]
PRIORITIES = [-(2**31), -4, -1, 0, 1, 7, 2**31]


def test_the_schedule_goes_first_then_what_was_enqueued_then_items_and_backfill() -> None:
    assert {level_of(0, origin) for origin in FIRST} == {first_level(0)}
    enqueued = {level_of(0, Origin.ENQUEUE), level_of(0, Origin.BATCH)}
    last = {level_of(0, Origin.BATCH, parent=7), level_of(0, Origin.BACKFILL)}
    assert [len(enqueued), len(last)] == [1, 1]
    assert first_level(0) > max(enqueued) > max(last)


@pytest.mark.parametrize(("origin", "parent"), list(product(Origin, [None, 7])))
def test_a_higher_priority_goes_before_any_class(origin: Origin, parent: int | None) -> None:
    levels = [level_of(priority, origin, parent) for priority in PRIORITIES]
    assert [priority_of(level) for level in levels] == PRIORITIES
    assert all(first_level(priority - 1) < level for priority, level in zip(PRIORITIES, levels, strict=True))


def test_a_batch_that_is_woken_goes_first_and_another_sleeper_keeps_its_class() -> None:
    level = level_of(-2, Origin.BACKFILL)
    assert level_when_woken(level, None) == level
    assert [level_when_woken(level, listed) for listed in (0, 9)] == [first_level(-2)] * 2


@pytest.mark.parametrize("session", ["a", "b", "another"])
def test_each_tenth_claim_of_a_session_is_without_classes(session: str) -> None:
    first = next(claims for claims in range(10) if ignores_classes(session, claims))
    without = [claims for claims in range(30) if ignores_classes(session, claims)]
    assert without == [first, first + 10, first + 20]


def test_of_the_first_claims_of_many_sessions_a_tenth_is_without_classes() -> None:
    assert 60 < sum(ignores_classes(f"session {number}", 0) for number in range(1000)) < 140
