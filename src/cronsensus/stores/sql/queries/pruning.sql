-- Pruning: finding and deleting old rows.
-- Aliases: o: occurrences, j: jobs, r: retries, b: batches, v: verdict ranges, e: eras, p: pauses, s: sessions, t: trail, l: locks. Words in braces and `given` are explained in queries.py.

-- part: prune_before
coalesce(:before, :now - CASE WHEN j.keep < :least THEN :least WHEN j.keep > :most THEN :most ELSE j.keep END)

-- part: needed_from
:waiting_since - CASE WHEN j.keep < :least THEN :least WHEN j.keep > :most THEN :most ELSE j.keep END

-- part: or_retry_is_open
OR EXISTS (SELECT 1 FROM cronsensus_occurrences AS r WHERE (r.finished_at IS NULL OR r.retried_as IS NOT NULL)
        AND r.id = CASE WHEN o.parent IS NULL THEN o.retried_as
            ELSE (SELECT b.retried_as FROM cronsensus_occurrences AS b WHERE b.id = o.parent) END)
    THEN 1 ELSE 0 END

-- part: batch_is_old
(o.parent IS NULL OR NOT EXISTS (SELECT 1 FROM cronsensus_occurrences AS b
    WHERE b.id = o.parent AND (b.finished_at IS NULL OR b.finished_at >= {part: prune_before})))

-- part: batch_of_job_is_old
(o.parent IS NULL OR NOT EXISTS (SELECT 1 FROM cronsensus_occurrences AS b
    WHERE b.id = o.parent AND (b.finished_at IS NULL OR b.finished_at >= :ended)))

-- part: select_pauses_first
SELECT

-- part: select_pauses_first [mysql]
SELECT STRAIGHT_JOIN

-- name: earliest_dependent
-- types: never bigint
-- Read when the earliest parked downstream run was created: its upstreams are needed. Race: one is created meanwhile; what it needs is too young to be pruned.
SELECT min(o.created_at) AS created_at
FROM cronsensus_occurrences AS o {index: parked}
WHERE o.namespace = :space AND o.parked_on IS NOT NULL AND o.state = 'pending' AND +o.due_at = :never
    AND o.listed IS NULL;

-- name: old_occurrences
-- types: before bigint, now bigint, waiting_since bigint, least bigint, most bigint, size bigint
-- Find occurrences that ended before a moment, or longer ago than their job's keep. Occurrences above the watermark stay: their keys keep a later fire from creating them again. Items of a batch that is not over, or not for as long, stay too. Unless somebody gave a moment, occurrences that an open one needs stay: those that existed when the earliest parked dependent was created, and a batch with its items while its retry is open, or was retried itself. The namespace is hidden in an expression, so that jobs are read by id: by an index on it, all old rows would be sorted to find the first thousand. Race: a batch is retried after this has found it; the retry then fails, since its items are gone. A final state has no exit, and a watermark only rises.
SELECT o.id, o.job_id, o.scheduled_for AS last,
    CASE WHEN o.scheduled_for IS NOT NULL AND o.finished_at >= {part: needed_from} {part: or_retry_is_open} AS needed
FROM cronsensus_jobs AS j
JOIN cronsensus_occurrences AS o ON o.job_id = j.id
WHERE coalesce(j.namespace, '') = :space AND o.finished_at IS NOT NULL AND o.finished_at < {part: prune_before}
    AND (o.scheduled_for IS NULL OR o.scheduled_for <= j.watermark) AND {part: batch_is_old}
    AND (:before IS NOT NULL OR 0 = CASE WHEN o.scheduled_for IS NOT NULL AND o.finished_at >= {part: needed_from} {part: or_retry_is_open})
ORDER BY j.id, o.finished_at, o.id
LIMIT :size;

-- name: old_ranges
-- types: before bigint, now bigint, waiting_since bigint, least bigint, most bigint, size bigint
-- Find verdict ranges that ended as long ago. Race: none, a range never changes.
SELECT v.id, v.job_id, v."last", CASE WHEN v."last" >= {part: needed_from} THEN 1 ELSE 0 END AS needed
FROM cronsensus_jobs AS j
JOIN cronsensus_verdicts AS v ON v.job_id = j.id
WHERE coalesce(j.namespace, '') = :space AND v."last" < {part: prune_before}
    AND (:before IS NOT NULL OR 0 = CASE WHEN v."last" >= {part: needed_from} THEN 1 ELSE 0 END)
