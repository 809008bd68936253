"""By which signs a node notices that its store lost a moment."""

import threading
from collections import OrderedDict
from datetime import datetime

from cronsensus.errors import SchemaMismatch
from cronsensus.membership.loss import StoreWatch
from cronsensus.model.ending import Ending
from cronsensus.model.ledger import LOST_MOMENT
from cronsensus.model.plan import Plan
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.snapshots import take_snapshot
from cronsensus.triggers import every
from tests.node.test_reconciling import Forgetful, job


def losses(bench: Forgetful) -> list[str]:
    bench.go_on()
    return [entry.why for entry in bench.store.trail(target="") if entry.action == LOST_MOMENT]


def test_a_plan_fired_ahead_and_forgotten_by_the_store_is_noticed_at_the_next_look():
    bench = Forgetful(job(trigger=every("30s"), overlap="allow"))
    bench.go_on(40)
    begun = len(bench.begun)
    before = take_snapshot(bench.store)
    while len(bench.begun) == begun:
        bench.go_on()
    bench.forget(before)
    (why,) = losses(bench)
    assert "'work' is decided up to" in why


def test_a_run_that_is_given_again_although_its_end_was_accepted_is_noticed():
    bench = Forgetful()
    (number,) = bench.enqueue()
    before = take_snapshot(bench.store)
    bench.step()
    bench.finish()
    bench.forget(before)
    (why,) = losses(bench)
    assert f"it gave occurrence {number} of 'work' again" in why


def test_a_run_that_comes_again_to_be_retried_is_no_loss():
    bench = Forgetful(job(retries=1, retry_delay="0s"))
    bench.enqueue()
    bench.step()
    bench.finish(ending=Ending(kind="raised"))
    assert losses(bench) == []
    assert len(bench.begun) == 2


class Overtaken(OrderedDict[tuple[int, str], tuple[datetime, datetime]]):
    """The watermarks of a watch; while one is set, a renewal on another thread finds the store emptied."""

    def __init__(self, watch: StoreWatch) -> None:
        super().__init__()
        self.renewals = [threading.Thread(target=lambda: watch.note_trouble(SchemaMismatch("no tables")))]

    def __setitem__(self, key: tuple[int, str], value: tuple[datetime, datetime]) -> None:
        super().__setitem__(key, value)
        self.renewals[0].start()
        self.renewals[0].join(0.2)  # it clears them now, or waits until this is done


def test_a_loss_found_by_a_renewal_while_a_round_notes_watermarks_leaves_the_round_whole():
    watch = StoreWatch("n", stop=False)
    store = MemoryStore()
    store.migrate()
    watch.note_opened(store, "s", store.now())
    marks = watch._watermarks = Overtaken(watch)
    now = store.now()
    plan = Plan(
        job_id=1,
        job="a",
        revision=1,
        watermark_seen=now,
        active_seen=0,
        occurrences=(),
        verdicts=(),
        cancel_previous=False,
        watermark=now,
        next_due=None,
    )
    watch.note_plans([plan], now)
    marks.renewals[0].join()
    assert not marks
