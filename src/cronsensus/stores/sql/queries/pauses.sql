-- name: open_pause
-- Read the pause of a job that has not ended. Race: the job is locked by the statement before, so none begins or ends meanwhile.
SELECT p.id, p.start
FROM cronsensus_pauses AS p
WHERE p.job_id = (SELECT j.id FROM cronsensus_jobs AS j WHERE j.namespace = :space AND j.name = :job) AND p."end" IS NULL
LIMIT 1;

-- name: pause_job
-- Stop firing a job. Race: it is paused twice; it is locked, the condition checks whether it is paused, and the number of rows is checked.
UPDATE cronsensus_jobs AS j {by_id}
SET paused_at = :now, paused_by = :by, paused_why = :why, wake_at = NULL
WHERE j.id = :job AND j.paused_at IS NULL;

-- name: begin_pause
-- Record that a pause began. Race: none, the job is locked.
INSERT INTO cronsensus_pauses (job_id, start) VALUES (:job, :now);

-- name: resume_job
-- Fire a job again. Race: as for the pause.
UPDATE cronsensus_jobs AS j {by_id}
SET paused_at = NULL, paused_by = NULL, paused_why = NULL, wake_at = j.next_due, pause_ended_at = :until
WHERE j.id = :job AND j.paused_at IS NOT NULL;

-- name: end_pause
-- Record when a pause ended. Race: none, the job is locked.
UPDATE cronsensus_pauses SET "end" = :until WHERE id = :pause;
