-- part: waiting
o.namespace = :space AND o.state = 'pending' {listed}

-- part: something_waits
SELECT 1 FROM (
    WITH RECURSIVE levels (priority) AS (
        SELECT (SELECT o.priority FROM cronsensus_occurrences AS o
            WHERE {part: waiting} ORDER BY o.priority DESC LIMIT 1)
        UNION ALL
        SELECT (SELECT o.priority FROM cronsensus_occurrences AS o
            WHERE {part: waiting} AND o.priority < levels.priority ORDER BY o.priority DESC LIMIT 1)
        FROM levels WHERE levels.priority IS NOT NULL
    )
    SELECT 1 FROM levels
    WHERE levels.priority IS NOT NULL AND (SELECT 1 FROM cronsensus_occurrences AS o
        WHERE {part: waiting} AND o.priority = levels.priority AND o.due_at <= :until LIMIT 1) IS NOT NULL
) AS due

-- name: close_one [postgres]
-- types: now bigint, became text, because text, gave text, wrong text, ran bigint
-- Close an occurrence and record its attempt, in one statement. Race: a takeover; the row is asked again for token and state once it is locked.
WITH asked AS MATERIALIZED (SELECT :now AS now),
closed AS (
    UPDATE cronsensus_occurrences AS o
    SET state = :became, reason = :because, result = :gave, error = :wrong, finished_at = asked.now,
        started_at = CASE WHEN o.reason = 'reserved' THEN greatest(o.started_at, asked.now - :ran) ELSE o.started_at END
    FROM asked
    WHERE o.id = :run AND o.namespace = :space AND o.token = :held AND o.session = :whose AND o.state = 'running'
    RETURNING o.token, o.id, o.attempt, o.session, o.node, o.started_at, o.finished_at
)
INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, node, started_at, finished_at, "end", reason, error)
SELECT closed.token, closed.id, closed.attempt, closed.session, closed.node,
    coalesce(closed.started_at, closed.finished_at), closed.finished_at, :became, :because, :wrong
FROM closed;

-- name: fire_one [postgres]
-- types: now bigint, until bigint, moment bigint, lease bigint, decided bigint, following bigint, seen bigint, active bigint, valid bigint, due bigint, expires bigint, nominal bigint, key text, payload text, definition text, serial smallint, priority integer, floor bigint
-- Carry out a plan with one occurrence, and start that. Race: another node carries out the same plan, or something begins to wait; the statement before, in the same trip, has locked the job, so this one sees what was committed before, and nothing happens if the plan does not hold. The session is asked again once its row is locked: if it is over by then, this fails, and nothing is written.
WITH asked AS MATERIALIZED (SELECT :now AS now, :until AS until),
held AS MATERIALIZED (
    SELECT s.node, asked.now
    FROM asked
    JOIN cronsensus_jobs AS j ON j.id = :job AND j.namespace = :space
    JOIN cronsensus_sessions AS s ON s.id = :session AND s.namespace = :space
    WHERE j.watermark = :seen AND j.revision = :revised AND j.paused_at IS NULL AND j.retired_at IS NULL
        AND concat(j.digest, ':', j.revision, ':', coalesce(j.defined_at, 0)) = :definition
        AND j.watermark <= :decided AND :valid <= asked.until AND :due <= asked.until
        AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
        AND :active = (SELECT count(*) FROM cronsensus_occurrences AS o
            WHERE o.job_id = :job AND o.serial = 1 AND o.finished_at IS NULL)
        AND NOT EXISTS ({part: something_waits})
),
moved AS (
    UPDATE cronsensus_jobs AS j
    SET watermark = :decided, next_due = :following, wake_at = :following
    FROM held
    WHERE j.id = :job
    RETURNING 1
),
token AS MATERIALIZED (SELECT cronsensus_take_tokens({sequence}, 1, :floor) AS given FROM held),
begun AS (
    INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, scheduled_for, due_at,
        expires_at, attempt, crashes, failures, token, session, node, created_at, started_at, payload)
    SELECT :space, :job, :key, 'schedule', 'running', :serial, :priority, :nominal, :due, :expires, 1, 0, 0, token.given,
        :session, held.node, held.now, greatest(held.now, :due), :payload
    FROM held, token
    {absent: job_id, key}
    RETURNING id, token
),
prolonged AS (
    UPDATE cronsensus_sessions AS s
    SET lease_until = :lease, renewed_at = held.now
    FROM held, begun
    WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
    RETURNING 1
)
SELECT held.now, begun.id, begun.token,
    1 / (CASE WHEN begun.id IS NULL OR EXISTS (SELECT 1 FROM prolonged) THEN 1 ELSE 0 END) AS lives
FROM held LEFT JOIN begun ON TRUE;
