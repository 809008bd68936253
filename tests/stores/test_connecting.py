"""A store that does not answer at once: the person who waits is told after a moment, and only then."""

import threading

from cronsensus.stores.connecting import connecting
from tests.quiet import only_these_run

FOREVER = 60.0


def test_slow_answer_is_said_once():
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    with connecting("postgresql://ada:secret@db.example.com:5432/app", say, after=0.0):
        assert told.wait(FOREVER)
    assert said == ["connecting to postgresql://ada:***@db.example.com:5432/app: no answer yet"]


def test_quick_answer_is_not_worth_a_word():
    said: list[str] = []
    before = set(threading.enumerate())
    with connecting("sqlite:///jobs.db", said.append, after=FOREVER):
        pass
    only_these_run(before)
    assert said == []
