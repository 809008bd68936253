"""kill -9 at random: what was cut is run again, nothing is recorded twice, nothing is lost."""

from collections import Counter

KILLS = 10


def test_killed_at_random_nothing_is_lost_and_nothing_is_recorded_twice(make_cluster, dice):
    cluster = make_cluster()
    names = ["a", "b", "c"]
    cluster.start(*names)
    cluster.await_all()
    for number in range(KILLS):
        match number % 3:
            case 0:  # at any time, also while it starts
                victim = dice.choice(names)
            case 1:  # in the middle of what has to be taken over
                victim, _ = cluster.freeze_in("tick")
            case _:  # in the middle of whatever it is
                victim, _ = cluster.freeze_in()
        cluster.kill(victim)
        cluster.enqueue(10)
        cluster.start(victim)
        for _passed in cluster.for_seconds(0.2 + dice.random()):
            cluster.look()
    until = cluster.settle()
    exits = cluster.drain()
    verdict = cluster.judge(until)

    assert exits == [0, 0, 0]
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
