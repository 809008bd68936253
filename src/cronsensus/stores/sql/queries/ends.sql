-- Reports about runs: ends of attempts, released claims, progress and log lines.
-- Aliases: o: occurrences, r: ended attempts, l: log lines. Words in braces and `given` are explained in queries.py.

-- name: read_run
-- Read whether a run is current, without a lock. Race: a takeover; the statement that records the run's end locks the row and checks again.
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
-- rows: token bigint, occurrence bigint, attempt integer, session text, node text, started bigint, ended bigint, ending text, reason text, error text
-- Record ended attempts. Race: the same attempt is recorded twice; its occurrence is locked, and the token is the key.
INSERT INTO cronsensus_runs (token, occurrence_id, attempt, session, node, started_at, finished_at, "end", reason, error)
{values: given.token, given.occurrence, given.attempt, given.session, given.node, given.started, given.ended, given.ending, given.reason, given.error};

-- name: close_runs
-- rows: new_state text, new_reason text, new_result text, new_error text, started bigint, ended bigint, occurrence bigint, claim_token bigint
-- Close occurrences. Race: a takeover; the condition compares the token, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = given.new_state, reason = given.new_reason, result = given.new_result, error = given.new_error,
    started_at = given.started, finished_at = given.ended, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: retry_runs
-- rows: due bigint, new_reason text, new_error text, occurrence bigint, claim_token bigint
-- Make occurrences pending again after a failed attempt. Race: a takeover; the condition compares the token, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, failures = o.failures + 1, fingerprint = NULL, reason = given.new_reason,
    error = given.new_error, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: snooze_runs
-- rows: due bigint, new_reason text, new_note text, occurrence bigint, claim_token bigint
-- Make snoozed occurrences pending again, without counting the attempt. They no longer expire. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, attempt = o.attempt - 1, expires_at = NULL, fingerprint = NULL, reason = given.new_reason,
    error = NULL, failures = CASE WHEN given.new_note IS NULL THEN o.failures ELSE 0 END, note = given.new_note,
    reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: park_runs
-- rows: due bigint, new_parked_on text, new_reason text, new_listed bigint, occurrence bigint, claim_token bigint
-- Park occurrences: they have no due time until they are woken, and their counts start at zero again. For a batch whose list is complete, the number of its items is written. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, attempt = o.attempt - 1, crashes = 0, failures = 0, expires_at = NULL, fingerprint = NULL,
    reason = given.new_reason, error = NULL, listed = coalesce(given.new_listed, o.listed),
    parked_on = given.new_parked_on, note = NULL, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: release_runs
-- rows: due bigint, occurrence bigint, claim_token bigint
-- Release occurrences whose attempt has not started: pending again. Race: a takeover; the condition compares the token, and the number of rows is checked.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, attempt = o.attempt - 1, reason = NULL, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: cancel_released_runs
-- rows: new_reason text, ended bigint, occurrence bigint, claim_token bigint
-- Cancel occurrences whose attempt has not started. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'cancelled', attempt = o.attempt - 1, reason = given.new_reason, finished_at = given.ended, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: requeue_cut_off_runs
-- rows: due bigint, new_crashes integer, new_reason text, occurrence bigint, claim_token bigint
-- Make occurrences whose attempt was cut off pending again. Race: its end; the rows are locked, and the condition compares the token.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = 'pending', due_at = given.due, session = NULL, node = NULL, started_at = NULL, progress_done = NULL,
    progress_total = NULL, crashes = given.new_crashes, reason = given.new_reason, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: close_cut_off_runs
-- rows: new_state text, new_crashes integer, new_reason text, ended bigint, occurrence bigint, claim_token bigint
-- Close occurrences whose attempt was cut off. Race: as above.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET state = given.new_state, crashes = given.new_crashes, reason = given.new_reason, finished_at = given.ended,
    reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: begin_reserved
-- rows: started bigint, occurrence bigint, claim_token bigint
-- Record that reserved runs have started. Race: a takeover; the condition compares the token.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET started_at = given.started, reserved = NULL
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: note_progress
-- rows: done float8, total float8, occurrence bigint, claim_token bigint
-- Record the progress of runs. Race: a takeover; the condition compares the token.
UPDATE {rows_first} cronsensus_occurrences AS o {by_id}
SET progress_done = given.done, progress_total = given.total
{rows_last}
WHERE o.id = given.occurrence AND o.token = given.claim_token AND 'running' = coalesce(o.state, '');

-- name: last_lines
-- Read the numbers of the last log lines. Race: another line of the run; its occurrence is locked.
SELECT l.occurrence_id, max(l.sequence) AS last FROM cronsensus_logs AS l WHERE l.occurrence_id IN :ids
GROUP BY l.occurrence_id;

-- name: insert_lines
-- rows: occurrence bigint, number integer, attempt integer, moment bigint, level text, line text
-- Record log lines. Race: none, the occurrences are locked.
INSERT INTO cronsensus_logs (occurrence_id, sequence, attempt, at, level, text)
{values: given.occurrence, given.number, given.attempt, given.moment, given.level, given.line};
