-- name: lock_session
-- Lock the row of a session. Race: a claim of the same session, or its end by another node; each comes before the lock or after the commit.
SELECT s.id
FROM cronsensus_sessions AS s
WHERE s.id = :session AND s.namespace = :space
{for_update};

-- name: session_alive
-- Read a session that is alive. Race: the statement before has locked the row; this one reads the clock after that.
SELECT s.node
FROM cronsensus_sessions AS s
WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment;

-- name: renewing
-- Read whether a session is alive, what it is asked to do, and what it runs. Race: the statement before has locked the row; this one reads the clock, and sees the claims that the lock waited for.
SELECT CASE WHEN s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment THEN 1 ELSE 0 END AS alive,
    s.draining, coalesce(s.beats, 0) AS beats,
    (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS store,
    o.id, o.token, o.cancel_reason
FROM cronsensus_sessions AS s
LEFT JOIN cronsensus_occurrences AS o
    ON o.namespace = s.namespace AND o.session = s.id AND o.state = 'running' {listed}
WHERE s.id = :session AND s.namespace = :space
ORDER BY o.id;

-- name: identity
-- Read which store this is. Race: none, it never changes.
SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity';

-- name: renew
-- Set the lease of a session. Race: its end by another node; the row is locked, and the condition asks again whether it is open.
UPDATE cronsensus_sessions
SET lease_until = :until, renewed_at = :now, beats = :beat
WHERE id = :session AND namespace = :space AND ended_at IS NULL;
