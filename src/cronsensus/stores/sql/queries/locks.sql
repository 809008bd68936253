-- Named locks. A lock has places, each with one holder.
-- Aliases: l: places of locks, s: sessions. Words in braces and `given` are explained in queries.py.

-- part: is_held
l.epoch = :boot AND l.lease_until > :moment
    AND (l.session IS NULL OR EXISTS (SELECT 1 FROM cronsensus_sessions AS owner
        WHERE owner.namespace = l.namespace AND owner.id = l.session AND owner.ended_at IS NULL AND owner.epoch = :boot
            AND owner.lease_until > :moment))

-- part: where_still_held
WHERE namespace = :space AND name = :lock AND place = :place AND token = :token AND holder = :holder
    AND coalesce(session, '') = :session AND epoch = :boot AND lease_until > :moment
    AND (session IS NULL OR EXISTS (SELECT 1 FROM cronsensus_sessions AS s
        WHERE s.namespace = :space AND s.id = :session AND s.ended_at IS NULL AND s.epoch = :boot
            AND s.lease_until > :moment))

-- name: look_at_lock
-- Count the holders of a lock, and read the smallest of their limits and whether a session is alive. Race: others write meanwhile; the answer only says whether a try is worth it.
SELECT count(*) AS held, min(l.most) AS most,
    CASE WHEN EXISTS (SELECT 1 FROM cronsensus_sessions AS s WHERE s.id = :session AND s.namespace = :space
        AND s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment) THEN 1 ELSE 0 END AS alive
FROM cronsensus_locks AS l
WHERE l.namespace = :space AND l.name = :lock AND {part: is_held};

-- name: lock_places
-- Lock the places of a lock and read their holders. Race: several want the lock; they wait here for each other, at place 0.
SELECT l.place, l.holder, l.token, l.session, l.most,
    CASE WHEN {part: is_held} THEN 1 ELSE 0 END AS held
FROM cronsensus_locks AS l
WHERE l.namespace = :space AND l.name = :lock
ORDER BY l.place
{for_update};

-- name: insert_place
-- types: space text, lock text
-- rows: place integer, holder text, boot text
-- Insert a place of a lock, not granted yet: overdue, and with token 0. Race: several insert it; the primary key admits only one, and the others wait for that one's commit.
INSERT INTO cronsensus_locks (namespace, name, place, holder, token, acquired_at, lease_until, epoch)
{values: :space, :lock, given.place, given.holder, 0, 0, 0, given.boot}
{absent: namespace, name, place};

-- name: grant_place
-- Grant a place under the last token taken. Race: place 0 is locked, so no other grants a place; the condition compares the token that was read, and the number of rows is checked.
UPDATE cronsensus_locks
SET holder = :holder, session = :session, token = {last_token}, acquired_at = :now, lease_until = :until, most = :most,
    epoch = :boot
WHERE namespace = :space AND name = :lock AND place = :place AND token = :seen_token;

-- name: extend_lock
-- Set the lease of a granted place. Race: it is freed, or granted again; the condition compares token and holder. A token alone may have been given twice, by a server whose clock lags behind that of the one that it replaced.
UPDATE cronsensus_locks
SET lease_until = :until
{part: where_still_held};

-- name: free_lock
-- Free a granted place. Race: as for its lease.
DELETE FROM cronsensus_locks
{part: where_still_held};

-- name: delete_place
-- Delete a place. Race: none, it is locked.
DELETE FROM cronsensus_locks WHERE namespace = :space AND name = :lock AND place = :place;

-- name: locks
-- Read the holders of all locks, or of one name. Race: none.
SELECT l.name, l.place, l.holder, l.session, l.token, l.acquired_at, l.lease_until, s.host, s.pid, s.pid_started
FROM cronsensus_locks AS l
LEFT JOIN cronsensus_sessions AS s ON s.namespace = l.namespace AND s.id = l.session
WHERE l.namespace = :space {also lock: AND l.name = :lock} AND {part: is_held}
ORDER BY l.name, l.place
LIMIT :size;
