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

-- name: note_sign
-- Write down whether a session shows a sign of life. Race: its end by another node; then nothing is written.
UPDATE cronsensus_sessions SET shown = :shown WHERE id = :session AND namespace = :space AND ended_at IS NULL;

-- name: signs
-- Read what open sessions say of their signs of life. Race: one that is opened meanwhile is asked for by the next look.
SELECT s.id, s.number, s.shown
FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.id IN :sessions AND s.ended_at IS NULL;

-- name: newest_session
-- Read the number of the newest session. Race: one that is committed later, and has a lower number, counts as older.
SELECT coalesce(max(s.number), 0) AS number FROM cronsensus_sessions AS s;

-- name: held_signs [postgres]
-- Read which advisory locks are held, also those that are waited for. Race: none, a lock tells of its own moment.
SELECT here.copies, held.sign
FROM (SELECT pg_is_in_recovery() AS copies) AS here
LEFT JOIN (
    SELECT DISTINCT (l.classid::bigint << 32) | l.objid::bigint AS sign
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
) AS held ON held.sign IN :signs;

-- name: held_signs [mysql]
-- rows: place integer, one text, two text, three text, four text
-- Read of which sessions a lock is held. Race: none, a lock tells of its own moment.
SELECT here.thread, here.copies, given.place,
    coalesce(is_used_lock(given.one), is_used_lock(given.two), is_used_lock(given.three), is_used_lock(given.four)) AS holder
FROM {rows_first} (SELECT connection_id() AS thread, @@GLOBAL.read_only AS copies) AS here;
