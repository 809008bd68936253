-- Definitions of jobs and their eras; retiring jobs.
-- Aliases: o: occurrences, j: jobs, s: sessions, r and m: releases, e: eras. Words in braces and `given` are explained in queries.py.

-- part: find_overdue
SELECT j.id FROM cronsensus_jobs AS j
WHERE j.namespace = :space AND j.waiting_until IS NOT NULL AND j.waiting_until <= :now
ORDER BY j.id

-- part: is_alive
s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment AND s.concurrency > 0

-- name: definitions
-- Read the definitions of jobs by name. Race: another node defines them; what is to be changed is locked and read again, and a run that is enqueued under an old definition counts as one from before.
SELECT j.id, j.name, j.revision, j.digest, j.defined_at, j.retired_at, j.watermark, j.next_due
FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name IN :names;

-- name: declared_jobs
-- Read which jobs are declared in code. Race: as above.
SELECT j.id, j.name FROM cronsensus_jobs AS j
WHERE j.namespace = :space AND j.source = 'code' AND j.retired_at IS NULL
ORDER BY j.id;

-- name: release_among_others
-- Read whether a release is known, whether a later one has live nodes, and whether any other has. Race: a session of one opens; definitions and new sessions are serialised, see ``one_at_a_time``.
SELECT (SELECT m.id FROM cronsensus_releases AS m WHERE m.namespace = :space AND m."release" = :mine) AS known,
    CASE WHEN EXISTS (SELECT 1 FROM cronsensus_sessions AS s
        JOIN cronsensus_releases AS r ON r.namespace = s.namespace AND r."release" = s."release"
        WHERE s.namespace = :space AND {part: is_alive} AND r.id > (SELECT m.id FROM cronsensus_releases AS m
            WHERE m.namespace = :space AND m."release" = :mine)) THEN 1 ELSE 0 END AS newer_release_lives,
    CASE WHEN EXISTS (SELECT 1 FROM cronsensus_sessions AS s
        WHERE s.namespace = :space AND {part: is_alive} AND s."release" <> :mine) THEN 1 ELSE 0 END AS other_release_lives;

-- name: lock_definitions
-- Lock jobs and read the values with which a definition is compared. Race: a plan, or an operator; they lock in the order of ids, so they wait for each other.
SELECT j.id, j.name, j.revision, j.digest, j.defined_at, j.overlap, j.watermark, j.paused_at, j.retired_at
FROM cronsensus_jobs AS j {by_id}
WHERE j.id IN :ids
ORDER BY j.id
{for_update};

-- name: insert_jobs
-- types: space text, created bigint
-- rows: name text, function_name text, source text, digest text, spec text, overlap text, concurrency integer, keep bigint, dependent smallint, watermark bigint, next_due bigint
-- Define new jobs. Race: another node defines one; definitions are serialised, and the unique name admits only one.
INSERT INTO cronsensus_jobs (namespace, name, "function", source, digest, spec, overlap, concurrency, keep, dependent, revision,
    defined_at, watermark, next_due, wake_at, created_at)
{values: :space, given.name, given.function_name, given.source, given.digest, given.spec, given.overlap, given.concurrency, given.keep, given.dependent, 1, given.watermark, given.watermark, given.next_due, given.next_due, :created};

-- name: redefine_jobs
-- rows: new_function text, new_source text, new_digest text, new_spec text, new_overlap text, new_concurrency integer, new_keep bigint, new_dependent smallint, new_revision integer, new_defined_at bigint, new_watermark bigint, new_next_due bigint, new_wake_at bigint, job bigint, seen_revision integer
-- Define jobs anew. Race: a plan, or an operator; they are locked, the condition compares the revision that was read, and the number of rows is checked.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET "function" = given.new_function, source = given.new_source, digest = given.new_digest, spec = given.new_spec, overlap = given.new_overlap,
    concurrency = given.new_concurrency, keep = given.new_keep, dependent = given.new_dependent, revision = given.new_revision, defined_at = given.new_defined_at,
    watermark = given.new_watermark, next_due = given.new_next_due, wake_at = given.new_wake_at, retired_at = NULL,
    waiting_until = NULL
{rows_last}
WHERE j.id = given.job AND j.revision = given.seen_revision;

