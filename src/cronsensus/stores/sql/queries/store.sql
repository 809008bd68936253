-- name: which_store
-- Read the random number that was made with the tables, and when the first of them were made. Race: none, neither changes.
SELECT (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS id,
    (SELECT min(v.applied_at) FROM cronsensus_schema AS v) AS since;

-- name: touch
-- Write an existing value again, to find out whether writing is allowed. Race: none.
UPDATE cronsensus_counters SET value = value WHERE name = 'token';

-- name: notify_nodes [postgres]
-- types: channel text, sender text
-- Notify the listeners. Race: none, a notification says only that there may be something new.
SELECT pg_notify(:channel, :sender);

-- name: has_schema
-- Read whether the table of versions exists. Race: none, where the lock of migrations is held; else it may be made in this moment.
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'cronsensus_schema';

-- name: has_schema [postgres]
-- types: place text
-- Read whether the table of versions exists. Race: none, where the lock of migrations is held; else it may be made in this moment.
SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :place AND c.relname = 'cronsensus_schema';

-- name: has_schema [sqlite]
-- Read whether the table of versions exists. Race: none, where the write lock is held; else it may be made in this moment.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'cronsensus_schema';

-- name: schema_version
-- Read the version of the schema. Race: as of has_schema.
SELECT max(v.version) AS version FROM cronsensus_schema AS v;
