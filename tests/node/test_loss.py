"""By which signs a node notices that its store lost a moment."""

from cronsensus.model.ending import Ending
from cronsensus.model.ledger import LOST_MOMENT
from cronsensus.stores.memory.snapshots import take
from cronsensus.triggers import every
from tests.node.test_reconciling import Forgetful, job


def losses(bench: Forgetful) -> list[str]:
    bench.go_on()
    return [entry.why for entry in bench.store.trail(target="") if entry.action == LOST_MOMENT]


def test_what_this_node_fired_ahead_and_the_store_forgot_is_noticed_at_the_next_look():
    bench = Forgetful(job(trigger=every("30s"), overlap="allow"))
    bench.go_on(40)
    begun = len(bench.begun)
    before = take(bench.store)
    while len(bench.begun) == begun:
        bench.go_on()
    bench.forget(before)
    (why,) = losses(bench)
    assert "'work' is decided up to" in why


def test_a_run_that_is_given_again_although_its_end_was_accepted_is_noticed():
    bench = Forgetful()
    (number,) = bench.enqueue()
    before = take(bench.store)
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
