-- name: lock_occurrence
-- Lock an occurrence, and read the name of its job. Race: a claim, or an end; it comes before the lock or after the commit.
SELECT o.id, o.state, o.cancel_reason, (SELECT j.name FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS job
FROM cronsensus_occurrences AS o {by_id}
WHERE o.id = :occurrence AND o.namespace = :space
{for_update};

-- name: cancel_occurrence
-- Cancel an occurrence that waits. Race: a claim; the row is locked, the condition asks whether it is still pending, and the number of rows is checked.
UPDATE cronsensus_occurrences AS o {by_id}
SET state = 'cancelled', reason = :because, finished_at = :now
WHERE o.id = :occurrence AND 'pending' = coalesce(o.state, '');

-- name: ask_to_stop
-- Ask a run to stop. Race: its end, or a second request; the row is locked, the condition asks for both, and the number of rows is checked.
UPDATE cronsensus_occurrences AS o {by_id}
SET cancel_reason = :because
WHERE o.id = :occurrence AND 'running' = coalesce(o.state, '') AND o.cancel_reason IS NULL;

-- name: ended_occurrence
-- Read what is run once more. Race: none, a final state has no exit; one that is not final yet is refused.
SELECT o.id, o.state, o.origin, o.scheduled_for, o.priority, o.level, o.payload, o.parent
FROM cronsensus_occurrences AS o
WHERE o.id = :occurrence AND o.namespace = :space;