ORDER BY j.id, v."last", v.id
LIMIT :size;

-- name: jobs_with_old
-- types: before bigint, now bigint, waiting_since bigint, least bigint, most bigint
-- Find jobs with an occurrence that ended as long ago, and the bounds for each job; one index seek per job. Race: none, a final state has no exit.
SELECT j.id, {part: prune_before} AS ended, {part: needed_from} AS needed_from, j.watermark
FROM (SELECT o.job_id, min(o.finished_at) AS ended FROM cronsensus_occurrences AS o {index: final}
    WHERE o.finished_at IS NOT NULL GROUP BY o.job_id) AS earliest
JOIN cronsensus_jobs AS j ON j.id = earliest.job_id
WHERE coalesce(j.namespace, '') = :space AND earliest.ended < {part: prune_before}
ORDER BY j.id;

-- name: old_of_job
-- types: before bigint, ended bigint, needed_from bigint, passed bigint, size bigint
-- Find occurrences of a job that ended before a moment. Race: as for all jobs.
SELECT o.id, o.job_id, o.scheduled_for AS last,
    CASE WHEN o.scheduled_for IS NOT NULL AND o.finished_at >= :needed_from {part: or_retry_is_open} AS needed
FROM cronsensus_occurrences AS o {index: final}
WHERE o.job_id = :job AND o.finished_at IS NOT NULL AND o.finished_at < :ended
    AND (o.scheduled_for IS NULL OR o.scheduled_for <= :passed) AND {part: batch_of_job_is_old}
    AND (:before IS NOT NULL
        OR 0 = CASE WHEN o.scheduled_for IS NOT NULL AND o.finished_at >= :needed_from {part: or_retry_is_open})
ORDER BY o.finished_at, o.id
LIMIT :size;

-- name: jobs_with_old_ranges
-- types: before bigint, now bigint, waiting_since bigint, least bigint, most bigint
-- Find jobs with a range that ended as long ago. Race: none, a range never changes.
SELECT j.id, {part: prune_before} AS ended, {part: needed_from} AS needed_from
FROM (SELECT v.job_id, min(v."last") AS ended FROM cronsensus_verdicts AS v GROUP BY v.job_id) AS earliest
JOIN cronsensus_jobs AS j ON j.id = earliest.job_id
WHERE coalesce(j.namespace, '') = :space AND earliest.ended < {part: prune_before}
ORDER BY j.id;

-- name: old_ranges_of_job
-- types: before bigint, ended bigint, needed_from bigint, size bigint
-- Find ranges of a job that ended before a moment. Race: none, a range never changes.
SELECT v.id, v.job_id, v."last", CASE WHEN v."last" >= :needed_from THEN 1 ELSE 0 END AS needed
FROM cronsensus_verdicts AS v
WHERE v.job_id = :job AND v."last" < :ended
    AND (:before IS NOT NULL OR 0 = CASE WHEN v."last" >= :needed_from THEN 1 ELSE 0 END)
ORDER BY v."last", v.id
LIMIT :size;

-- name: old_sessions
-- types: size bigint
-- Find sessions that ended before a moment. Race: none, an ended session never comes back.
SELECT s.id FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.ended_at IS NOT NULL AND s.ended_at < :ended
LIMIT :size;

-- name: oldest_trail
-- types: size bigint
-- Read the oldest entries of the trail by number, which is the order of the index. Race: none, an entry never changes.
SELECT t.id, t.at FROM cronsensus_trail AS t WHERE t.namespace = :space ORDER BY t.id LIMIT :size;

-- name: lock_pruned_jobs
-- Lock jobs. Race: two nodes prune, or one acquires what the other deletes; they lock in the order of ids, so they wait for each other.
SELECT j.id FROM cronsensus_jobs AS j {by_id} WHERE j.id IN :ids ORDER BY j.id {for_update};

