"""Signals mean to the application what they meant before: the node takes SIGTERM and SIGINT, in its process only."""

import os
import signal

import pytest

from cronsensus.lifecycle import signals as signals_module
from cronsensus.lifecycle.signals import StopSignals
from cronsensus.timing.clock import ManualClock
from tests.user_code.programs import started

NODE = """
    @scheduler.job()
    def slow(run: Run):
        say("slow begins")
        while not os.path.exists("end"):
            time.sleep(0.01)
    slow.options(key="slow").enqueue()
    {before}
    say("run", scheduler.run("20s"))
    say("state", slow.options(key="slow").enqueue().look().state)
"""


OTHERS = [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGALRM, signal.SIGWINCH]


def test_signals_of_the_application_do_not_end_the_node_nor_its_drain(tmp_path):
    handlers = "\n    ".join(f'signal.signal({int(one)}, lambda number, _: say("heard", number))' for one in OTHERS)
    with started(tmp_path, NODE.format(before=handlers)) as program:
        program.read_until("slow begins")
        for number in OTHERS:
            program.process.send_signal(number)
            program.read_until(f"heard {int(number)}")
        program.process.send_signal(signal.SIGTERM)
        for number in OTHERS:
            program.process.send_signal(number)
            program.read_until(f"heard {int(number)}")
        (tmp_path / "end").touch()
        assert program.end() == 0
        assert program.lines[-2:] == ["run True", "state succeeded"]


def test_a_wait_with_a_time_limit_passes_over_other_signals_and_keeps_the_limit():
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGUSR1)
            assert signals.wait(0.05) is None
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGTERM)
            assert signals.wait(60) is signal.SIGTERM
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1] * 2


def test_signals_that_come_within_a_second_are_one(monkeypatch):
    monkeypatch.setattr(signals_module, "_clock", clock := ManualClock())
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert [signals.wait(0), signals.wait(0)] == [signal.SIGTERM, None]
        clock.advance(0.9)
        signal.raise_signal(signal.SIGINT)
        assert signals.wait(0) is None
        clock.advance(0.1)
        signal.raise_signal(signal.SIGINT)
        assert signals.wait(0) is signal.SIGINT


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_the_handlers_from_before_and_its_signals_do_not_reach_the_parent():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        child = os.fork()
        if child == 0:
            restored = signal.getsignal(signal.SIGTERM) is before and signal.set_wakeup_fd(-1) == -1
            told = signals.wait(10) is None  # a wait in the child ends; it does not take what the parent is sent
            blocked = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
            os._exit(int(restored) + 2 * int(told) + 4 * int(blocked))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        stuck = os.fork()
        if stuck == 0:
            signal.pause()
            os._exit(0)
        os.kill(stuck, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(stuck, 0)[1]) == -signal.SIGTERM
        assert signals.wait(0) is None
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.raise_signal(signal.SIGTERM)
        assert signals.wait(60) is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
