-- name: find_old
-- The next outcomes in the order of seq, and which of them may go. The number of rows read is bounded, not only of
-- those found: on SQLite nobody else writes meanwhile.
SELECT o.job, (o.finished_at < :now - CAST(round(:age * 1e6) AS INTEGER)

-- name: find_old.page
) AS old FROM (SELECT * FROM leasehold_outcome WHERE job > :after ORDER BY job LIMIT :limit) AS o ORDER BY o.job;

-- name: where_free_to_go
-- Never what halts a lane, what holds a key for good, what belongs to a group that still lives, or what somebody waited
-- for who may still want its result. Plain jobs are none of these.
 AND (o.special = 0 OR (
    SELECT NOT coalesce(j.unique_key IS NOT NULL AND j.unique_for_ever, 0)
        AND (SELECT 1 FROM leasehold_lane_hold AS h WHERE h.lane = j.lane AND h.job = j.seq) IS NULL
        AND coalesce((SELECT g.live FROM leasehold_job_group AS g WHERE g.name = j.group_name), 0) <= 0
        AND (o.special < 2 OR (
            SELECT 1 FROM leasehold_dependency AS d INDEXED BY leasehold_dependency_parent
            CROSS JOIN leasehold_job AS c ON c.id = d.child_id WHERE d.parent_id = j.id
              AND coalesce((SELECT e.state FROM leasehold_outcome AS e WHERE e.job = c.seq), 0) NOT IN (1, 2)
            LIMIT 1) IS NULL)
    FROM leasehold_job AS j WHERE j.seq = o.job))

-- name: is_young
-- Whether this job was made too lately for it, or for one that came after it, to be old.
SELECT j.created_at >= :now - CAST(round(:age * 1e6) AS INTEGER) AS young FROM leasehold_job AS j
WHERE j.seq = :job;

-- name: lock_old
-- This connection is the writer: nobody else has them in hand.
SELECT j.seq FROM leasehold_job AS j WHERE j.seq IN (SELECT value FROM json_each(:seqs));

-- name: prune_outcomes
-- Looked at again under the lock: a job may have been resumed since, or somebody waits for it now.
DELETE FROM leasehold_outcome AS o WHERE o.job IN (SELECT value FROM json_each(:seqs))
    AND o.finished_at < :now - CAST(round(:age * 1e6) AS INTEGER)

-- name: prune_outcomes.told
 RETURNING job;

-- name: prune_jobs
DELETE FROM leasehold_job WHERE seq IN (SELECT value FROM json_each(:seqs)) RETURNING seq, id, group_name;

-- name: prune_troubles
DELETE FROM leasehold_trouble WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_attempts
DELETE FROM leasehold_attempt WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_executions
DELETE FROM leasehold_execution WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_time_limits
DELETE FROM leasehold_time_limit WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_lease_slots
DELETE FROM leasehold_lease_slot WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_slot_holds
DELETE FROM leasehold_slot_hold WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_members
DELETE FROM leasehold_member WHERE (group_name, job) IN (
    SELECT json_extract(value, '$.group_name'), json_extract(value, '$.job') FROM json_each(:members));

-- name: prune_history
DELETE FROM leasehold_history WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_tags
DELETE FROM leasehold_tag WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_questions
DELETE FROM leasehold_question WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_events
DELETE FROM leasehold_event WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_streams
DELETE FROM leasehold_stream WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_logs
DELETE FROM leasehold_log_tail WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_dependencies
DELETE FROM leasehold_dependency WHERE child_id IN (SELECT value FROM json_each(:ids))
    OR parent_id IN (SELECT value FROM json_each(:ids));

-- name: prune_follow_ups
DELETE FROM leasehold_follow_up WHERE child_id IN (SELECT value FROM json_each(:ids))
    OR parent_id IN (SELECT value FROM json_each(:ids));

-- name: prune_spending
DELETE FROM leasehold_spending WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_budgets
-- A group's total stays: it speaks of more jobs than these.
DELETE FROM leasehold_budget WHERE scope = 'job' AND name IN (SELECT value FROM json_each(:ids));
