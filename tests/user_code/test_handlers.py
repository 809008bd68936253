"""Logging handlers of the application that raise, block, or log: the node goes on, or ends and says so."""

import logging
import threading

import pytest

from cronsensus import Scheduler, current_run
from cronsensus.errors import NodeFailed
from cronsensus.node import node as module
from tests.user_code.programs import started


class Handler(logging.Handler):
    def __init__(self, emit):
        super().__init__()
        self.emit = emit  # type: ignore[method-assign]

    def handle(self, record):
        self.emit(record)
        return True


@pytest.fixture
def handle(monkeypatch):
    """Have all that the library logs go to a function only."""
    logger = logging.getLogger("cronsensus")
    before = logger.level, logger.propagate
    added = []

    def add(emit):
        added.append(Handler(emit))
        logger.addHandler(added[0])
        logger.setLevel(logging.DEBUG)
        logger.propagate = False

    yield add
    logger.setLevel(before[0])
    logger.propagate = before[1]
    for one in added:
        logger.removeHandler(one)


@pytest.mark.parametrize("error", [OSError("no route to the log's host"), SystemExit(1), GeneratorExit()])
def test_a_handler_that_raises_at_each_record_costs_no_run_and_no_node(handle, error):
    def emit(record):
        if threading.current_thread() is not threading.main_thread():
            raise error

    handle(emit)
    scheduler = Scheduler("memory://raising-handlers", lease="1s")

    @scheduler.job(retries=1, retry_delay="1ms")
    def fails():
        raise ValueError("no such shop")

    @scheduler.job()
    async def works() -> int:
        return 5

    with scheduler:
        for _ in range(3):
            assert fails.enqueue().wait("60s").attempt == 2
            assert works.enqueue().result("60s") == 5
        assert scheduler.started


def test_a_handler_that_blocks_holds_up_no_renewal_and_no_other_run(handle, tmp_path):
    blocked, go = threading.Event(), threading.Event()

    def emit(record):
        if record.threadName in {"cronsensus-heartbeat", "cronsensus-timer"}:
            blocked.set()
            assert go.wait(60)

    handle(emit)
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", lease="1s")
    over = threading.Event()

    @scheduler.job(timeout="10ms")
    def late():
        assert over.wait(60)

    @scheduler.job()
    def works():
        return 5

    with scheduler:
        late.enqueue()  # its timeout is logged by the thread that watches all deadlines
        assert blocked.wait(60)
        renewer = scheduler._part.node._renewer  # type: ignore[union-attr]
        lease = renewer._kept
        looked_at = renewer._looked_at
        for _ in range(40):
            assert works.enqueue().result("60s") == 5
            if renewer._looked_at > looked_at + 0.6:
                break
            threading.Event().wait(0.05)
        else:
            raise AssertionError("the lease was not renewed")
        assert renewer._kept is lease
        assert lease is not None
        assert lease.is_trusted
        go.set()
        over.set()


def test_a_node_whose_rounds_stand_still_stops_renewing_says_so_and_ends(handle, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "STUCK_CHECK_EVERY", 0.02)
    monkeypatch.setattr(module, "STUCK_CHECKS", 10**9)  # on a busy machine, a round may take long until then
    inside, go = threading.Event(), threading.Event()

    def emit(record):
        if record.threadName == "cronsensus-rounds" and "succeeded" in record.getMessage():
            module.STUCK_CHECKS = 10
            inside.set()
            assert go.wait(60)

    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", node="one")
    lost = threading.Event()

    @scheduler.job()
    def quick(): ...

    @scheduler.job()
    def slow():
        run = current_run()
        assert run is not None
        assert run.lease_lost.wait(60)
        lost.set()

    done: list[NodeFailed | bool] = []

    def take_part():
        try:
            done.append(scheduler.run())
        except NodeFailed as error:
            done.append(error)

    thread = threading.Thread(target=take_part)
    thread.start()
    handle(emit)
    waiting = slow.enqueue()
    quick.enqueue()
    try:
        assert inside.wait(60)
        assert lost.wait(60)
        thread.join(60)
        assert not thread.is_alive()
        assert isinstance(done[0], NodeFailed)
        assert "emit" in str(done[0])  # where it stands still
        assert "node one cannot go on and ends" in capsys.readouterr().err
        assert not scheduler.started
        # Its session is closed: the run is for others, at once.
        assert [one.state for one in scheduler.store.sessions(ended=True)] == ["closed"]
        assert waiting.look().state == "pending"
    finally:
        go.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_node_whose_rounds_are_ended_records_what_ended_and_ends(tmp_path, monkeypatch, capsys):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", node="one")

    @scheduler.job()
    def work() -> int:
        monkeypatch.setattr(module.Node, "_do_round", end)
        return 5

    def end(self):
        if not self.round.active_runs._ended:
            return 0.0  # the run has not come to its end yet
        raise SystemExit

    work.options(key="a").enqueue()
    with pytest.raises(NodeFailed, match="ended by SystemExit"):
        scheduler.run()
    assert work.options(key="a").enqueue().look().result == "5"
    assert "cannot go on" in capsys.readouterr().err


def test_a_worker_whose_node_failed_ends_with_an_error(tmp_path):
    text = """
        from cronsensus.node import node
        def end(self): raise SystemExit
        node.Node._do_round = end
        say("run", scheduler.run())
    """
    with started(tmp_path, text) as program:
        assert program.end() == 1
        assert "NodeFailed" in program.errors()
