-- name: read_run
-- Read whether a run is current, without a lock. Race: a takeover; its completion locks it and asks again.
SELECT o.state, o.token, o.session FROM cronsensus_occurrences AS o WHERE o.id = :occurrence AND o.namespace = :space;

-- name: lock_runs
-- Lock occurrences and read them. Race: a takeover or a request to cancel; it comes before the lock or after the commit, and the order of ids keeps two transactions from waiting for each other.
SELECT o.id, o.job_id, o.serial, o.state, o.token, o.attempt, o.session, o.node, o.due_at, o.started_at, o.failures,
    o.reserved, o.cancel_reason
FROM cronsensus_occurrences AS o {by_id}
WHERE o.id IN :ids AND o.namespace = :space
ORDER BY o.id
{for_update};

-- name: ended_runs
-- Read the records of ended attempts by their tokens. Race: none, a record never changes.
SELECT r.token, r.occurrence_id, r.session, r."end" AS ending
FROM cronsensus_runs AS r
WHERE r.token IN :tokens;

-- name: record_runs
-- rows: held bigint, run bigint, number integer, whose text, machine text, begun bigint, ended bigint, ending text, because text, wrong text
-- Record ended attempts. Race: the same attempt is recorded twice; its occurrence is locked, and the token is the key.
INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, node, started_at, finished_at, "end", reason, error)
{values: given.held, given.run, given.number, given.whose, given.machine, given.begun, given.ended, given.ending, given.because, given.wrong};

-- name: close_runs
-- rows: became text, because text, gave text, wrong text, begun bigint, ended bigint, run bigint, held bigint
-- Close occurrences. Race: a takeover; the condition compares the token, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = given.became, reason = given.because, result = given.gave, error = given.wrong, started_at = given.begun,
    finished_at = given.ended, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: retry_runs
-- rows: due bigint, because text, wrong text, run bigint, held bigint
-- Put occurrences back to be tried again. Race: a takeover; the condition compares the token, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, failures = o.failures + 1, fingerprint = NULL, reason = given.because, error = given.wrong,
    reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: again_runs
-- rows: due bigint, because text, noted text, run bigint, held bigint
-- Put occurrences back that look again later: no attempt, no failure, and no expiry any more. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, attempt = o.attempt - 1, expires_at = NULL, fingerprint = NULL, reason = given.because,
    error = NULL, failures = CASE WHEN given.noted IS NULL THEN o.failures ELSE 0 END, note = given.noted, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: park_runs
-- rows: due bigint, what text, because text, many bigint, run bigint, held bigint
-- Park occurrences, due never: all counts begin anew. A list that is complete is noted. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, attempt = o.attempt - 1, crashes = 0, failures = 0, expires_at = NULL, fingerprint = NULL,
    reason = given.because, error = NULL, listed = coalesce(given.many, o.listed), parked_on = given.what, note = NULL,
    reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: give_back_runs
-- rows: due bigint, run bigint, held bigint
-- Put occurrences back whose attempt was not begun. Race: a takeover; the condition compares the token, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, attempt = o.attempt - 1, reason = NULL, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: give_up_runs
-- rows: because text, ended bigint, run bigint, held bigint
-- Cancel occurrences whose attempt was not begun. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'cancelled', attempt = o.attempt - 1, reason = given.because, finished_at = given.ended, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: take_back_runs
-- rows: due bigint, crashed integer, because text, run bigint, held bigint
-- Put occurrences back whose attempt was cut off. Race: its end; the rows are locked, and the condition compares the token.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, crashes = given.crashed, reason = given.because, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: cut_off_runs
-- rows: became text, crashed integer, because text, ended bigint, run bigint, held bigint
-- Close occurrences whose attempt was cut off. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = given.became, crashes = given.crashed, reason = given.because, finished_at = given.ended, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: begin_reserved
-- rows: begun bigint, run bigint, held bigint
-- Note that reserved runs have begun. Race: a takeover; the condition compares the token.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET started_at = given.begun, reserved = NULL
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: note_progress
-- rows: done float8, whole float8, run bigint, held bigint
-- Note how far runs are. Race: a takeover; the condition compares the token.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET progress_done = given.done, progress_total = given.whole
{rows_last}
WHERE o.id = given.run AND o.token = given.held AND 'running' = coalesce(o.state, '');

-- name: last_lines
-- Read the numbers of the last log lines. Race: another line of the run; its occurrence is locked.
SELECT l.occurrence_id, max(l.sequence) AS last FROM cronsensus_logs AS l WHERE l.occurrence_id IN :ids
GROUP BY l.occurrence_id;

-- name: insert_lines
-- rows: run bigint, place integer, attempt integer, moment bigint, level text, line text
-- Keep log lines. Race: none, the occurrences are locked.
INSERT INTO cronsensus_logs (occurrence_id, sequence, attempt, at, level, text)
{values: given.run, given.place, given.attempt, given.moment, given.level, given.line};
