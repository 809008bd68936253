import itertools

import pytest

from cronsensus.errors import CoordinationError, InvalidTransition
from cronsensus.model.states import ACTIVE, SERIAL_ORIGINS, TRANSITIONS, Origin, State, require_transition

DRAWN = {
    (State.PENDING, State.RUNNING),
    (State.PENDING, State.SKIPPED),
    (State.PENDING, State.MISSED),
    (State.PENDING, State.CANCELLED),
    (State.RUNNING, State.SUCCEEDED),
    (State.RUNNING, State.FAILED),
    (State.RUNNING, State.CANCELLED),
    (State.RUNNING, State.SKIPPED),
    (State.RUNNING, State.PENDING),
}
"""The picture in the module's docstring, arrow by arrow."""


@pytest.mark.parametrize(("old", "new"), list(itertools.product(State, State)), ids=str)
def test_the_table_is_the_picture(old, new):
    if (old, new) in DRAWN:
        require_transition(old, new, what="occurrence 1")
    else:
        with pytest.raises(InvalidTransition, match=f"occurrence 1 is {old} and cannot become {new}"):
            require_transition(old, new, what="occurrence 1")


def test_every_state_is_active_or_final():
    assert set(TRANSITIONS) == set(State)
    assert {state for state in State if not state.final} == ACTIVE


def test_a_refused_change_is_a_matter_of_coordination():
    assert issubclass(InvalidTransition, CoordinationError)


def test_the_overlap_policy_is_for_the_schedule_and_for_what_stands_in_for_it():
    assert {Origin.SCHEDULE, Origin.MANUAL, Origin.BACKFILL} == SERIAL_ORIGINS


def test_states_and_origins_are_stored_as_their_words():
    assert [str(state) for state in State] == [state.name.lower() for state in State]
    assert [str(origin) for origin in Origin] == [origin.name.lower() for origin in Origin]
