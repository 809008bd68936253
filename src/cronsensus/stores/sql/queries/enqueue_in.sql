-- Enqueueing in a user's transaction.
-- Aliases: o: occurrences, j: jobs, c: counters. Words in braces and `given` are explained in queries.py.

-- name: enqueue_in [postgres]
-- types: now bigint, rows json, store bigint, started bigint, place text, space text, channel text, patience text, sure boolean, latest bigint
-- Create occurrences in a transaction of a user's, and notify nodes when it commits. It locks no job: it may stay open. Race: another open transaction has a key; the unique key of (job, key) lets this one wait for its end, for so long as it may, and where it commits nothing is written here. A job is retired or defined anew; nothing is written unless the definitions are those that were read, or were read a moment ago.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now,
        current_setting('lock_timeout') AS patience{also keyed: , set_config('lock_timeout', :patience, true) AS bounded}
),
requested AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows) AS given_row
        (job bigint, run_key text, priority integer, level bigint, delay bigint, due bigint, expires bigint, payload text, definition text)
),
facts AS MATERIALIZED (
    SELECT clock.now, clock.patience,
        coalesce((SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity'), 0) = :store
            AND (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint = :started
            AND current_database() = :place AS here,
        :sure OR NOT EXISTS (SELECT 1 FROM requested JOIN cronsensus_jobs AS j ON j.id = requested.job
            WHERE j.retired_at IS NOT NULL OR concat(j.digest, ':', j.revision, ':', j.defined_at) <> requested.definition) AS fresh
    FROM clock
),
created AS (
    INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, due_at, expires_at,
        attempt, crashes, failures, token, created_at, payload)
    SELECT :space, requested.job, requested.run_key, 'enqueue', 'pending', 0, requested.priority, requested.level,
        least(coalesce(requested.due, facts.now + requested.delay), :latest),
        least(coalesce(requested.due, facts.now + requested.delay) + requested.expires, :latest),
        0, 0, 0, 0, facts.now, requested.payload
    FROM facts CROSS JOIN requested WHERE facts.here AND facts.fresh
    ORDER BY requested.job, requested.run_key
    {absent: job_id, key}
    RETURNING id, job_id, "key"{also notify: , (SELECT pg_notify(:channel, ''))}
)
SELECT facts.here, facts.fresh, facts.now, created.id, created.job_id, created."key"{also keyed: , CASE WHEN (SELECT count(*) FROM created) >= 0 THEN set_config('lock_timeout', facts.patience, true) END AS restored}
FROM facts LEFT JOIN created ON TRUE;

-- name: which_database [postgres]
-- Read which store, server and database this is. Race: none, a server that starts again is another one.
SELECT (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS store,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started, current_database() AS place;

-- name: which_database [mysql]
-- Read which store and database this is. Race: none, neither changes.
SELECT (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS store, 0 AS started, DATABASE() AS place;

-- name: which_database [sqlite]
-- Read the same. Race: as above.
SELECT (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS store, 0 AS started,
    (SELECT d.file FROM pragma_database_list AS d WHERE d.name = 'main') AS place;

-- name: definitions_in [mysql]
-- Read, in a transaction of a user's, which store its connection leads to, and which definitions it has. Race: none, it locks nothing; a run of a job that is redefined meanwhile has the old arguments.
SELECT c.value AS store, DATABASE() AS place, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now, @@innodb_lock_wait_timeout AS patience,
    j.id, j.retired_at, j.digest, j.revision, j.defined_at
FROM cronsensus_counters AS c
LEFT JOIN cronsensus_jobs AS j ON j.id IN :jobs
WHERE c.name = 'identity';

-- name: definitions_in [sqlite]
-- Read the same; SQLite returns the path of its file, and the clock is the host's. Race: as above.
SELECT c.value AS store, (SELECT d.file FROM pragma_database_list AS d WHERE d.name = 'main') AS place, 0 AS now, 0 AS patience,
    j.id, j.retired_at, j.digest, j.revision, j.defined_at
FROM cronsensus_counters AS c
LEFT JOIN cronsensus_jobs AS j ON j.id IN :jobs
WHERE c.name = 'identity';

-- name: find_in
-- Read the occurrences of a job with some keys, in a user's transaction. Race: none; the INSERT checks the unique key.
SELECT o.id, o."key", o.state, o.payload FROM cronsensus_occurrences AS o WHERE o.job_id = :job AND o."key" IN :keys;

-- name: insert_in
-- rows: namespace text, job_id bigint, key text, origin text, serial smallint, priority integer, level bigint, due_at bigint, expires_at bigint, created_at bigint, payload text
-- Create occurrences in a transaction of a user's. Race: another one has a key; the unique key makes this one wait for its end, and fail if it commits.
INSERT INTO cronsensus_occurrences (namespace, job_id, "key", origin, state, serial, priority, level, due_at, expires_at, attempt,
    crashes, failures, token, created_at, payload)
{values: given.namespace, given.job_id, given.key, given.origin, 'pending', given.serial, given.priority, given.level, given.due_at, given.expires_at, 0, 0, 0, 0, given.created_at, given.payload};

-- name: wait_at_most [mysql]
-- Set how many seconds a statement of this connection waits for a row. Race: none.
SET SESSION innodb_lock_wait_timeout = :seconds;
