-- Reads for programs and operators: occurrences, attempts, verdicts, logs, counts, the trail.
-- Aliases: o: occurrences, j: jobs, v: verdict ranges, r: ended attempts, l: log lines, s: sessions, t: trail. Words in braces and `given` are explained in queries.py.

-- part: job
(SELECT j.name FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS job

-- part: occurrence
SELECT o.id, o.job_id, {part: job}, o."key", o.origin, o.state, o.priority, o.scheduled_for, o.due_at, o.attempt,
    o.crashes, o.failures, o.token, o.session, o.node, o.created_at, o.started_at, o.finished_at, o.cancel_reason,
    o.retry_of, o.retried_as, o.progress_done, o.progress_total, o.reason, o.payload, o.result, o.error, o.fingerprint,
    o.parent, o.listed, o.parked_on, o.note, o.reserved

-- name: occurrence
-- Read an occurrence. Race: none.
{part: occurrence}
FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.id = :occurrence;

-- part: matching
{part: occurrence}
FROM cronsensus_occurrences AS o {also along_failed: {index: failed}} {also along_nominal: {index: nominal}}
    {also parent: {index: items}}
WHERE o.namespace = :space {listed}
    {also job: AND o.job_id = (SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = :job)}
    {also states: AND ({or pending: o.state = 'pending'} {or running: o.state = 'running'}
        {or succeeded: o.state = 'succeeded'} {or failed: o.state = 'failed'} {or cancelled: o.state = 'cancelled'}
        {or skipped: o.state = 'skipped'} {or missed: o.state = 'missed'})}
    {also origin: AND o.origin = :origin}
    {also key: AND o."key" = :key}
    {also session: AND o.session = :session}
    {also parent: AND o.parent = :parent}
    {also since: AND o.scheduled_for >= :since}
    {also until: AND o.scheduled_for <= :until}

-- name: oldest_occurrences
-- Read a page of occurrences, the oldest first. The states are literals, so that the database can use a partial index. Race: none; what is created meanwhile has a higher id, except what a user's transaction commits later: that may be on a page that was already read.
{part: matching} AND o.id > :after ORDER BY o.id LIMIT :size;

-- name: newest_occurrences
-- Read a page of them, the newest first. Race: as above.
{part: matching} AND o.id < :after ORDER BY o.id DESC LIMIT :size;

-- name: ended_badly
-- types: since bigint, after bigint, size bigint
-- Read occurrences that failed, or were missed or cancelled, since a moment. Race: one that ends meanwhile may be committed later with an earlier time; so a reader goes back a little each time.
{part: occurrence}
FROM cronsensus_occurrences AS o {index: unwell}
WHERE o.namespace = :space AND o.state IN ('failed', 'missed', 'cancelled') AND o.finished_at >= :since
    AND (o.finished_at > :since OR o.id > :after)
ORDER BY o.finished_at, o.id
LIMIT :size;

-- name: decided
-- types: after bigint, size bigint
-- Read a page of verdict ranges of all jobs. Race: as above, with ids.
SELECT v.id, j.name AS job, v."first", v."last", v.state, v.reason, v."count" AS counted, v.decided_at
FROM cronsensus_verdicts AS v
JOIN cronsensus_jobs AS j ON j.id = v.job_id AND j.namespace = :space
WHERE v.id > :after
ORDER BY v.id
LIMIT :size;

-- name: last_verdict
-- Read the last verdict range. Race: none.
SELECT v.id, j.name AS job, v."first", v."last", v.state, v.reason, v."count" AS counted, v.decided_at
FROM cronsensus_verdicts AS v
JOIN cronsensus_jobs AS j ON j.id = v.job_id AND j.namespace = :space
ORDER BY v.id DESC
LIMIT 1;

-- name: occurrences_of_attempts
-- Read the occurrences whose attempts are requested, with their running attempts. Race: an attempt ends between this and the next statement; both are of one snapshot, where the database has them.
SELECT o.id, o.job_id, {part: job}, o."key", o.scheduled_for, o.state, o.attempt, o.token, o.session, o.node, o.started_at
FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.id IN :ids;

-- name: attempts
-- Read the attempts of occurrences that have ended. Race: none, a record never changes.
SELECT r.token, r.occurrence_id, r.attempt, r.session, r.node, r.started_at, r.finished_at, r."end", r.reason, r.error
FROM cronsensus_runs AS r
WHERE r.occurrence_id IN :ids
ORDER BY r.token;

-- name: log_lines
-- Read a page of the log lines of an occurrence. Race: none; what is written meanwhile has a higher number.
SELECT l.sequence, l.attempt, l.at, l.level, l.text
FROM cronsensus_logs AS l
WHERE l.occurrence_id = (SELECT o.id FROM cronsensus_occurrences AS o WHERE o.id = :occurrence AND o.namespace = :space)
    AND l.sequence > :after
ORDER BY l.sequence
LIMIT :size;

-- name: job_ids
-- Read the ids of jobs by their names. Race: none, they never change.
SELECT j.id, j.name FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name IN :names;

-- name: count_pending
-- Count the pending occurrences of jobs. The sum hides the job, so that the index of pending occurrences is read, and not the whole history of each job. Race: none.
SELECT o.job_id, count(*) AS waiting
FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.state = 'pending' {listed} AND o.job_id + 0 IN :ids
GROUP BY o.job_id;

-- name: counts
-- Count jobs, occurrences and sessions, each up to a limit. Race: none.
SELECT
    (SELECT count(*) FROM (SELECT j.id FROM cronsensus_jobs AS j
        WHERE j.namespace = :space AND j.retired_at IS NULL LIMIT :size) AS counted) AS jobs,
    (SELECT count(*) FROM (SELECT j.id FROM cronsensus_jobs AS j
        WHERE j.namespace = :space AND j.paused_at IS NOT NULL AND j.retired_at IS NULL LIMIT :size) AS counted) AS paused,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_occurrences AS o
        WHERE o.namespace = :space AND o.state = 'pending' {listed} LIMIT :size) AS counted) AS pending,
    (SELECT count(*) FROM (SELECT o.id FROM cronsensus_sessions AS s
        JOIN cronsensus_occurrences AS o
            ON o.namespace = s.namespace AND o.session = s.id AND o.state = 'running' {listed}
        WHERE s.namespace = :space AND s.ended_at IS NULL LIMIT :size) AS counted) AS running,
    (SELECT count(*) FROM (SELECT s.id FROM cronsensus_sessions AS s
        WHERE s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
        LIMIT :size) AS counted) AS sessions;

-- name: trail
-- Read a page of the audit trail, the newest first. Race: none, an entry never changes.
SELECT t.id, t.at, t."by", t.action, t.target, t.why, t.details
FROM cronsensus_trail AS t
WHERE t.namespace = :space AND t.id < :before {also target: AND t.target = :target}
ORDER BY t.id DESC
LIMIT :size;
