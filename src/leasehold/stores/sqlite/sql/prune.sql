-- name: examine_old_jobs
-- The next rows in id order (ids are in time order), and which of them may go: never what halts a lane, what holds a
-- key for good, what belongs to a group that still lives, or what somebody waited for who may still want its result. The number of rows read is bounded, not only the number
-- of rows found: on SQLite nobody else writes meanwhile.
SELECT j.id, (j.state IN ('succeeded', 'cancelled', 'failed', 'timed_out') AND NOT j.halts_lane
        AND j.finished_at < :now - CAST(round(:age * 1e6) AS INTEGER)
        AND NOT (j.unique_for = 'ever' AND j.unique_key IS NOT NULL)
        AND (j.group_name IS NULL OR (
            SELECT 1 FROM job AS g INDEXED BY job_group_live WHERE g.group_name = j.group_name AND g.group_name IS NOT NULL
              AND g.state IN ('pending', 'queued', 'running', 'waiting', 'paused') LIMIT 1) IS NULL)
        AND (NOT j.awaited OR (
            SELECT 1 FROM dependency AS d INDEXED BY dependency_parent CROSS JOIN job AS c WHERE d.parent_id = j.id AND c.id = d.child_id
              AND c.state NOT IN ('succeeded', 'cancelled') LIMIT 1) IS NULL)) AS old
FROM (SELECT * FROM job WHERE id > :after AND id < :before ORDER BY id LIMIT :limit) AS j ORDER BY j.id;

-- name: prune_jobs
-- Looked at again under the lock: a job may have been resumed since.
DELETE FROM job WHERE id IN (SELECT value FROM json_each(:ids))
    AND state IN ('succeeded', 'cancelled', 'failed', 'timed_out') AND NOT halts_lane
RETURNING id;

-- name: prune_history
DELETE FROM history WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_tags
DELETE FROM tag WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_questions
DELETE FROM question WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_events
DELETE FROM event WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_streams
DELETE FROM stream WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_logs
DELETE FROM log_tail WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_dependencies
DELETE FROM dependency WHERE child_id IN (SELECT value FROM json_each(:ids)) OR parent_id IN (SELECT value FROM json_each(:ids));

-- name: prune_follow_ups
DELETE FROM follow_up WHERE child_id IN (SELECT value FROM json_each(:ids)) OR parent_id IN (SELECT value FROM json_each(:ids));

-- name: prune_holds
DELETE FROM slot_hold WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_spending
DELETE FROM spending WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_budgets
-- A group's total stays: it speaks of more jobs than these.
DELETE FROM budget WHERE scope = 'job' AND name IN (SELECT value FROM json_each(:ids));