-- name: raise_horizons
-- rows: pruned bigint, job bigint
-- Raise horizons over deleted rows. Race: two nodes prune; the jobs are locked, and the condition allows a horizon only to rise.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET horizon = given.pruned
{rows_last}
WHERE j.id = given.job AND (j.horizon IS NULL OR j.horizon < given.pruned);

-- name: delete_logs
-- Delete the log lines of occurrences. Race: none, their occurrences are locked, or final for ever.
DELETE FROM cronsensus_logs WHERE occurrence_id IN :ids;

-- name: delete_runs
-- Delete the runs of occurrences. Race: as above.
DELETE FROM cronsensus_runs WHERE occurrence_id IN :ids;

-- name: delete_runs [mysql]
-- The same. Race: as above. With statistics from when the table was small, MySQL would read and lock all of its rows.
DELETE /*+ INDEX(cronsensus_runs cronsensus_runs_of_occurrence) */ FROM cronsensus_runs WHERE occurrence_id IN :ids;

-- name: delete_occurrences
-- Delete occurrences in any state. Race: none, they are locked, and the number of rows is checked.
DELETE FROM cronsensus_occurrences WHERE id IN :ids;

-- name: delete_final
-- Delete occurrences. Race: two nodes prune; rows that are gone stay gone, and the condition checks whether they ended.
DELETE FROM cronsensus_occurrences WHERE id IN :ids AND finished_at IS NOT NULL;

-- name: delete_ranges
-- Delete ranges of times. Race: as above.
DELETE FROM cronsensus_verdicts WHERE id IN :ids;

-- name: delete_sessions
-- Delete sessions. Race: as above.
DELETE FROM cronsensus_sessions WHERE id IN :ids AND ended_at IS NOT NULL;

-- name: delete_trail
-- Delete entries of the trail. Race: as above.
DELETE FROM cronsensus_trail WHERE id IN :ids;

-- name: jobs_with_old_eras
-- types: before bigint, now bigint, least bigint, most bigint, size bigint
-- Find living jobs with a replaced era without undecided times; two seeks for each. Race: a plan, or a definition; the job is locked, and its undecided times are checked again.
SELECT j.id
FROM cronsensus_jobs AS j {along: jobs_redefined}
WHERE j.namespace = :space AND j.revision > 1 AND j.retired_at IS NULL
    AND (SELECT min(f.since) FROM cronsensus_eras AS f WHERE f.job_id = j.id)
        < (SELECT max(e.since) FROM cronsensus_eras AS e WHERE e.job_id = j.id AND e.since < {part: prune_before}
            AND (j.next_due IS NULL OR e.since <= j.watermark OR e.since < j.next_due))
ORDER BY j.id
LIMIT :size;

-- name: old_pauses
-- types: before bigint, now bigint, least bigint, most bigint, size bigint
-- Find pauses of living jobs that ended as long ago, without undecided times. Race: none, there are none later: the watermark only rises, and a new definition begins after it. MySQL is made to start from the pauses, which are few.
{part: select_pauses_first} p.id
FROM cronsensus_pauses AS p
JOIN cronsensus_jobs AS j ON j.id = p.job_id
WHERE j.namespace = :space AND j.retired_at IS NULL AND p."end" IS NOT NULL AND p."end" < {part: prune_before}
    AND (j.next_due IS NULL OR p."end" <= j.watermark OR p."end" < j.next_due)
ORDER BY p.id
LIMIT :size;

-- name: long_retired
-- types: ended bigint, size bigint
-- Find jobs that were retired before a moment, without any other rows. Race: one is defined again; it is locked and checked again.
SELECT j.id
FROM cronsensus_jobs AS j {along: jobs_retired}
WHERE j.namespace = :space AND j.retired_at IS NOT NULL AND j.retired_at < :ended AND j.waiting_until IS NULL
    AND NOT EXISTS (SELECT 1 FROM cronsensus_occurrences AS o WHERE o.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM cronsensus_verdicts AS v WHERE v.job_id = j.id)
ORDER BY j.id
LIMIT :size;

-- name: lock_long_retired
-- Lock those jobs that were retired before a moment. Race: one is defined again; if before the lock, it is not found; if after the commit, it is a new job.
SELECT j.id
FROM cronsensus_jobs AS j {by_id}
WHERE j.id IN :ids AND j.retired_at IS NOT NULL AND j.retired_at < :ended AND j.waiting_until IS NULL
ORDER BY j.id
{for_update};

