-- Rewinding a job: moving its watermark back.
-- Aliases: j: jobs. Words in braces and `given` are explained in queries.py.

-- name: rewind_job
-- types: following bigint
-- Take a job's schedule back. Race: a plan, or another rewind; the job is locked, the condition asks for what was seen, and the number of rows is checked.
UPDATE cronsensus_jobs AS j {by_id}
SET watermark = :watermark, next_due = :following, wake_at = :following, defined_at = :began,
    pause_ended_at = CASE WHEN j.pause_ended_at > :watermark THEN :watermark ELSE j.pause_ended_at END
WHERE j.id = :job AND j.watermark = :seen AND j.revision = :revised AND j.paused_at IS NULL;

-- name: withdraw_verdicts
-- Withdraw the verdicts on times that come again. Race: none, the job is locked.
DELETE FROM cronsensus_verdicts WHERE job_id = :job AND "first" > :watermark;

-- name: cut_verdict
-- types: many integer
-- End a verdict range at the last time before those that come again. Race: none, the job is locked.
UPDATE cronsensus_verdicts SET "last" = :until, "count" = :many WHERE id = :verdict AND job_id = :job;

-- name: withdraw_occurrences
-- Delete what was made for times that come again, and never began. Race: a claim; the condition checks whether it still waits for its first attempt.
DELETE FROM cronsensus_occurrences
WHERE job_id = :job AND scheduled_for > :watermark AND origin = 'schedule' AND 'pending' = coalesce(state, '') AND attempt = 0;

-- name: withdraw_pauses
-- Delete the pauses that lie ahead. Race: none, the job is locked.
DELETE FROM cronsensus_pauses WHERE job_id = :job AND start > :watermark;

-- name: cut_pauses
-- End pauses where the schedule goes on. Race: none, the job is locked.
UPDATE cronsensus_pauses SET "end" = :watermark WHERE job_id = :job AND "end" > :watermark;

-- name: withdraw_eras
-- Delete the eras that lie ahead, but the last. Race: none, the job is locked.
DELETE FROM cronsensus_eras WHERE job_id = :job AND since > :began AND revision < :revised;

-- name: begin_era_before
-- Have the last era rule from where the schedule goes on. Race: none, the job is locked.
UPDATE cronsensus_eras SET since = :began WHERE job_id = :job AND since > :began;
