-- Sessions: opening, renewing and ending them; their runs and signs of life.
-- Aliases: s: sessions, o: occurrences, j: jobs, r: releases, c: counters. Words in braces and `given` are explained in queries.py.

-- part: run_with_job
o.id, o.job_id, o."key", o.state, o.attempt, o.token, o.session, o.node, o.due_at, o.started_at, o.crashes,
o.reserved, o.cancel_reason,
(SELECT j.name FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS name,
(SELECT j.revision FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS revision,
(SELECT j.digest FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS digest,
(SELECT j.defined_at FROM cronsensus_jobs AS j WHERE j.id = o.job_id) AS defined_at

-- part: from_runs_of_session
FROM cronsensus_occurrences AS o {index: running}
WHERE o.namespace = :space AND o.session = :session AND o.state = 'running' {listed}
ORDER BY o.id

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

-- name: read_renewing_session
-- Read whether a session is alive, what an operator requested, and its runs. Race: the statement before has locked the row; this one reads the clock, and sees the claims that the lock waited for.
SELECT CASE WHEN s.ended_at IS NULL AND s.epoch = :boot AND s.lease_until > :moment THEN 1 ELSE 0 END AS alive,
    s.draining, s.beats,
    (SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity') AS store,
    o.id, o.token, o.cancel_reason
FROM cronsensus_sessions AS s
LEFT JOIN cronsensus_occurrences AS o
    ON o.namespace = s.namespace AND o.session = s.id AND o.state = 'running' {listed}
WHERE s.id = :session AND s.namespace = :space
ORDER BY o.id;

-- name: identity
-- Read the identity of the store. Race: none, it never changes.
SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'identity';

-- name: renew
-- Set the lease of a session. Race: its end by another node; the row is locked, and the condition checks again whether it is open.
UPDATE cronsensus_sessions
SET lease_until = :until, renewed_at = :now, beats = :beat
WHERE id = :session AND namespace = :space AND ended_at IS NULL;

-- name: known_release
-- Read the number of a release. Race: none, it never changes.
SELECT r.id FROM cronsensus_releases AS r WHERE r.namespace = :space AND r."release" = :wanted;

-- name: insert_release
-- rows: space text, name text, moment bigint
-- Record a release. Race: another node records it too; the unique name admits only one.
INSERT INTO cronsensus_releases (namespace, "release", first_seen_at)
{values: given.space, given.name, given.moment}
{absent: namespace, "release"};

-- name: lock_oldest_release
-- Lock the oldest release. Race: another session opens, or jobs are defined; they wait for each other.
SELECT r.id FROM cronsensus_releases AS r WHERE r.namespace = :space ORDER BY r.id LIMIT 1 {for_update};

-- name: insert_session
-- rows: session text, space text, node text, host text, pid bigint, pid_started bigint, release text, version text, concurrency integer, functions integer, declares text, tzdata text, zones text, now bigint, until bigint, boot text
-- Insert a session. Race: it is inserted twice; the unique id admits only one.
INSERT INTO cronsensus_sessions (id, namespace, node, host, pid, pid_started, "release", version, concurrency, functions, declares, tzdata, zones,
    started_at, renewed_at, beats, lease_until, epoch, draining)
{values: given.session, given.space, given.node, given.host, given.pid, given.pid_started, given.release, given.version, given.concurrency, given.functions, given.declares, given.tzdata, given.zones, given.now, given.now, 0, given.until, given.boot, 0}
{absent: namespace, id};

-- name: renew_opened_session
-- Set the lease of a session that was just inserted, or existed before. Race: its end; the row is locked, and the condition checks whether it is alive. A session inserted in this transaction counts as alive, though its lease may be shorter than the transaction.
UPDATE cronsensus_sessions
SET lease_until = :until, renewed_at = :now
WHERE id = :session AND namespace = :space AND ended_at IS NULL AND epoch = :boot
    AND (lease_until > :moment OR lease_until = :until);

-- name: drain
-- Ask a session to claim nothing new. Race: its end; the condition checks whether it is alive.
UPDATE cronsensus_sessions SET draining = 1
WHERE id = :session AND namespace = :space AND ended_at IS NULL AND epoch = :boot AND lease_until > :moment;

-- name: find_dead
-- Read open sessions whose lease ran out, or that are presumed dead. Race: nothing is locked; each is checked again once it is locked.
SELECT s.id FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.ended_at IS NULL
    AND (s.epoch <> :boot OR s.lease_until <= :moment OR s.id IN :presumed)
ORDER BY s.number;

-- name: try_lock_session
-- Lock an open session unless another transaction has, and read whether its lease has run out. Race: its renewal; while that has the lock, the session is passed over, and afterwards the lease is the new one.
SELECT CASE WHEN s.epoch <> :boot OR s.lease_until <= :moment THEN 1 ELSE 0 END AS overdue
FROM cronsensus_sessions AS s
WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL
{for_update} {skip_locked};

-- name: try_lock_runs
-- Lock those runs of a session that no other transaction has locked, and read them. Race: their end; while that has the lock, they are passed over, and afterwards they are not running.
SELECT {part: run_with_job}
{part: from_runs_of_session}
{for_update} {skip_locked};

-- name: try_lock_runs [postgres]
-- Lock those runs of a session that no other transaction has locked, and read them, if the session can be locked too. Race: as above; the rows that the statement before has locked are this transaction's own.
SELECT {part: run_with_job}
FROM cronsensus_occurrences AS o
WHERE o.namespace = :space AND o.session = :session AND o.state = 'running'
    AND EXISTS (
        SELECT 1 FROM cronsensus_sessions AS s
        WHERE s.id = :session AND s.namespace = :space AND s.ended_at IS NULL
        {for_update} {skip_locked}
    )
ORDER BY o.id
{for_update} {skip_locked};

-- name: held_runs
-- Read the ids of a session's runs. Race: none, the session is locked, so it starts nothing.
SELECT o.id
{part: from_runs_of_session};

-- name: lock_held
-- Lock a session's runs, and read them. Race: the end of a run; it comes before the lock, or finds another token.
SELECT {part: run_with_job}
{part: from_runs_of_session}
{for_update};

-- name: lock_cut_off
-- Lock occurrences whose attempt is to be cut off, and read them. Race: a takeover; token and session are compared after the lock.
SELECT {part: run_with_job}
FROM cronsensus_occurrences AS o {by_id}
WHERE o.id IN :ids AND o.namespace = :space
ORDER BY o.id
{for_update};

-- name: end_session
-- End a session. Race: its end by another node; the condition checks whether it is open.
UPDATE cronsensus_sessions SET ended_at = :now, ended_as = :ended_as, ended_why = :why
WHERE id = :session AND namespace = :space AND ended_at IS NULL;

-- name: free_locks_of
-- Free the locks of a session that ended. Race: none, it gets no more locks.
DELETE FROM cronsensus_locks WHERE session = :session AND namespace = :space;

-- name: note_sign
-- Record whether a session shows a sign of life (1), or showed it and withdrew it (0). Race: its end by another node; then nothing is written.
UPDATE cronsensus_sessions SET shown = :shown WHERE id = :session AND namespace = :space AND ended_at IS NULL;

-- name: signs
-- Read what sessions recorded about their signs of life. There is no condition that they are open: with it, the planner would read all open sessions instead of these by their keys. Race: nothing is locked, evidence is no proof.
SELECT s.id, s.number, s.shown, s.ended_at
FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.id IN :sessions;

-- name: signs [postgres]
-- types: sessions text[]
-- Read the same. The LIMIT makes the planner look up each session by its key. Race: as above.
SELECT s.id, s.number, s.shown, s.ended_at
FROM unnest(:sessions) AS asked (id)
JOIN LATERAL (
    SELECT one.* FROM cronsensus_sessions AS one WHERE one.namespace = :space AND one.id = asked.id LIMIT 1
) AS s ON TRUE;

-- name: silent_sessions
-- Read which nodes have not recorded a sign of life yet. Race: a node is recording it now; a later read sees that, too.
SELECT s.id FROM cronsensus_sessions AS s
WHERE s.namespace = :space AND s.ended_at IS NULL AND s.concurrency > 0 AND s.shown IS NULL;

-- name: newest_session
-- Read the number of the newest session. Race: a session with a lower number may commit later; it counts as older.
SELECT coalesce(max(s.number), 0) AS number FROM cronsensus_sessions AS s;

-- name: held_signs [postgres]
-- Read which of these advisory locks are held or waited for, and whether the server is a replica. Race: none, a lock is of the present moment.
SELECT here.is_replica, held.sign
FROM (SELECT pg_is_in_recovery() AS is_replica) AS here
LEFT JOIN (
    SELECT DISTINCT (l.classid::bigint << 32) | l.objid::bigint AS sign
    FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
) AS held ON held.sign IN :signs;

-- name: held_signs [mysql]
-- rows: place integer, one text, two text, three text, four text
-- Read which sessions hold one of their locks, and whether the server is a replica. Race: none, a lock is of the present moment.
SELECT here.thread, here.is_replica, given.place,
    coalesce(is_used_lock(given.one), is_used_lock(given.two), is_used_lock(given.three), is_used_lock(given.four)) AS holder
FROM {rows_first} (SELECT connection_id() AS thread, @@GLOBAL.read_only AS is_replica) AS here;
