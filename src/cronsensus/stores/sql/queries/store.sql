-- name: which_store
-- Read the random number that was made with the tables, and when the first of them were made. Race: none, neither changes.
SELECT (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS id,
    (SELECT min(v.applied_at) FROM cronsensus_schema AS v) AS since;

-- name: touch
-- Write what is there already, to find out whether anything may be written. Race: none.
UPDATE cronsensus_counters SET value = value WHERE name = 'token';

-- name: hint [postgres]
-- types: channel text, sender text
-- Notify the listeners. Race: none, a notification says only that there may be something new.
SELECT pg_notify(:channel, :sender);
