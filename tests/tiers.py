"""Which tests are the long tier: what ``make test`` leaves to ``make long``.

By path and parameter, in one table, so that what each commit pays and what a nightly run pays is seen in one place. A
new test is in the tier of every commit unless its path stands here; a row says why.

What stays in every commit: the conformance suite on all five stores, the stores that are broken on purpose, what is
taken out of nodes and stores (ablations), fifty nights and all past seeds of the simulation, a real kill on each
server, the README, the examples, and all tests of units.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from pathlib import Path

SHORT_TIER = "not long"
"""What ``make test`` asks for; ``make long`` asks for the mark itself, and for examples that were never drawn."""

DURATIONS = Path(__file__).parent / "durations.txt"
"""What each file in the tier of every commit takes, as ``scripts/durations`` has measured it."""


@dataclass(frozen=True, order=True)
class Took:
    """What a file of tests took, in seconds, and in seconds of a processor."""

    seconds: float = 0.0
    processor: float = 0.0

    def __add__(self, more: Took) -> Took:
        return Took(self.seconds + more.seconds, self.processor + more.processor)


LONG: tuple[tuple[str, str], ...] = (
    # Each waits for real time to pass on real servers.
    ("tests/faults/*", "kills, freezes, fills and cuts off servers, each for some seconds"),
    ("tests/ha/*", "kills, stops and cuts off the primary of a cluster each 20 to 30 s, for minutes"),
    ("tests/far/*", "servers 40 ms away"),
    ("*40ms*", "the same"),
    ("tests/chaos/test_freeze.py*", "sleeps past real leases"),
    ("tests/chaos/test_transactions.py*", "kills around the commit, on each server"),
    ("tests/chaos/test_batches.py*", "a batch of half a minute on each server, whose nodes are killed"),
    ("tests/chaos/test_dependencies.py*", "50 nights of diamonds on each server, whose nodes are killed"),
    ("tests/stores/test_presence.py*", "waits for signs of life to go, on each server"),
    ("tests/stores/redis/test_presence.py*", "the same"),
    ("tests/stores/sql/test_mysql_presence.py*", "the same"),
    ("tests/stores/sql/test_standing_still.py*", "transactions that stand still until a server ends them"),
    ("tests/stores/sql/test_sqlite_epoch.py*", "processes that die, fork and wait around the epoch of a file"),
    ("tests/user_code/test_forks.py*", "starts programs that fork"),
    ("tests/user_code/test_gunicorn.py*", "starts gunicorn"),
    ("tests/user_code/test_web_servers.py*", "starts each web server that has workers, each in some ways"),
    (
        "tests/user_code/test_store_away.py*",
        "gunicorn and uvicorn, whose store goes and comes; one process in test_starting.py",
    ),
    ("tests/integrations/test_celery_beat.py::*three_beats*", "three beats, of which one is killed"),
    ("tests/integrations/test_celery_beat.py::*same_id?after*", "the other half of a kill that each commit has"),
    ("tests/integrations/test_celery_worker.py::*each_kind_of_end*", "a worker with the guard and one without"),
    ("tests/test_example_keep_celery.py*", "three beats and two workers for a quarter of a minute"),
    (
        "tests/test_tutorial.py*",
        "a job of twenty seconds each half minute, as a reader types it; the README's kill in make check",
    ),
    ("tests/test_recipes.py::*longer_than_the_visibility_timeout*", "a task of ten seconds"),
    ("tests/integrations/test_celery_struck.py*", "kills real workers of Celery, on Redis"),
    (
        "tests/integrations/test_rabbitmq_struck.py*",
        "kills real consumers, restarts a broker of their own, and holds a message for a minute",
    ),
    *(
        (
            f"tests/chaos/test_enqueue_in.py::*[[]{store}]",
            "three nodes and five writers, some killed; on SQLite in every commit",
        )
        for store in ("postgres", "mysql")
    ),
    *(
        (f"tests/integrations/test_lost_answers.py::*[[]{store}]", "waits for leases; on Redis in every commit")
        for store in ("postgres", "mysql")
    ),
    ("tests/integrations/test_apscheduler.py::test_max_instances*", "ten seconds of several replicas"),
    *(
        (
            f"tests/integrations/test_apscheduler.py::*one_is_killed_in_a_run[[]{executor}]",
            "with threads in every commit",
        )
        for executor in ("process", "asyncio")
    ),
    (
        "tests/integrations/test_migrating_crontab.py::*over_a_year[[]Asia*",
        "each minute of a year; in a zone with clock changes in every commit",
    ),
    ("tests/integrations/test_django.py::*tasks_in_another_database*", "a project of Django's, several processes"),
    ("tests/integrations/test_django.py::*postgres*", "a project of Django's, a dozen processes one after the other"),
    ("tests/integrations/test_django.py::*mysql*", "a project of Django's, a dozen processes one after the other"),
    ("tests/integrations/test_django_storm.py*", "gunicorn and three nodes for 20 s, of which one is killed each 4 s"),
    ("tests/integrations/test_rabbitmq.py::*around_the_commit*", "three processes, of which two are killed"),
    ("tests/test_example_rabbitmq_consumers.py*", "three consumers for a quarter of a minute"),
    ("tests/integrations/test_rabbitmq_broker.py*", "a broker of its own, in alarm and out of patience"),
    ("tests/integrations/test_celery_databases.py*", "three beats on rows, some killed; 100,000 rows"),
    (
        "tests/integrations/test_apscheduler_struck.py::*replica*",
        "up to four processes each, that are killed and frozen; test_apscheduler.py kills one in every commit",
    ),
    ("tests/integrations/test_apscheduler_struck.py::*live_on*", "the same"),
    ("tests/integrations/test_apscheduler_struck.py::*is_away*", "several seconds of a store that is away"),
    ("tests/metrics/test_served.py::test_workers_of_gunicorn*", "starts gunicorn"),
    (
        "tests/metrics/test_in_prometheus.py::test_missed*",
        "two nodes that die one after the other, in a real Prometheus",
    ),
    ("tests/metrics/test_rules.py*", "promtool plays twenty minutes of each rule"),
    ("tests/test_example_keep_in_web_servers.py*", "starts gunicorn and uvicorn, and counts what eight workers run"),
    (
        "tests/test_recipes.py::test_four_gunicorn_workers*",
        "the same; in every commit two processes of examples/keep_apscheduler.py",
    ),
    ("tests/test_recipes.py::*two_requests_order[[]flask]", "the same; with FastAPI in every commit"),
    (
        "tests/stores/sql/test_*_faults.py*",
        "servers that are killed, full, silent; nodes are killed on each in every commit",
    ),
    ("tests/stores/redis/test_faults.py*", "the same"),
    (
        "tests/dashboard/test_in_chromium*.py*",
        "a real browser before three real nodes; pages are asked by HTTP in every commit",
    ),
    (
        "tests/simulation/test_batch_nights.py::*to_its_end*[[][1-9]*",
        "fifty nights of batches more; ten in every commit",
    ),
    (
        "tests/simulation/test_diamond_nights.py::*both_its_sides*[[][1-9]*",
        "twenty nights more of each kind",
    ),
    ("tests/simulation/test_starvation.py::*all_the_same[[][1-9]*", "two full nights more; one in every commit"),
    ("tests/simulation/test_batch_nights.py::*rough_enough*", "counts what the same nights met"),
    ("tests/simulation/test_diamond_nights.py::*rough_enough*", "the same"),
    (
        "tests/simulation/test_quiet_nights.py::*that_it_had[[][1-9]*",
        "ninety quiet nights more; ten in every commit",
    ),
    # Many processes at one thing.
    ("tests/stores/sql/test_migrations.py::test_eight_processes*", "eight processes on an empty file"),
    ("tests/stores/sql/test_postgres_races.py::test_processes_that_start*", "the same, on a server"),
    ("tests/lock/test_processes.py*", "locks in many processes"),
    ("tests/lock/test_counting.py*", "16 processes count in a file under each lock"),
    ("tests/lock/test_set.py*", "the same, with a set"),
    ("tests/once/test_processes.py*", "guarded functions in many processes"),
    ("tests/once/test_coordinator.py*", "workers of StartupCoordinator that are recycled and killed"),
    ("tests/once/test_left.py*", "a signal at each line of a call"),
    # The same promise on one more kind of store, held by the conformance suite and by the other kinds.
    *(
        (f"tests/audit/*[[]{store}-*", "the table of faults runs on memory and SQLite in every commit")
        for store in ("postgres", "mysql", "redis")
    ),
    (
        "tests/alerts/test_alerts.py::*[[]sqlite*",
        "on memory in every commit; the suite of stores has each read of theirs",
    ),
    ("tests/batching/test_batches.py::*[[]sqlite*", "the same: conformance batching"),
    ("tests/alerts/test_alerts.py::*is_killed*[[]smtp]", "kills real nodes; by HTTP in every commit"),
    (
        "tests/stores/test_mysql.py::*too_long_is_not_waited_for",
        "five seconds; on PostgreSQL and SQLite in every commit",
    ),
    (
        "tests/lock/test_lock.py::test_a_lock_is_renewed*[[]postgres-*",
        "three seconds; on SQLite and Redis in every commit",
    ),
    ("tests/after/test_dependencies.py::*[[]sqlite*", "the same; nodes that are killed share a file in every commit"),
    ("tests/jobs/test_runs.py::*[[]sqlite*", "the same: conformance reading"),
    *((f"tests/audit/*[[]{store}]", "the same") for store in ("postgres", "mysql", "redis")),
    *(
        (
            f"tests/lock/test_ownership.py::*[[]{store}*",
            "who owns a lease is no matter of the store; SQLite in every commit",
        )
        for store in ("memory", "postgres", "redis")
    ),
    *(
        (f"tests/lock/test_cancelled.py::*[[]{store}*", "the same; on SQLite and Redis in every commit")
        for store in ("memory", "postgres")
    ),
    ("tests/lock/test_lock.py::*[[]memory*", "on the stores of servers and on SQLite in every commit"),
    ("tests/node/test_node.py::*[[]memory*", "real nodes; on SQLite in every commit"),
    ("tests/node/test_node_faults.py::*[[]memory*", "the same"),
    ("tests/lock/*[[]mysql*", "locks and guards run on SQLite, PostgreSQL and Redis in every commit"),
    ("tests/lock/*redlock*", "the same"),
    ("tests/once/*[[]mysql*", "the same"),
    ("tests/node/test_transactions.py::*[[]mysql*", "the same"),
    ("tests/lock/test_several.py::*killed[[]postgres*", "the same"),
    ("tests/stores/test_state_machine.py::test_mysql*", "random sequences; SQLite in every commit"),
    ("tests/stores/test_state_machine.py::test_postgres*", "the same"),
    *(
        (f"tests/stores/test_demo.py::*[[]{store}]", "ten seconds each; the demo runs on SQLite in every commit")
        for store in ("postgres", "mysql", "redis")
    ),
    ("tests/stores/sql/test_postgres_pooler.py*", "the suite again, behind PgBouncer"),
    (
        "tests/stores/test_postgres.py::TestPostgresStoreWithoutOneTrip*",
        "six hazards again, 20 s; every commit takes the general way where something is unusual",
    ),
    ("tests/stores/redis/test_cluster.py*", "the suite again, on a Redis Cluster"),
    ("tests/stores/redis/test_replicas.py*", "replicas that lag and are promoted"),
    ("tests/stores/redis/test_sentinel.py*", "failovers by Sentinel"),
    ("tests/stores/test_state_machine.py::test_the_machine_finds*", "that the state machine finds what is broken"),
    ("tests/stores/redis/test_oracle.py*", "the scripts by hand against the oracle, as the state machine does"),
    # Whole matrices, of which every commit asks a part elsewhere.
    ("tests/test_guarantees.py::*TellsNobody*", "many nights until one fails; the ablations ask the like"),
    ("tests/test_example_snapshots.py::*killed_at_random*", "kills for half a minute, as chaos/test_kill.py"),
    ("tests/stores/poison/*", "each column damaged in turn"),
    ("tests/stores/sql/test_*plans.py*", "query plans over tables of 10,000 rows and more"),
    ("tests/stores/sql/test_growth.py*", "statements and rows over a growing history"),
    ("tests/stores/redis/test_growth.py*", "the same"),
    ("tests/simulation/test_crowds.py*", "crowds of nodes"),
    ("tests/simulation/test_forgetting.py*", "stores that forget"),
    ("tests/simulation/test_reserving.py*", "work that is claimed ahead"),
    ("tests/stores/sql/test_many_sessions.py*", "what a look costs beside thousands of sessions"),
    ("tests/node/test_late_nodes.py::*[[]30]", "thirty real nodes"),
    ("tests/node/test_late_nodes.py::test_thirty_nodes*", "the same"),
    ("tests/simulation/test_simulation.py::*rough_enough*", "counts what 300 nights met"),
    *(
        (f"tests/simulation/test_simulation.py::test_no_promise_is_broken_in_any_night[[]{seed}]", "nights 50 to 499")
        for seed in range(50, 500, 25)
    ),
    ("tests/triggers/test_cron_dst.py::*2010_to_2040*", "each minute around 31 years of clock changes"),
    ("tests/triggers/test_cron_dst.py::*over_a_whole_year*", "each minute of a year"),
    ("tests/cli/test_probes.py::*another_host*", "waits for leases and signs of life, on each server"),
    ("tests/cli/test_probes.py::*[[]busy-*", "every commit kills and stops an idle node on SQLite"),
    *((f"tests/cli/test_probes.py::*-{store}]", "the same") for store in ("postgres", "mysql", "redis")),
    ("tests/lifecycle/test_systemd.py::*rounds_hang*", "a real node that hangs; every commit does it by hand"),
    ("tests/cli/test_demo.py::test_however_it_is_stopped*", "the demo, stopped in three ways"),
    ("tests/cli/test_demo.py::test_in_a_pipe*", "the demo again, in a pipe"),
    # Tests of what tests the library, and of what makes its environment.
    ("tests/servers/*", "the servers that tests start"),
    ("tests/test_servers_script.py*", "the script that installs them"),
    ("tests/test_mutants.py*", "the script that changes code"),
    ("tests/test_site_built.py*", "builds the site, in an environment that needs the network once, and a browser"),
    (
        "tests/test_types_known.py*",
        "basedpyright over the whole package, in an environment that needs the network once",
    ),
    ("tests/test_setup.py*", "the script that makes the environment"),
    ("tests/test_snippets.py*", "the script that runs snippets; make check runs it on the pages"),
    ("tests/test_scheduler_typing.py*", "a type checker over programs of users"),
)
"""Patterns of node ids, and why each costs more than it tells at every commit."""


# As one expression: it is asked about each test by each process, a hundred patterns each time.
_LONG = re.compile("|".join(translate(pattern) for pattern, _ in LONG))


def is_long(nodeid: str) -> bool:
    """Tell whether a test is in the long tier."""
    return _LONG.match(nodeid) is not None


def is_long_file(path: str) -> bool:
    """Tell whether all tests of a file are, so that the short tier need not import it; ``path`` is from the root."""
    return any(
        fnmatchcase(path, pattern) for pattern, _ in LONG if pattern.endswith((".py*", "/*")) and "[" not in pattern
    )


def read_durations() -> dict[str, Took]:
    """Read ``durations.txt``: what each file took; the path is from the root."""
    lines = DURATIONS.read_text(encoding="utf-8").splitlines() if DURATIONS.exists() else []
    measured = (line.split() for line in lines if not line.startswith("#"))
    return {file: Took(float(seconds), float(processor)) for seconds, processor, file in measured}
