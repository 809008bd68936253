-- part: of_job
(SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = :job)

-- name: lock_named
-- Lock the occurrence that stands under a key of a job. Race: a claim, or an end; it comes before the lock or after the commit. The job is locked by the statement before, so none is created meanwhile.
SELECT o.id, o.job_id, o.state, o."key", o.origin, o.scheduled_for, o.due_at, o.attempt, o.crashes, o.failures, o.payload,
    o.finished_at, o.fingerprint, o.parent, o.listed, o.created_at, o.note
FROM cronsensus_occurrences AS o {index: by_key}
WHERE o.job_id = {part: of_job} AND o."key" = :key
{for_update};

-- name: standing_at
-- Read the active and the succeeded occurrences at nominal times of a job, the newest last. Race: the job is locked by the statement before, so none is created meanwhile.
SELECT o.id, o."key", o.state, o.scheduled_for
FROM cronsensus_occurrences AS o
WHERE o.job_id = {part: of_job} AND o.scheduled_for IN :times
    AND (o.finished_at IS NULL OR (o.finished_at IS NOT NULL AND o.state = 'succeeded'))
ORDER BY o.id;

-- name: era_of
-- Read the trigger that ruled a job before a time; of a time before its first era, the trigger of that. Race: the job is locked by the statement before, so no other era begins meanwhile.
SELECT e."trigger"
FROM cronsensus_eras AS e
WHERE e.id = coalesce(
    (SELECT l.id FROM cronsensus_eras AS l WHERE l.job_id = {part: of_job} AND l.since < :time
        ORDER BY l.since DESC, l.id DESC LIMIT 1),
    (SELECT min(f.id) FROM cronsensus_eras AS f WHERE f.job_id = {part: of_job}));

-- name: start_named
-- Make the occurrence under a key running, under the last token taken. Race: two nodes take it; it is locked, the condition asks whether it is pending, and the number of rows is checked.
UPDATE cronsensus_occurrences AS o {index: by_key}
SET state = 'running', attempt = o.attempt + 1, token = {last_token}, session = :holder, node = :machine,
    started_at = :now, due_at = :due, fingerprint = :fingerprint, reason = NULL, error = NULL, parked_on = NULL,
    progress_done = NULL, progress_total = NULL
WHERE o.job_id = :job AND o."key" = :key AND 'pending' = coalesce(o.state, '');

-- name: named_run
-- Read the occurrence under a key, and the last token that this transaction took. Race: none, the occurrence is locked or new, and the token is this connection's own.
SELECT o.id, {last_token} AS last FROM cronsensus_occurrences AS o WHERE o.job_id = :job AND o."key" = :key;

-- name: pass_watermark
-- types: decided bigint
-- Move the watermark of a job without a trigger over a time that was won. Race: the job is locked; what an earlier trigger still owes is decided first, or it would never be.
UPDATE cronsensus_jobs AS j {by_id}
SET watermark = :decided
WHERE j.id = :job AND j.watermark < :decided AND (j.next_due IS NULL OR j.next_due > :decided);

-- name: lock_asked
-- Lock what stands under keys of jobs. Race: a claim, or an end; it comes before the lock or after the commit. The jobs are locked by a statement before, so none is created meanwhile.
SELECT o.id, o.job_id, o.state, o."key", o.origin, o.scheduled_for, o.due_at, o.attempt, o.crashes, o.failures, o.payload,
    o.parent, o.listed, o.created_at, o.note
FROM cronsensus_occurrences AS o {index: by_key}
WHERE o.job_id IN :ids AND o."key" IN :keys
{for_update};

-- name: close_asked
-- rows: ended bigint, verdict text, because text, run bigint
-- Give a verdict to times that nobody runs. Race: none, the jobs are locked and the rows are new; the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = given.verdict, reason = given.because, finished_at = given.ended
{rows_last}
WHERE o.id = given.run AND 'pending' = coalesce(o.state, '');

-- name: pass_watermarks
-- rows: decided bigint, job bigint
-- Move the watermarks of jobs without a trigger over times that were decided. Race: the jobs are locked; what an earlier trigger still owes is decided first.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET watermark = given.decided
{rows_last}
WHERE j.id = given.job AND j.watermark < given.decided;
