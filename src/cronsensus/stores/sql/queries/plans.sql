-- Carrying plans out: watermarks, new occurrences and verdicts.
-- Aliases: o: occurrences, j: jobs. Words in braces and `given` are explained in queries.py.

-- name: lock_jobs
-- Lock jobs and read the values that plans are compared with. Race: two nodes carry out plans of one job; they lock in the order of ids, so they wait for each other.
SELECT j.id, j.revision, j.digest, j.defined_at, j.watermark, j.paused_at, j.retired_at
FROM cronsensus_jobs AS j {by_id}
WHERE j.id IN :ids AND coalesce(j.namespace, '') = :space
ORDER BY j.id
{for_update};

-- name: count_active
-- Count the active occurrences of jobs that are subject to overlap. Race: the jobs are locked by the statement before, so this sees what was committed while that one waited.
SELECT o.job_id, count(*) AS active
FROM cronsensus_occurrences AS o {index: serial}
WHERE o.job_id IN :ids AND o.serial = 1 AND o.finished_at IS NULL
GROUP BY o.job_id;

-- name: move_watermarks
-- rows: new_watermark bigint, new_next_due bigint, job bigint, seen_watermark bigint, seen_revision integer
-- Move watermarks on. Race: two nodes decide the same times; the jobs are locked, the condition compares the watermark that was seen, and the number of rows is checked.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET watermark = given.new_watermark, next_due = given.new_next_due, wake_at = given.new_next_due
{rows_last}
WHERE j.id = given.job AND j.watermark = given.seen_watermark AND j.revision = given.seen_revision;

-- name: insert_verdicts
-- rows: job bigint, first_time bigint, last_time bigint, state text, reason text, number integer, decided_at bigint
-- Record verdicts on times that will not run. Race: none, the job is locked.
INSERT INTO cronsensus_verdicts (job_id, "first", "last", state, reason, "count", decided_at)
{values: given.job, given.first_time, given.last_time, given.state, given.reason, given.number, given.decided_at};

-- name: cancel_pending
-- Cancel the pending occurrences of a job that are subject to overlap. Race: a claim; the condition checks whether it is still pending.
UPDATE cronsensus_occurrences
SET state = 'cancelled', reason = 'cancel_previous', finished_at = :now
WHERE job_id = :job AND serial = 1 AND finished_at IS NULL AND state = 'pending';

-- name: ask_running
-- Ask the running occurrences of a job that are subject to overlap to stop. Race: its end; the condition checks whether it still runs.
UPDATE cronsensus_occurrences
SET cancel_reason = 'cancel_previous'
WHERE job_id = :job AND serial = 1 AND finished_at IS NULL AND state = 'running' AND cancel_reason IS NULL;

-- part: new_occurrences
-- rows: namespace text, job_id bigint, key text, origin text, serial smallint, priority integer, level bigint, scheduled_for bigint, due_at bigint, expires_at bigint, created_at bigint, retry_of bigint, payload text, fingerprint text, parent bigint, parked_on text
INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, scheduled_for, due_at,
    expires_at, attempt, crashes, failures, token, created_at, retry_of, payload, fingerprint, parent, parked_on)
{values: given.namespace, given.job_id, given.key, given.origin, 'pending', given.serial, given.priority, given.level, given.scheduled_for, given.due_at, given.expires_at, 0, 0, 0, 0, given.created_at, given.retry_of, given.payload, given.fingerprint, given.parent, given.parked_on}

-- name: insert_occurrences
-- Create those occurrences whose key does not exist. Race: two nodes create one; the unique key of (job, key) admits only one, and an existing row stays as it is.
{part: new_occurrences}
{absent: job_id, key};

-- name: insert_new
-- Create occurrences whose keys must not exist. Race: another caller has one; the unique key of (job, key) admits only one, and this fails.
{part: new_occurrences};

-- name: find_keys
-- Read the occurrences of a job with some keys. Race: the job is locked, so none is created meanwhile.
SELECT o.id, o.job_id, o."key", o.state FROM cronsensus_occurrences AS o WHERE o.job_id = :job AND o."key" IN :keys;

-- name: find_keys_by_name
-- Read the same of a job by its name, with their arguments. Race: as above.
SELECT o.id, o.job_id, o."key", o.state, o.payload FROM cronsensus_occurrences AS o
WHERE o.job_id = (SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = :job) AND o."key" IN :keys;