-- name: jobs_with_rows
-- Find jobs that still have an occurrence or a verdict range. Race: the jobs are locked by the statement before, so none is added meanwhile.
SELECT o.job_id FROM cronsensus_occurrences AS o WHERE o.job_id IN :ids
UNION
SELECT v.job_id FROM cronsensus_verdicts AS v WHERE v.job_id IN :ids;

-- name: delete_eras
-- Delete the eras of jobs. Race: none, the jobs are locked.
DELETE FROM cronsensus_eras WHERE job_id IN :ids;

-- name: delete_pauses_of
-- Delete the pauses of jobs. Race: none, the jobs are locked.
DELETE FROM cronsensus_pauses WHERE job_id IN :ids;

-- name: delete_jobs
-- Delete jobs. Race: none, they are locked, and the number of rows is checked.
DELETE FROM cronsensus_jobs WHERE id IN :ids;

-- name: lock_with_eras
-- Lock living jobs, and read up to when their times are decided. Race: a plan, or a definition; one waits for the other.
SELECT j.id, j.keep, j.watermark, j.next_due
FROM cronsensus_jobs AS j {by_id}
WHERE j.id IN :ids AND j.retired_at IS NULL
ORDER BY j.id
{for_update};

-- name: era_beginnings
-- Read when the eras of jobs began. Race: the jobs are locked by the statement before, so no other begins meanwhile.
SELECT e.job_id, e.since FROM cronsensus_eras AS e WHERE e.job_id IN :ids;

-- name: raise_over_deleted_eras
-- rows: moved bigint, job bigint
-- Raise watermarks and horizons over deleted eras. Race: none, the jobs are locked; the number of rows is checked.
UPDATE {rows_first} cronsensus_jobs AS j {by_id}
SET watermark = CASE WHEN j.watermark < given.moved THEN given.moved ELSE j.watermark END,
    horizon = CASE WHEN j.horizon IS NOT NULL AND j.horizon > given.moved THEN j.horizon ELSE given.moved END
{rows_last}
WHERE j.id = given.job;

-- name: delete_eras_before
-- Delete the eras of a job that began before one. Race: none, the job is locked.
DELETE FROM cronsensus_eras WHERE job_id = :job AND since < :moved;

-- name: delete_pauses
-- Delete pauses. Race: two nodes prune; rows that are gone stay gone.
DELETE FROM cronsensus_pauses WHERE id IN :ids;

-- name: replaced_releases
-- types: ended bigint, size bigint
-- Find replaced releases without an open session, except the oldest, whose row serialises definitions and new sessions. Race: a session of one opens; that is before or after the deletion, which checks again.
SELECT r.id, r."release"
FROM cronsensus_releases AS r
WHERE r.namespace = :space
    AND r.id > (SELECT min(f.id) FROM cronsensus_releases AS f WHERE f.namespace = :space)
    AND r.id < (SELECT max(l.id) FROM cronsensus_releases AS l WHERE l.namespace = :space AND l.first_seen_at < :ended)
    AND NOT EXISTS (SELECT 1 FROM cronsensus_sessions AS s
        WHERE s.namespace = r.namespace AND s."release" = r."release" AND s.ended_at IS NULL)
ORDER BY r.id
LIMIT :size;

-- name: delete_releases
-- Delete releases. Race: none, no session begins meanwhile.
DELETE FROM cronsensus_releases WHERE id IN :ids;

-- name: any_lock_ran_out
-- Read whether a lock without a session ran out. Race: none, it only shows whether a search is worthwhile.
SELECT l.name FROM cronsensus_locks AS l
WHERE l.namespace = :space AND l.session IS NULL AND (l.epoch <> :boot OR l.lease_until <= :moment)
LIMIT 1;

-- name: delete_locks
-- Delete locks without a session that ran out. Race: it is granted again; the condition checks whether it ran out, by the clock or in another epoch: then no process can extend or release it.
DELETE FROM cronsensus_locks
WHERE namespace = :space AND session IS NULL AND (epoch <> :boot OR lease_until <= :moment);
