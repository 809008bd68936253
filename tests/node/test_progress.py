"""Progress and log lines on their way to the store, and how they wait for a run's transaction."""

import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cronsensus import Run, StoreUnavailable
from cronsensus.model.occurrence import LogLine, Note
from cronsensus.node.progress import ProgressBuffer
from cronsensus.timing.clock import ManualClock

AT = datetime(2026, 1, 1, tzinfo=UTC)
ONE, OTHER = (cast("Run", SimpleNamespace(id=number, token=10 * number, session="s")) for number in (1, 2))


def line(text: str) -> LogLine:
    return LogLine(AT, "info", text)


class Taking:
    """A store that takes notes; it may fail first, and may be slow."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, Any, list[str]]] = []
        self.fails = False
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def note(self, notes: list[Note]) -> list[bool]:
        self.reached.set()
        assert self.go_on.wait(60)
        if self.fails:
            raise StoreUnavailable
        self.taken += [(note.id, note.progress, [each.text for each in note.lines]) for note in notes]
        return [True] * len(notes)


@pytest.fixture
def wakes() -> list[None]:
    return []


@pytest.fixture
def notes(wakes: list[None]) -> ProgressBuffer:
    return ProgressBuffer(ManualClock(AT), lambda: wakes.append(None))


def flush(notes: ProgressBuffer, taking: Taking) -> None:
    with notes.open_writing() as said:
        taking.note(list(said))


def test_what_a_run_says_in_its_transaction_is_left_for_the_transaction(notes, wakes):
    taking = Taking()
    notes.hold_notes(ONE.id, ONE.token)
    notes.note_line(ONE, line("inside"))
    notes.note_progress(ONE, 1, 2)
    assert (notes.wanted_in, wakes) == (None, [])
    notes.note_line(OTHER, line("of another"))
    flush(notes, taking)
    assert taking.taken == [(OTHER.id, None, ["of another"])]
    note = notes.held_notes(ONE.id, ONE.token)
    assert note == Note(ONE.id, ONE.token, (1, 2), (line("inside"),), "s")
    notes.note_line(ONE, line("after the last look"))
    notes.release_notes(ONE.id, ONE.token, note)
    flush(notes, taking)
    assert taking.taken[1:] == [(ONE.id, None, ["after the last look"])]


def test_progress_not_written_in_a_transaction_is_flushed_afterwards(notes, wakes):
    taking = Taking()
    notes.hold_notes(ONE.id, ONE.token)
    notes.note_line(ONE, line("undone"))
    assert notes.held_notes(ONE.id, ONE.token) is not None
    notes.release_notes(ONE.id, ONE.token)
    assert len(wakes) == 1
    assert notes.wanted_in == 0.0
    flush(notes, taking)
    assert taking.taken == [(ONE.id, None, ["undone"])]


def test_a_run_that_says_nothing_has_nothing_to_be_written(notes):
    notes.hold_notes(ONE.id, ONE.token)
    assert notes.held_notes(ONE.id, ONE.token) is None
    notes.release_notes(ONE.id, ONE.token)
    assert notes.wanted_in is None


def test_a_transaction_that_keeps_the_store_from_writing_takes_over_what_is_on_its_way(notes):
    taking = Taking()
    taking.go_on.clear()
    notes.note_line(ONE, line("on its way"))
    flushing = threading.Thread(target=flush, args=(notes, taking), daemon=True)
    flushing.start()
    assert taking.reached.wait(60)
    notes.note_line(ONE, line("later"))
    notes.hold_notes(OTHER.id, OTHER.token)  # nothing of it is on its way: there is nothing to wait for
    notes.hold_notes(ONE.id, ONE.token, most=0.01)
    assert notes.held_notes(ONE.id, ONE.token) == Note(
        ONE.id, ONE.token, None, (line("on its way"), line("later")), "s"
    )
    taking.go_on.set()
    flushing.join(60)


def test_what_is_on_its_way_to_the_store_is_waited_for_before_a_transaction_begins(notes):
    # It would arrive when the transaction is over, and be refused: the run would have ended without it.
    taking = Taking()
    taking.go_on.clear()
    notes.note_line(ONE, line("before"))
    flushing = threading.Thread(target=flush, args=(notes, taking), daemon=True)
    flushing.start()
    assert taking.reached.wait(60)
    held = threading.Event()

    def hold() -> None:
        notes.hold_notes(ONE.id, ONE.token)
        held.set()

    holding = threading.Thread(target=hold, daemon=True)
    holding.start()
    assert not held.wait(0.1)
    taking.go_on.set()
    assert held.wait(60)
    assert taking.taken == [(ONE.id, None, ["before"])]
    flushing.join(20)
    holding.join(20)


def test_what_the_store_could_not_take_stays_in_its_order(notes):
    taking = Taking()
    taking.fails = True
    notes.note_line(ONE, line("1"))
    notes.note_progress(ONE, 1, 9)
    with pytest.raises(StoreUnavailable):
        flush(notes, taking)
    notes.note_line(ONE, line("2"))
    notes.note_progress(ONE, 2, 9)
    taking.fails = False
    flush(notes, taking)
    assert taking.taken == [(ONE.id, (2, 9), ["1", "2"])]
