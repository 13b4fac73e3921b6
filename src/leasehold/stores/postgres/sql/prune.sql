-- name: examine_old_jobs
-- The next rows in id order (ids are in time order), and which of them may go: never what halts a lane, what holds a
-- key for good, what belongs to a group that still lives, or what somebody waited for who may still want its result. The number of rows read is bounded, not only the number
-- of rows found: on SQLite nobody else writes meanwhile.
SELECT j.id, (j.state IN ('succeeded', 'cancelled', 'failed', 'timed_out') AND NOT j.halts_lane
        AND j.finished_at < :now - :age::double precision * interval '1 second'
        AND NOT (j.unique_for = 'ever' AND j.unique_key IS NOT NULL)
        AND (j.group_name IS NULL OR (
            SELECT 1 FROM leasehold.job AS g WHERE g.group_name = j.group_name AND g.group_name IS NOT NULL
              AND g.state IN ('pending', 'queued', 'running', 'waiting', 'paused') LIMIT 1) IS NULL)
        AND (NOT j.awaited OR (
            SELECT 1 FROM leasehold.dependency AS d CROSS JOIN leasehold.job AS c WHERE d.parent_id = j.id AND c.id = d.child_id
              AND c.state NOT IN ('succeeded', 'cancelled') LIMIT 1) IS NULL)) AS old
FROM (SELECT * FROM leasehold.job WHERE id > :after AND id < :before ORDER BY id LIMIT :limit) AS j ORDER BY j.id;

-- name: prune_jobs
-- Looked at again under the lock: a job may have been resumed since.
DELETE FROM leasehold.job WHERE id = ANY(ARRAY(
    SELECT j.id FROM leasehold.job AS j WHERE j.id = ANY(:ids::uuid[])
      AND j.state IN ('succeeded', 'cancelled', 'failed', 'timed_out') AND NOT j.halts_lane
    ORDER BY j.id FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_history
DELETE FROM leasehold.history WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_tags
DELETE FROM leasehold.tag WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_questions
DELETE FROM leasehold.question WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_events
DELETE FROM leasehold.event WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_streams
DELETE FROM leasehold.stream WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_logs
DELETE FROM leasehold.log_tail WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_dependencies
DELETE FROM leasehold.dependency WHERE child_id = ANY(:ids::uuid[]) OR parent_id = ANY(:ids::uuid[]);

-- name: prune_follow_ups
DELETE FROM leasehold.follow_up WHERE child_id = ANY(:ids::uuid[]) OR parent_id = ANY(:ids::uuid[]);

-- name: prune_holds
DELETE FROM leasehold.slot_hold WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_spending
DELETE FROM leasehold.spending WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_budgets
-- A group's total stays: it speaks of more jobs than these.
DELETE FROM leasehold.budget WHERE scope = 'job' AND name = ANY(:ids::text[]);
