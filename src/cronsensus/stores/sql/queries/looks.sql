-- What a node reads in a round: due jobs, pending work, sessions.
-- Aliases: o: occurrences, j: jobs, s: sessions, p: pauses. Words in braces and `given` are explained in queries.py.

-- part: clock
WITH RECURSIVE

-- part: clock [mysql]
WITH

-- part: clock [postgres]
WITH RECURSIVE clock (now) AS (SELECT :now),

-- part: now
:now

-- part: now [postgres]
(SELECT clock.now FROM clock)

-- part: is_pending
o.namespace = :space AND o.state = 'pending' {listed}

-- part: levels
levels (level) AS (
    SELECT (SELECT o.level FROM cronsensus_occurrences AS o WHERE {part: is_pending} ORDER BY o.level DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT o.level FROM cronsensus_occurrences AS o WHERE {part: is_pending} AND o.level < levels.level
        ORDER BY o.level DESC LIMIT 1)
    FROM levels WHERE levels.level IS NOT NULL
)

-- part: levels [mysql]
levels AS (
    SELECT o.level, min(o.due_at) AS earliest FROM cronsensus_occurrences AS o {index: pending}
    WHERE {part: is_pending}
    GROUP BY o.namespace, o.state, o.level
)

-- part: level_is_due
(SELECT 1 FROM cronsensus_occurrences AS o
    WHERE {part: is_pending} AND o.level = levels.level AND o.due_at <= {part: now} LIMIT 1) IS NOT NULL

-- part: level_is_due [mysql]
levels.earliest <= :now

-- part: next_pending
SELECT min((SELECT o.due_at FROM cronsensus_occurrences AS o
    WHERE {part: is_pending} AND o.due_at > {part: now} AND o.level = levels.level ORDER BY o.due_at LIMIT 1))
FROM levels

-- part: next_pending [mysql]
SELECT min(later.earliest) FROM (
    SELECT min(o.due_at) AS earliest FROM cronsensus_occurrences AS o {index: pending}
    WHERE {part: is_pending} AND o.due_at > :now
    GROUP BY o.namespace, o.state, o.level
) AS later

-- part: session
s.number, s.id, s.node, s.host, s.pid, s.pid_started, s."release", s.version, s.concurrency, s.functions, s.started_at,
s.renewed_at, s.lease_until, s.epoch, s.draining, s.ended_at, s.ended_as, s.ended_why

-- part: held_locks
(SELECT count(*) FROM cronsensus_locks AS l WHERE l.namespace = s.namespace AND l.session = s.id)

-- part: live_nodes
cronsensus_sessions AS s WHERE s.namespace = :space AND s.ended_at IS NULL AND s.concurrency > 0

-- part: live_nodes [mysql]
cronsensus_sessions AS s FORCE INDEX (cronsensus_sessions_turning)
WHERE s.namespace = :space AND s.ended_at IS NULL AND s.concurrency > 0

-- part: live_nodes [postgres]
cronsensus_sessions AS s WHERE (CASE WHEN s.ended_at IS NULL AND s.concurrency > 0 THEN s.namespace END) = :space

-- part: holder
cronsensus_sessions AS s ON s.namespace = :space AND s.id = held.session

-- part: holder [postgres]
LATERAL (SELECT one.* FROM cronsensus_sessions AS one
    WHERE one.namespace = :space AND one.id = held.session LIMIT 1) AS s ON TRUE

-- part: of_partition
j.id % :of = :place

-- part: of_partition [mysql]
floor(mod(j.id * 0.6180339887498949, 1) * :of) = :place

-- part: definition
j.revision, j.digest, j.defined_at

-- part: due_jobs
SELECT j.id, j.name, {part: definition}, j.watermark, j.wake_at, j.pause_ended_at,
    (SELECT count(*) FROM cronsensus_occurrences AS o {index: serial}
        WHERE o.job_id = j.id AND o.serial = 1 AND o.finished_at IS NULL) AS active
FROM cronsensus_jobs AS j
WHERE j.namespace = :space AND j.wake_at <= :until AND {part: of_partition}

-- name: look
-- types: now bigint, never bigint
-- Read which jobs are due, what is pending, whether anything is parked, which sessions are live nodes and which hold runs, and the clock. There is one row for each live node, one for each session that holds runs (which may be the same), and a single row without a session if there are none. Sessions that are not nodes and hold no run are not read. Race: others write meanwhile; whoever acts on the answer compares it again.
{part: clock} {part: levels}
SELECT seen.*, watched.*
FROM (
    SELECT {part: now} AS asked,
        (SELECT count(*) FROM (SELECT j.wake_at FROM cronsensus_jobs AS j
            WHERE j.namespace = :space AND j.wake_at <= {part: now} + :ahead AND {part: of_partition}
            ORDER BY j.wake_at LIMIT :most) AS listed) AS listed_jobs,
        (SELECT j.wake_at FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.wake_at > {part: now} + :ahead
            ORDER BY j.wake_at LIMIT 1) AS next_job,
        (SELECT 1 FROM levels WHERE {part: level_is_due} LIMIT 1) AS backlog,
        ({part: next_pending}) AS next_pending,
        (SELECT 1 FROM cronsensus_occurrences AS o {index: parked}
            WHERE o.namespace = :space AND o.parked_on IS NOT NULL AND o.state = 'pending' AND +o.due_at = :never
                AND o.id > 0 ORDER BY o.id LIMIT 1) AS parked
) AS seen
LEFT JOIN (
    SELECT 1 AS turns, 0 AS held_runs, 0 AS held_locks, {part: session} FROM {part: live_nodes}
    UNION ALL
    SELECT 0 AS turns, held.runs AS held_runs, {part: held_locks} AS held_locks, {part: session}
    FROM (SELECT o.session, count(*) AS runs FROM cronsensus_occurrences AS o {index: running}
        WHERE o.namespace = :space AND o.state = 'running' {listed} GROUP BY o.session) AS held
    JOIN {part: holder}
    WHERE s.ended_at IS NULL
) AS watched ON 1 = 1
ORDER BY watched.number;

-- name: due_jobs
-- Read the due jobs, the most overdue first. MySQL may number by steps (Galera, group replication): the golden ratio spreads such numbers over partitions, a remainder would not. Race: a job is fired after the look that counted it; then this finds fewer, and the look is repeated.
{part: due_jobs} ORDER BY j.wake_at, j.id LIMIT :size;

-- name: newest_due_jobs
-- Read the jobs that became due last. Race: as above.
{part: due_jobs} ORDER BY j.wake_at DESC, j.id DESC LIMIT :size;

-- name: pauses_after
-- Read the pauses of a job that ended after its watermark. Race: none; a plan is compared with the job again.
SELECT p.start, p."end" FROM cronsensus_pauses AS p WHERE p.job_id = :job AND p."end" > :watermark ORDER BY p.id;

-- name: sessions
-- Read sessions, the newest first; only those that are ``open``, or all. Race: none.
SELECT {part: session}, s.declares, s.tzdata, s.zones, {part: held_locks} AS held_locks,
    (SELECT count(*) FROM cronsensus_occurrences AS o {index: running}
        WHERE o.namespace = s.namespace AND o.session = s.id AND o.state = 'running' {listed}) AS held_runs
FROM cronsensus_sessions AS s
WHERE s.namespace = :space {also open: AND s.ended_at IS NULL}
ORDER BY s.number DESC
LIMIT :size;
