-- Claims by key (acquire), and what is needed for them.
-- Aliases: o: occurrences, j: jobs, e: eras. Words in braces and `given` are explained in queries.py.

-- part: of_job
(SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = :job)

-- part: select_by_key
SELECT o.id, o.job_id, o.state, o."key", o.origin, o.scheduled_for, o.due_at, o.attempt, o.crashes, o.failures, o.payload,
    o.finished_at, o.fingerprint, o.parent, o.listed, o.created_at, o.note
FROM cronsensus_occurrences AS o {index: by_key}

-- name: lock_named
-- Lock the occurrences of a job with some keys. Race: a claim, or an end; it comes before the lock or after the commit. Within a job the order of ids keeps two transactions from waiting for each other; over several jobs they may, and one of them is tried again. The job is locked by the statement before, so none is created meanwhile.
{part: select_by_key}
WHERE o.job_id = {part: of_job} AND o."key" IN :keys
ORDER BY o.id
{for_update};

-- name: lock_asked
-- Lock the occurrences of several jobs with some keys. Race: as above.
{part: select_by_key}
WHERE o.job_id IN :ids AND o."key" IN :keys
ORDER BY o.id
{for_update};

-- name: standing_at
-- Read the active and the succeeded occurrences at nominal times of a job, the newest last. Race: the job is locked by the statement before, so none is created meanwhile.
SELECT o.id, o."key", o.state, o.scheduled_for
FROM cronsensus_occurrences AS o
WHERE o.job_id = {part: of_job} AND o.scheduled_for IN :times
    AND (o.finished_at IS NULL OR (o.finished_at IS NOT NULL AND o.state = 'succeeded'))
ORDER BY o.id;

-- name: eras_from
-- Read when the eras of a job began, from the one that held before a time on, and whether there is a trigger in them. Race: the job is locked by the statement before, so no other era begins meanwhile.
SELECT e.job_id, e.since, CASE WHEN e."trigger" IS NULL THEN 0 ELSE 1 END AS ruled
FROM cronsensus_eras AS e
WHERE e.job_id = {part: of_job} AND e.since >= coalesce(
    (SELECT max(l.since) FROM cronsensus_eras AS l WHERE l.job_id = {part: of_job} AND l.since < :time), e.since)
ORDER BY e.id;

-- name: ids_of_asked
-- Read the ids of occurrences that were created with some keys, and the last token that this transaction took. Race: none, the jobs are locked, and the token is this connection's own.
SELECT o.id, o.job_id, o."key", {last_token} AS last
FROM cronsensus_occurrences AS o {index: by_key}
WHERE o.job_id IN :ids AND o."key" IN :keys;

-- name: start_asked
-- types: session text, node text
-- rows: place bigint, started bigint, due bigint, new_fingerprint text, job bigint, wanted_key text
-- Make the occurrences with some keys running, each under a token of its own. Race: two nodes take one; the rows are locked or new, the condition checks whether they are pending, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {index: by_key}
SET state = 'running', attempt = o.attempt + 1, token = {last_token} - given.place, session = :session, node = :node,
    started_at = given.started, due_at = given.due, fingerprint = given.new_fingerprint, reason = NULL, error = NULL,
    parked_on = NULL, progress_done = NULL, progress_total = NULL
{rows_last}
WHERE o.job_id = given.job AND o."key" = given.wanted_key AND 'pending' = coalesce(o.state, '');

-- name: close_asked
-- rows: ended bigint, new_state text, new_reason text, job bigint, wanted_key text
-- Close the occurrences of nominal times that are not run, with a verdict. Race: none, the jobs are locked and the rows are new; the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {index: by_key}
SET state = given.new_state, reason = given.new_reason, finished_at = given.ended
{rows_last}
WHERE o.job_id = given.job AND o."key" = given.wanted_key AND 'pending' = coalesce(o.state, '');

-- name: pass_watermarks
-- rows: new_watermark bigint, job bigint
-- Move the watermarks of jobs without a trigger to times that were decided. Race: the jobs are locked; times that an earlier trigger left undecided come first.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET watermark = given.new_watermark
{rows_last}
WHERE j.id = given.job AND j.watermark < given.new_watermark;
