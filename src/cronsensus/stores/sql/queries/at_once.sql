-- The usual steps of a job in one statement each, for PostgreSQL; if the step is not as usual, it writes nothing.
-- Aliases: o: occurrences, j: jobs, s: sessions. Words in braces and `given` are explained in queries.py.

-- part: is_pending
o.namespace = :space AND o.state = 'pending' {listed}

-- part: levels
levels (level) AS (
    SELECT (SELECT o.level FROM cronsensus_occurrences AS o
        WHERE {part: is_pending} ORDER BY o.level DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT o.level FROM cronsensus_occurrences AS o
        WHERE {part: is_pending} AND o.level < levels.level ORDER BY o.level DESC LIMIT 1)
    FROM levels WHERE levels.level IS NOT NULL
)

-- part: something_is_due
SELECT 1 FROM (
    WITH RECURSIVE {part: levels}
    SELECT 1 FROM levels
    WHERE levels.level IS NOT NULL AND (SELECT 1 FROM cronsensus_occurrences AS o
        WHERE {part: is_pending} AND o.level = levels.level AND o.due_at <= :until LIMIT 1) IS NOT NULL
) AS due

-- name: close_one [postgres]
-- types: now bigint, state text, reason text, result text, error text, ran bigint
-- Close an occurrence and record its attempt, in one statement. Race: a takeover; the row is checked again for token and state once it is locked.
WITH clock AS MATERIALIZED (SELECT :now AS now),
closed AS (
    UPDATE cronsensus_occurrences AS o
    SET state = :state, reason = :reason, result = :result, error = :error, finished_at = clock.now, reserved = NULL,
        started_at = CASE WHEN o.reserved = 1 THEN greatest(o.started_at, clock.now - :ran) ELSE o.started_at END
    FROM clock
    WHERE o.id = :occurrence AND o.namespace = :space AND o.token = :token AND o.session = :session
        AND o.state = 'running'
    RETURNING o.token, o.id, o.attempt, o.session, o.node, o.started_at, o.finished_at
)
INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, node, started_at, finished_at, "end", reason, error)
SELECT closed.token, closed.id, closed.attempt, closed.session, closed.node,
    coalesce(closed.started_at, closed.finished_at), closed.finished_at, :state, :reason, :error
FROM closed;

-- name: fire_one [postgres]
-- types: now bigint, until bigint, moment bigint, lease bigint, decided bigint, following bigint, seen bigint, active bigint, valid bigint, due bigint, expires bigint, nominal bigint, key text, payload text, definition text, serial smallint, priority integer, level bigint, floor bigint
-- Carry out a plan with one occurrence, and start that. Race: another node carries out the same plan, or an occurrence becomes pending; the statement before, in the same trip, has locked the job, so this one sees what was committed before, and writes nothing if something has changed. The session is checked again once its row is locked: if it is over by then, this fails, and nothing is written.
WITH clock AS MATERIALIZED (SELECT :now AS now, :until AS until),
unchanged AS MATERIALIZED (
    SELECT s.node, clock.now
    FROM clock
    JOIN cronsensus_jobs AS j ON j.id = :job AND j.namespace = :space
    JOIN cronsensus_sessions AS s ON s.id = :session AND s.namespace = :space
    WHERE j.watermark = :seen AND j.revision = :revised AND j.paused_at IS NULL AND j.retired_at IS NULL
        AND concat(j.digest, ':', j.revision, ':', j.defined_at) = :definition
        AND j.watermark <= :decided AND :valid <= clock.until AND :due <= clock.until
        AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
        AND :active = (SELECT count(*) FROM cronsensus_occurrences AS o
            WHERE o.job_id = :job AND o.serial = 1 AND o.finished_at IS NULL)
        AND NOT EXISTS ({part: something_is_due})
),
moved_watermark AS (
    UPDATE cronsensus_jobs AS j
    SET watermark = :decided, next_due = :following, wake_at = :following
    FROM unchanged
    WHERE j.id = :job
    RETURNING 1
),
token AS MATERIALIZED (SELECT cronsensus_take_tokens({sequence}, 1, :floor) AS value FROM unchanged),
new_run AS (
    INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, scheduled_for, due_at,
        expires_at, attempt, crashes, failures, token, session, node, created_at, started_at, payload)
    SELECT :space, :job, :key, 'schedule', 'running', :serial, :priority, :level, :nominal, :due, :expires, 1, 0, 0, token.value,
        :session, unchanged.node, unchanged.now, greatest(unchanged.now, :due), :payload
    FROM unchanged, token
    {absent: job_id, key}
    RETURNING id, token
),
renewed_session AS (
    UPDATE cronsensus_sessions AS s
    SET lease_until = :lease, renewed_at = unchanged.now
    FROM unchanged, new_run
    WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
    RETURNING 1
)
SELECT unchanged.now, new_run.id, new_run.token,
    1 / (CASE WHEN new_run.id IS NULL OR EXISTS (SELECT 1 FROM renewed_session) THEN 1 ELSE 0 END) AS lives
