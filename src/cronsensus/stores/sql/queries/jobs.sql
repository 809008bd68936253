-- Jobs: reading and locking them, their eras, pauses and verdicts.
-- Aliases: o: occurrences, j: jobs, e: eras, p: pauses, v: verdict ranges. Words in braces and `given` are explained in queries.py.

-- part: of_job
(SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = :job)

-- part: view
SELECT j.id, j.name, j.revision, j.digest, j.defined_at, j.watermark, j.horizon, j.next_due, j.paused_at, j.paused_by,
    j.paused_why, j.retired_at, j.waiting_until, j.created_at,
    (SELECT count(*) FROM cronsensus_occurrences AS o
        WHERE o.job_id = j.id AND o.serial = 1 AND o.finished_at IS NULL) AS active
FROM cronsensus_jobs AS j
WHERE j.namespace = :space

-- part: job
j.id, j.name, j.revision, j.digest, j.defined_at, j.watermark, j.horizon, j.next_due, j.paused_at, j.pause_ended_at,
j.retired_at, j.waiting_until

-- name: specs
-- Read definitions of jobs. Race: none; the cache is keyed by the digest that is read with it.
SELECT j.id, j.revision, j.digest, j.defined_at, j.spec FROM cronsensus_jobs AS j WHERE j.id IN :ids;

-- name: lock_named_jobs
-- Lock jobs by name. Race: one is retired or defined anew; they lock in the order of ids, so they wait for each other.
SELECT j.id, j.name, j.revision, j.digest, j.defined_at, j.retired_at
FROM cronsensus_jobs AS j {by_name}
WHERE j.namespace = :space AND j.name IN :names
ORDER BY j.id
{for_update};

-- name: lock_asked_jobs
-- Lock jobs by name for a session that acquires work, and read the session's node, if it is alive, and whether anything has expired. Race: two processes acquire work of one job; they lock in the order of ids, so they wait for each other. The session is locked and checked again before the commit, and the answer about expiry only saves a search.
SELECT {part: job}, j.concurrency,
    (SELECT s.node FROM cronsensus_sessions AS s WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL
        AND s.epoch = :boot AND s.lease_until > :moment) AS holder,
    CASE WHEN EXISTS (SELECT 1 FROM cronsensus_occurrences AS o {index: expiring}
        WHERE o.namespace = :space AND o.state = 'pending' AND o.attempt = 0 AND o.expires_at IS NOT NULL
            AND o.expires_at < :now) THEN 1 ELSE 0 END AS late
FROM cronsensus_jobs AS j {by_name}
WHERE j.namespace = :space AND j.name IN :names
ORDER BY j.id
{for_update};

-- name: eras_after
-- Read the eras of jobs that still apply: the era at the watermark, and those after it. Race: none; the cache is keyed by the digest of the definition.
SELECT e.job_id, e.since, e.revision, e."trigger", e."after"
FROM cronsensus_jobs AS j {by_id}
JOIN cronsensus_eras AS e {along: eras_of_job} ON e.job_id = j.id
WHERE j.id IN :ids AND e.since >= (SELECT last.since FROM cronsensus_eras AS last
    WHERE last.job_id = j.id AND last.since <= j.watermark ORDER BY last.since DESC LIMIT 1)
ORDER BY e.id;

-- name: job
-- Read a job, retired or not. Race: none.
{part: view} AND j.name = :job;

-- name: jobs
-- Read a page of jobs, by name; only those that are ``living``, or the retired ones too. Race: none.
{part: view} AND j.name > :after {also living: AND j.retired_at IS NULL} ORDER BY j.name LIMIT :size;

-- name: edges
-- types: size bigint
-- Read a page of downstream jobs that are not retired, by name. Race: none; the cache is keyed by the digest that is read with it.
SELECT j.id, j.name, j.revision, j.digest, j.defined_at FROM cronsensus_jobs AS j
WHERE j.namespace = :space AND j.dependent = 1 AND j.retired_at IS NULL AND j.name > :after
ORDER BY j.name LIMIT :size;

-- name: eras
-- Read all eras of a job. Race: none, an era never changes.
SELECT e.since, e.revision, e."trigger", e."after" FROM cronsensus_eras AS e WHERE e.job_id = {part: of_job} ORDER BY e.id;

-- name: eras_of_jobs
-- Read when the eras of jobs began, and whether there is a trigger in them. Race: the jobs are locked by the statement before, so no other era begins meanwhile.
SELECT e.job_id, e.since, CASE WHEN e."trigger" IS NULL THEN 0 ELSE 1 END AS ruled
FROM cronsensus_eras AS e WHERE e.job_id IN :ids ORDER BY e.id;

-- name: pauses
-- Read all pauses of a job. Race: none.
SELECT p.start, p."end" FROM cronsensus_pauses AS p WHERE p.job_id = {part: of_job} ORDER BY p.id;

-- name: verdicts
-- Read a page of the verdict ranges of a job that touch a stretch of time. Race: none, a range never changes.
SELECT v.id, v."first", v."last", v.state, v.reason, v."count" AS counted, v.decided_at
FROM cronsensus_verdicts AS v
WHERE v.job_id = {part: of_job} AND v.id > :after {also since: AND v."last" >= :since} {also until: AND v."first" <= :until}
ORDER BY v.id
LIMIT :size;

-- name: lock_job
-- Lock a job by name. Race: an operator, a plan or a definition changes it; one waits for the other.
SELECT {part: job}
FROM cronsensus_jobs AS j {by_name}
WHERE j.namespace = :space AND j.name = :job
{for_update};

-- name: lock_job_of
-- Lock the job of an occurrence. Race: as above.
SELECT {part: job}
FROM cronsensus_jobs AS j {by_id}
WHERE j.id = (SELECT o.job_id FROM cronsensus_occurrences AS o WHERE o.id = :occurrence AND o.namespace = :space)
{for_update};
