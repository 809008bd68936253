-- Acts of operators on occurrences: cancel and retry.
-- Aliases: o: occurrences, j: jobs. Words in braces and `given` are explained in queries.py.

-- name: lock_occurrence
-- Lock an occurrence, and read the name of its job. Race: a claim, or an end; it comes before the lock or after the commit.
SELECT o.id, o.state, o.cancel_reason, (SELECT j.name FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS job
FROM cronsensus_occurrences AS o {by_id}
WHERE o.id = :occurrence AND o.namespace = :space
{for_update};

-- name: cancel_occurrence
-- Cancel a pending occurrence. Race: a claim; the row is locked, the condition checks whether it is still pending, and the number of rows is checked.
UPDATE cronsensus_occurrences AS o {by_id}
SET state = 'cancelled', reason = :reason, finished_at = :now
WHERE o.id = :occurrence AND 'pending' = coalesce(o.state, '');

-- name: ask_to_stop
-- Ask a run to stop. Race: its end, or a second request; the row is locked, the condition checks for both, and the number of rows is checked.
UPDATE cronsensus_occurrences AS o {by_id}
SET cancel_reason = :reason
WHERE o.id = :occurrence AND 'running' = coalesce(o.state, '') AND o.cancel_reason IS NULL;

-- name: newest_retry
-- Read the newest retry of an occurrence, or itself. Race: another retry; the job is locked before, so this sees what it created. A final state has no exit; one that is not final yet is refused.
WITH RECURSIVE chain (id, retried_as) AS (
    SELECT o.id, o.retried_as FROM cronsensus_occurrences AS o WHERE o.id = :occurrence AND o.namespace = :space
    UNION ALL
    SELECT o.id, o.retried_as
    FROM chain JOIN cronsensus_occurrences AS o ON o.id = chain.retried_as AND o.retry_of = chain.id
)
SELECT o.id, o."key", o.state, o.origin, o.scheduled_for, o.priority, o.level, o.payload, o.parent
FROM cronsensus_occurrences AS o
WHERE o.id = (SELECT max(chain.id) FROM chain);

-- name: record_retry
-- Record the retry of an occurrence. Race: another retry; the job is locked, and existing retries were read after that.
UPDATE cronsensus_occurrences AS o {by_id}
SET retried_as = :retry
WHERE o.id = :occurrence;