FROM unchanged LEFT JOIN new_run ON TRUE;

-- name: enqueue_one [postgres]
-- types: job bigint, job_name text, definition text, key text, origin text, serial smallint, priority integer, level bigint, payload text, now bigint
-- Create an occurrence that is due now. Race: another caller has the key; the unique key of (job, key) admits only one, and if it exists nothing is written. The job is retired or defined anew in this moment; it is not locked, because the key may be in a transaction of a user's that stays open, so a run of the old definition may be made, and that of a retired job is cancelled later.
WITH unchanged_job AS MATERIALIZED (
    SELECT j.id FROM cronsensus_jobs AS j
    WHERE j.id = :job AND j.namespace = :space AND j.name = :job_name AND j.retired_at IS NULL
        AND concat(j.digest, ':', j.revision, ':', j.defined_at) = :definition
),
clock AS MATERIALIZED (SELECT unchanged_job.id, :now AS now FROM unchanged_job)
INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, due_at, attempt, crashes,
    failures, token, created_at, payload)
SELECT :space, clock.id, :key, :origin, 'pending', :serial, :priority, :level, clock.now, 0, 0, 0, 0, clock.now, :payload FROM clock
{absent: job_id, key}
RETURNING id, created_at;

-- name: claim_due [postgres]
-- types: now bigint, until bigint, moment bigint, begun bigint, lease bigint, size bigint, floor bigint
-- Start all due occurrences, if there are no more than the size, all of known definitions, none subject to overlap and none expired. Race: two nodes claim; rows that another transaction has locked are skipped, and each row is checked again once it is locked, by the part that locks it. The session is checked again once its row is locked, last: if it is over by then, this fails, and nothing is written.
WITH RECURSIVE clock AS MATERIALIZED (SELECT :now AS now, :until AS until),
{part: levels},
candidates AS MATERIALIZED (
    SELECT due.id, due.serial = 0 AND (due.expires_at IS NULL OR due.attempt > 0 OR due.expires_at >= clock.now)
        AND concat(j.id, ' ', j.digest, ':', j.revision, ':', j.defined_at) IN :known AS usual
    FROM clock
    CROSS JOIN levels
    CROSS JOIN LATERAL (
        SELECT o.id, o.job_id, o.serial, o.expires_at, o.attempt FROM cronsensus_occurrences AS o
        WHERE {part: is_pending} AND o.level = levels.level AND o.due_at <= (SELECT clock.until FROM clock)
        ORDER BY o.due_at, o.id LIMIT :size + 1
    ) AS due
    LEFT JOIN {job: due.job_id}
    LIMIT :size + 1
),
own_session AS MATERIALIZED (
    SELECT s.node FROM cronsensus_sessions AS s
    WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
),
decision AS MATERIALIZED (
    SELECT own_session.node, count(candidates.id) <= :size AND coalesce(bool_and(candidates.usual), TRUE) AS usual
    FROM own_session LEFT JOIN candidates ON TRUE
    GROUP BY own_session.node
),
locked AS MATERIALIZED (
    SELECT o.id, o.level, o.due_at
    FROM decision CROSS JOIN clock CROSS JOIN candidates JOIN cronsensus_occurrences AS o ON o.id = candidates.id
    WHERE decision.usual AND o.state = 'pending' AND o.due_at <= clock.until
    FOR UPDATE OF o SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT locked.id, count(*) OVER () AS many, row_number() OVER (ORDER BY locked.level DESC, locked.due_at, locked.id) AS place
    FROM locked
),
token AS MATERIALIZED (
    SELECT cronsensus_take_tokens({sequence}, numbered.many::integer, :floor) AS last FROM numbered WHERE numbered.place = 1
),
started AS (
    UPDATE cronsensus_occurrences AS o
    SET state = 'running', attempt = o.attempt + 1, token = token.last - numbered.many + numbered.place,
        session = :session, node = decision.node, started_at = greatest(:begun, o.due_at), reason = NULL, error = NULL,
        progress_done = NULL, progress_total = NULL
    FROM numbered, token, decision
    WHERE o.id = numbered.id
    RETURNING o.id, o.job_id, o."key", o.origin, o.scheduled_for, o.due_at, o.attempt, o.crashes, o.failures, o.payload,
        o.parent, o.listed, o.created_at, o.note, o.token
),
renewed_session AS (
    UPDATE cronsensus_sessions AS s
    SET lease_until = :lease, renewed_at = clock.now
    FROM clock
    WHERE EXISTS (SELECT 1 FROM started)
        AND s.id = :session AND s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment
    RETURNING 1
)
SELECT decision.usual, clock.now, started.*,
    1 / (CASE WHEN started.id IS NULL OR EXISTS (SELECT 1 FROM renewed_session) THEN 1 ELSE 0 END) AS lives
FROM decision CROSS JOIN clock LEFT JOIN started ON TRUE
ORDER BY started.token;
