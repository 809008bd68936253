"""kill -9 at random: what was cut is run again, nothing is recorded twice, nothing is lost."""

from collections import Counter

SECONDS = 20


def test_killed_at_random_nothing_is_lost_and_nothing_is_recorded_twice(make_cluster, dice):
    cluster = make_cluster()
    names = ["a", "b", "c"]
    cluster.start(*names)
    cluster.await_all()
    kills, strike_at, victim = 0, 1.0, None
    for passed in cluster.for_seconds(SECONDS):
        starts = [line for line in cluster.look() if line.event == "start"]
        if passed < strike_at:
            continue
        if victim is None and dice.random() < 0.5:
            victim = dice.choice(names)  # at any time
        elif victim is None and starts:
            victim = starts[-1].node  # in the middle of a run
        if victim is None:
            continue
        if passed < strike_at + dice.random() * 0.3:
            continue
        cluster.kill(victim)
        kills += 1
        cluster.enqueue(10)
        cluster.start(victim)
        victim, strike_at = None, passed + 0.6 + dice.random()
    until = cluster.settle()
    exits = cluster.drain()
    verdict = cluster.judge(until)

    assert exits == [0, 0, 0]
    assert kills >= 5, "the fault did not bite: too few kills"
    assert verdict.count.cut, "the fault did not bite: no kill cut a run"
    assert verdict.report.takeovers >= 1
    verdict.is_as_promised()
    # What may be started again succeeded; what may not was closed as failed, and never started a second time.
    failed = {job.job for job in verdict.report.jobs if job.failed}
    assert failed <= {"at_most_once"}
    once = Counter(line.occurrence for line in cluster.lines if line.event == "start" and line.job == "at_most_once")
    assert max(once.values()) == 1
    orders = next(job for job in verdict.report.jobs if job.job == "order")
    assert orders.others == cluster.orders > 0
    finished = {line.key for line in cluster.lines if line.event == "end" and line.job == "order"}
    assert len(finished) == cluster.orders
