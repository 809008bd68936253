"""How fast runs end on a node, and how many it therefore reserves."""

from cronsensus.node.pace import LEAST_ENDS, LONGEST, MOST_RESERVED_CLAIMS, RESERVED_FOR, SHORTEST, Pace


def test_pace_is_unknown_until_enough_runs_have_ended_while_all_slots_were_taken():
    pace = Pace().measured_after(0, 100.0, full=True)
    assert (pace.rate, pace.reserve_limit) == (0.0, 0)
    assert pace.measured_after(LEAST_ENDS - 1, 101.0, full=True) == pace
    assert pace.measured_after(1000, 100.0 + SHORTEST / 2, full=True) == pace
    assert Pace(0.0, 0.0, 0).measured_after(LEAST_ENDS, SHORTEST, full=True).rate == LEAST_ENDS / SHORTEST
    assert pace.measured_after(LEAST_ENDS, 100.1, full=True).rate == LEAST_ENDS / (100.1 - 100.0)


def test_pace_does_not_count_while_slots_were_free_or_nothing_ended_for_long():
    pace = Pace(50.0, 100.0, 7)
    assert pace.measured_after(900, 101.0, full=False) == Pace(50.0, 101.0, 900)
    assert pace.measured_after(907, 100.0 + LONGEST, full=True).rate == (50.0 + 900 / LONGEST) / 2
    assert pace.measured_after(900, 100.1 + LONGEST, full=True) == Pace(50.0, 100.1 + LONGEST, 900)


def test_pace_follows_what_comes_in():
    pace = Pace(100.0, 100.0, 0).measured_after(300, 101.0, full=True)
    assert pace == Pace(200.0, 101.0, 300)
    assert pace.reserve_limit == 200 * RESERVED_FOR


def test_reserve_is_bounded():
    assert Pace(1e6).reserve_limit == MOST_RESERVED_CLAIMS
    assert Pace(9.0).reserve_limit == 0
