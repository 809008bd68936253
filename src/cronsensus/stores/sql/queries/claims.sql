-- Claiming work: candidates, limits, expiry, tokens and the start of runs.
-- Aliases: o: occurrences, j: jobs, s: sessions. Words in braces and `given` are explained in queries.py.

-- part: is_pending
o.namespace = :space AND o.state = 'pending' {listed}

-- part: with_levels
WITH RECURSIVE levels (level) AS (
    SELECT (SELECT o.level FROM cronsensus_occurrences AS o WHERE {part: is_pending} ORDER BY o.level DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT o.level FROM cronsensus_occurrences AS o WHERE {part: is_pending} AND o.level < levels.level
        ORDER BY o.level DESC LIMIT 1)
    FROM levels WHERE levels.level IS NOT NULL
)

-- part: with_levels [mysql]

-- part: levels
levels

-- part: levels [mysql]
(
    SELECT o.level, min(o.due_at) AS earliest FROM cronsensus_occurrences AS o {index: pending}
    WHERE {part: is_pending}
    GROUP BY o.namespace, o.state, o.level
) AS levels

-- part: level_is_due
levels.level IS NOT NULL AND (SELECT 1 FROM cronsensus_occurrences AS o
    WHERE {part: is_pending} AND o.level = levels.level AND o.due_at <= :until LIMIT 1) IS NOT NULL

-- part: level_is_due [mysql]
levels.earliest <= :until

-- part: highest_first

-- part: highest_first [mysql]
ORDER BY levels.level DESC

-- part: entry
o.id, o.job_id, o.serial, o."key", o.origin, o.scheduled_for, o.due_at, o.attempt, o.crashes, o.failures,
o.payload, o.level, o.parent, o.listed, o.created_at, o.note

-- part: first_in_turn
SELECT min(o.id) FROM cronsensus_occurrences AS o
WHERE o.job_id = page.job_id AND o.serial = 1 AND o.finished_at IS NULL AND o.state = 'pending'

-- part: first_in_turn [mysql]
SELECT o.id FROM cronsensus_occurrences AS o {index: serial}
WHERE o.job_id = page.job_id AND o.serial = 1 AND o.finished_at IS NULL AND o.state = 'pending'
ORDER BY o.job_id, o.serial, o.finished_at, o.state, o.id LIMIT 1

-- part: job_and_turn
j.id AS job, j.revision, j.digest, j.defined_at, j.function, j.concurrency,
CASE WHEN page.serial = 1 THEN ({part: first_in_turn}) END AS head,
CASE WHEN page.serial = 1 THEN (SELECT 1 FROM cronsensus_occurrences AS o {index: serial}
    WHERE o.job_id = page.job_id AND o.serial = 1 AND o.finished_at IS NULL AND o.state = 'running'
    LIMIT 1) END AS busy

-- name: read_claim_opening
-- Read the session, whether anything has expired, and the levels that have work due. MySQL does not seek by a value of an outer row, but its GROUP BY seeks. Race: others write meanwhile; the session is locked and checked again before the commit, and work that is gone by then is not found.
{part: with_levels}
SELECT s.node, CASE WHEN s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment THEN 1 ELSE 0 END AS alive,
    CASE WHEN EXISTS (SELECT 1 FROM cronsensus_occurrences AS o {index: expiring}
        WHERE o.namespace = :space AND o.state = 'pending' AND o.attempt = 0 AND o.expires_at IS NOT NULL
            AND o.expires_at < :now) THEN 1 ELSE 0 END AS late,
    levels.level
FROM cronsensus_sessions AS s
LEFT JOIN {part: levels} ON {part: level_is_due}
WHERE s.id = :session AND s.namespace = :space
ORDER BY levels.level DESC;

-- name: candidates
-- types: size bigint
-- Lock the first entries that are due at the highest level that has any, and read their jobs and whose turn it is in them. MySQL 9 follows the index to the first of a line only if the order names all of its columns. Race: two nodes claim; what another transaction has locked is passed over. A turn may be older than the lock: an entry that had its turn before it was locked, and is still pending, still has it.
SELECT page.*, {part: job_and_turn}
FROM (
    SELECT {part: entry}
    FROM cronsensus_occurrences AS o {index: pending}
    WHERE {part: is_pending} AND o.due_at <= :until
        AND (o.expires_at IS NULL OR o.expires_at >= :now OR o.attempt > 0)
        AND o.level = (
            {part: with_levels}
            SELECT levels.level FROM {part: levels} WHERE {part: level_is_due} {part: highest_first} LIMIT 1)
    ORDER BY o.due_at, o.id
    LIMIT :size
    {for_update} {skip_locked}
) AS page
LEFT JOIN {job: page.job_id}
ORDER BY page.due_at, page.id;

