-- Rewinding a job: moving its watermark back.
-- Aliases: j: jobs. Words in braces and `given` are explained in queries.py.

-- name: rewind_job
-- types: following bigint
-- Move the watermark of a job back. Race: a plan, or another rewind; the job is locked, the condition compares what was read, and the number of rows is checked.
UPDATE cronsensus_jobs AS j {by_id}
SET watermark = :watermark, next_due = :following, wake_at = :following, defined_at = :began,
    pause_ended_at = CASE WHEN j.pause_ended_at > :watermark THEN :watermark ELSE j.pause_ended_at END
WHERE j.id = :job AND j.watermark = :seen AND j.revision = :revised AND j.paused_at IS NULL;

-- name: withdraw_verdicts
-- Delete the verdicts on times that are decided again. Race: none, the job is locked.
DELETE FROM cronsensus_verdicts WHERE job_id = :job AND "first" > :watermark;

-- name: cut_verdict
-- types: many integer
-- End a verdict range at its last time that is not decided again. Race: none, the job is locked.
UPDATE cronsensus_verdicts SET "last" = :until, "count" = :many WHERE id = :verdict AND job_id = :job;

-- name: withdraw_occurrences
-- Delete scheduled occurrences that never started, at times that are decided again. Race: a claim; the condition checks whether they are still pending without an attempt.
DELETE FROM cronsensus_occurrences
WHERE job_id = :job AND scheduled_for > :watermark AND origin = 'schedule' AND 'pending' = coalesce(state, '') AND attempt = 0;

-- name: withdraw_pauses
-- Delete the pauses after the new watermark. Race: none, the job is locked.
DELETE FROM cronsensus_pauses WHERE job_id = :job AND start > :watermark;

-- name: cut_pauses
-- End pauses at the new watermark. Race: none, the job is locked.
UPDATE cronsensus_pauses SET "end" = :watermark WHERE job_id = :job AND "end" > :watermark;

-- name: withdraw_eras
-- Delete the eras after the new watermark, except the last. Race: none, the job is locked.
DELETE FROM cronsensus_eras WHERE job_id = :job AND since > :began AND revision < :revised;

-- name: begin_era_before
-- Let the last era begin where the schedule goes on. Race: none, the job is locked.
UPDATE cronsensus_eras SET since = :began WHERE job_id = :job AND since > :began;
