import pytest

from cronsensus import Retry, Run, Scheduler, current_run


class Again(Retry):
    def __init__(self, why):
        self.why = why


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_retries_that_forget_super_init_end_and_leave_the_slots_free(kind):
    scheduler = Scheduler("memory://", concurrency=2)

    @scheduler.job(name="thread", retries=1, retry_delay=0)
    def again():
        raise Again("x")

    @scheduler.job(name="async", retries=1, retry_delay=0)
    async def aagain():
        raise Again("x")

    @scheduler.job()
    def healthy():
        return 7

    with scheduler:
        handles = [scheduler.enqueue(kind) for _ in range(5)]
        ends = [handle.wait("60s") for handle in handles]
        assert {(end.state, end.attempt) for end in ends} == {("failed", 2)}
        assert healthy.enqueue().result("60s") == 7
        assert scheduler.stop("5s")


@pytest.mark.parametrize("name", ["lease_lost", "cancelled", "cancel_reason"])
def test_a_job_cannot_replace_what_the_node_asks_its_run(name):
    scheduler = Scheduler("memory://")

    @scheduler.job()
    def breaks(run: Run):
        setattr(current_run(), name, None)

    with scheduler:
        end = breaks.enqueue().wait("60s")
    assert (end.state, end.error.type) == ("failed", "AttributeError")