-- name: move_jobs
-- rows: new_next_due bigint, job bigint, seen_watermark bigint, seen_revision integer
-- Set next due times that differ under the zone rules now. Race: a plan, or an operator; they are locked, the condition compares the watermark and the revision that were read, and the number of rows is checked.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET next_due = given.new_next_due, wake_at = CASE WHEN j.paused_at IS NULL THEN given.new_next_due END
{rows_last}
WHERE j.id = given.job AND j.watermark = given.seen_watermark AND j.revision = given.seen_revision AND j.retired_at IS NULL;

-- name: insert_eras
-- types: space text
-- rows: job_name text, since bigint, revision integer, trigger_text text, after_text text
-- Begin the first eras of jobs. Race: none, the jobs are new.
INSERT INTO cronsensus_eras (job_id, since, revision, "trigger", "after")
{values: (SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = given.job_name), given.since, given.revision, given.trigger_text, given.after_text};

-- name: insert_further_eras
-- rows: job bigint, since bigint, revision integer, trigger_text text, after_text text
-- Begin eras of existing jobs. Race: none, the jobs are locked.
INSERT INTO cronsensus_eras (job_id, since, revision, "trigger", "after")
{values: given.job, given.since, given.revision, given.trigger_text, given.after_text};

-- name: active_of_jobs
-- Read active occurrences of jobs, from their schedule or an operator, whose serial flag differs from the new overlap policy. The job is hidden in a sum, so that the index of pending occurrences is read, and not the whole history of the job. Race: a claim, or a retry; a statement sees each occurrence in exactly one state, and then they are locked.
SELECT o.id FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.state = 'pending' {listed} AND o.job_id + 0 IN :ids
    AND o.origin IN ('backfill', 'manual', 'schedule') AND o.serial <> :ruled
UNION ALL
SELECT o.id FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.state = 'running' {listed} AND o.job_id + 0 IN :ids
    AND o.origin IN ('backfill', 'manual', 'schedule') AND o.serial <> :ruled;

-- name: set_serial
-- Set whether the overlap policy applies to occurrences. Race: their end; they are locked, and the condition checks whether they ended.
UPDATE cronsensus_occurrences AS o {by_id} SET serial = :ruled WHERE o.id IN :ids AND o.finished_at IS NULL;

-- name: retire_jobs
-- rows: retired bigint, new_revision integer, new_defined_at bigint, new_watermark bigint, new_waiting_until bigint, job bigint, seen_revision integer
-- Retire jobs. Race: a plan, or a definition; they are locked, the condition compares the revision that was read, and the number of rows is checked.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET retired_at = given.retired, revision = given.new_revision, defined_at = given.new_defined_at, watermark = given.new_watermark,
    next_due = NULL, wake_at = NULL, waiting_until = given.new_waiting_until
{rows_last}
WHERE j.id = given.job AND j.revision = given.seen_revision AND j.retired_at IS NULL;

-- name: overdue_jobs
-- types: now bigint
-- Find retired jobs whose pending occurrences were kept for long enough. Race: one is defined again; it is locked and checked again.
{part: find_overdue};

-- name: lock_overdue_jobs
-- types: now bigint
-- Lock the same. Race: one is defined again; it comes before the lock or after the commit.
{part: find_overdue}
{for_update};

-- name: pending_of_retired
-- Find pending occurrences of retired jobs. Race: a claim; the cancelling checks again. A user's open transaction may add more; they are cancelled later.
SELECT o.id FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.state = 'pending' {listed} AND o.job_id + 0 IN :jobs;

-- name: cancel_waiting
-- Cancel pending occurrences of retired jobs. Race: a claim; the condition checks whether it is still pending.
UPDATE cronsensus_occurrences AS o {by_id}
SET state = 'cancelled', reason = 'retired', finished_at = :now
WHERE o.id IN :ids AND o.state = 'pending';

-- name: lately_retired
-- types: recent bigint
-- Find jobs that were retired since a moment, without kept occurrences: a transaction that was open then may have added a run. Race: one is defined again; it is locked and checked again.
SELECT j.id FROM cronsensus_jobs AS j {along: jobs_retired}
WHERE j.namespace = :space AND j.retired_at IS NOT NULL AND j.retired_at > :recent AND j.waiting_until IS NULL
ORDER BY j.id;

-- name: clear_waiting_until
-- Record that retired jobs have no pending occurrences. Race: none, they are locked.
UPDATE cronsensus_jobs AS j {by_id} SET waiting_until = NULL WHERE j.id IN :ids;
