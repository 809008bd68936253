-- Short rows of occurrences for lists: without arguments, result and error.
-- Aliases: o: occurrences, j: jobs, v: verdict ranges, s: sessions. Words in braces and `given` are explained in queries.py.

-- part: glance
SELECT o.id, (SELECT j.name FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS job, o.job_id, o.state, o.scheduled_for,
    o.due_at, o.crashes, o.failures, o.node, o.reason, o.created_at, o.started_at, o.finished_at, o.parent, o.listed

-- name: last_glances
-- types: job bigint, size bigint
-- Read the last occurrences of a job, without long values. Race: none.
{part: glance}
FROM cronsensus_occurrences AS o
WHERE o.job_id = :job {listed}
ORDER BY o.id DESC
LIMIT :size;

-- name: last_whole_glances
-- types: job bigint, size bigint, looked bigint
-- Read the last occurrences of a job that has batches, without the items of these: those among the newest rows, and by nominal time, as one batch may have more items than the rows that are read. Race: none.
{part: glance}
FROM (
    SELECT a.id FROM (SELECT o.id FROM cronsensus_occurrences AS o {index: nominal}
        WHERE o.job_id = :job AND o.scheduled_for IS NOT NULL ORDER BY o.scheduled_for DESC LIMIT :size) AS a
    UNION
    SELECT coalesce(b.parent, b.id) AS id FROM (SELECT o.id, o.parent FROM cronsensus_occurrences AS o
        WHERE o.job_id = :job {listed} ORDER BY o.id DESC LIMIT :looked) AS b
) AS one
JOIN cronsensus_occurrences AS o ON o.id = one.id
WHERE o.job_id = :job AND o.parent IS NULL
ORDER BY o.id DESC
LIMIT :size;

-- name: last_verdicts
-- types: job bigint, size bigint
-- Read the last verdict ranges of a job. Race: none, a range never changes.
SELECT v.id, v."first", v."last", v.state, v.reason, v."count" AS counted, v.decided_at
FROM cronsensus_verdicts AS v
WHERE v.job_id = :job
ORDER BY v.id DESC
LIMIT :size;

-- name: newest_number
-- Read the highest id of an occurrence. Race: none; later occurrences are not read.
SELECT max(o.id) AS newest FROM cronsensus_occurrences AS o;

-- name: ended_since
-- types: least bigint, since bigint, size bigint
-- Read occurrences that ended since a moment, along the newest ids: an index by end of all jobs would cost every write. Race: none.
{part: glance}
FROM cronsensus_occurrences AS o {by_id}
WHERE o.namespace = :space {listed} AND o.id > :least AND o.finished_at >= :since
ORDER BY o.id DESC
LIMIT :size;

-- name: running_glances
-- types: size bigint
-- Read running occurrences. Race: none.
{part: glance}
FROM cronsensus_sessions AS s
JOIN cronsensus_occurrences AS o ON o.namespace = s.namespace AND o.session = s.id AND o.state = 'running' {listed}
WHERE s.namespace = :space AND s.ended_at IS NULL
LIMIT :size;
