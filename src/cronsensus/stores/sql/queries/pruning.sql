-- name: delete_logs
-- Forget the log lines of occurrences. Race: none, their occurrences are locked, or final for ever.
DELETE FROM cronsensus_logs WHERE occurrence_id IN :ids;

-- name: delete_runs
-- Forget the runs of occurrences. Race: as above.
DELETE FROM cronsensus_runs WHERE occurrence_id IN :ids;

-- name: delete_runs [mysql]
-- Forget the same. Race: as above. With statistics of a table that was small, MySQL would rather read and lock all of them.
DELETE /*+ INDEX(cronsensus_runs cronsensus_runs_of_occurrence) */ FROM cronsensus_runs WHERE occurrence_id IN :ids;

-- name: delete_occurrences
-- Forget occurrences in whatever state. Race: none, they are locked, and the number of rows is checked.
DELETE FROM cronsensus_occurrences WHERE id IN :ids;