-- name: further_candidates
-- types: size bigint
-- Lock and read the next entries of a level, without some jobs; of jobs with overlap, only the entry whose turn it is. Race: as for the first entries.
SELECT page.*, {part: job_and_turn}
FROM (
    SELECT {part: entry}
    FROM cronsensus_occurrences AS o {index: pending}
    WHERE o.namespace = :space AND o.state = 'pending' {listed} AND o.level = :level AND o.due_at <= :until
        AND (o.expires_at IS NULL OR o.expires_at >= :now OR o.attempt > 0)
        AND o.due_at >= :after_due AND (o.due_at, o.id) > (:after_due, :after_id)
        AND o.job_id NOT IN :full
        AND (NOT (o.serial = 1 AND o.job_id IN :blocked) OR o.id IN :heads)
    ORDER BY o.due_at, o.id
    LIMIT :size
    {for_update} {skip_locked}
) AS page
LEFT JOIN {job: page.job_id}
ORDER BY page.due_at, page.id;

-- name: lock_limited
-- Lock jobs with a limit. Race: two nodes claim different occurrences of one job; they lock in the order of ids, so the second waits, and counts what the first has taken.
SELECT j.id FROM cronsensus_jobs AS j {by_id} WHERE j.id IN :ids ORDER BY j.id {for_no_key_update};

-- name: lock_more_limited
-- Lock jobs with a limit, for a claim that holds such locks already. Race: as above; but two claims could wait for each other, so locked jobs are skipped.
SELECT j.id FROM cronsensus_jobs AS j {by_id} WHERE j.id IN :ids ORDER BY j.id {for_no_key_update} {skip_locked};

-- name: count_running
-- Count the runs of jobs by session, and read whether each session is alive. Race: the jobs are locked by the statement before, so this sees what the claim took for which it waited.
SELECT o.job_id, o.session, count(*) AS runs,
    (SELECT CASE WHEN s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment THEN 1 ELSE 0 END
        FROM cronsensus_sessions AS s WHERE s.namespace = :space AND s.id = o.session) AS alive
FROM cronsensus_occurrences AS o {index: running}
WHERE o.namespace = :space AND o.state = 'running' {listed} AND o.job_id IN :ids
GROUP BY o.job_id, o.session;

-- name: lock_overdue_sessions
-- Lock sessions whose lease ran out. Race: one may be renewing it in this moment; then its row is locked, and its runs count.
SELECT s.id FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.id IN :holders AND s.ended_at IS NULL AND (s.epoch <> :boot OR s.lease_until <= :moment)
ORDER BY s.number
{for_update} {skip_locked};

-- name: lock_expired
-- types: size bigint
-- Lock occurrences that never started and are past their expiry. Race: another node closes them too; locked rows are skipped.
SELECT o.id FROM cronsensus_occurrences AS o {index: expiring}
WHERE o.namespace = :space AND o.state = 'pending' AND o.attempt = 0 AND o.expires_at IS NOT NULL AND o.expires_at < :now
ORDER BY o.expires_at
LIMIT :size
{for_update} {skip_locked};

-- name: close_expired
-- rows: ended bigint, occurrence bigint
-- Give the verdict missed(late). Race: none, the rows are locked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'missed', reason = 'late', finished_at = given.ended
{rows_last}
WHERE o.id = given.occurrence AND 'pending' = coalesce(o.state, '');

-- name: renew_claiming_session
-- Set the lease of a session that claims work. Race: its end by another node; the statement before has locked the row, this one reads the clock after that, and nothing is committed unless the session is alive.
UPDATE cronsensus_sessions
SET lease_until = :until, renewed_at = :now
WHERE id = :session AND namespace = :space AND ended_at IS NULL AND epoch = :boot AND lease_until > :moment;

-- name: take_tokens
-- Take fencing tokens, ascending. Race: two nodes take some; the counter's row is locked until the commit, which comes in the same trip.
UPDATE cronsensus_counters
SET value = CASE WHEN value >= :floor THEN value ELSE :floor END + :count
WHERE name = 'token';

-- name: take_tokens [mysql]
-- Take fencing tokens, ascending. Race: as above. The connection remembers the last one.
UPDATE cronsensus_counters SET value = LAST_INSERT_ID(GREATEST(value, :floor) + :count) WHERE name = 'token';

-- name: take_tokens [postgres]
-- types: count integer, floor bigint
-- Take fencing tokens, ascending. Race: two nodes take some; the function holds its own lock, and no longer than it runs (``postgres.tokens``).
SELECT cronsensus_take_tokens({sequence}, :count, :floor);

-- name: last_token
-- Read the last token that this transaction took. Race: none, it is this connection's own.
SELECT {last_token} AS last;

-- name: start_runs
-- types: session text, node text
-- rows: place bigint, started bigint, new_reserved smallint, occurrence bigint
-- Make occurrences running, each under a token of its own. Race: two nodes take one; the rows are locked, the condition checks again whether they are pending, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'running', attempt = o.attempt + 1, token = {last_token} - given.place, session = :session, node = :node,
    started_at = given.started, reserved = given.new_reserved, reason = NULL, error = NULL, progress_done = NULL,
    progress_total = NULL
{rows_last}
WHERE o.id = given.occurrence AND 'pending' = coalesce(o.state, '');
