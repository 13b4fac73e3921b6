-- name: prune_jobs
-- In id order (ids are in time order), from where the last batch stopped. Never what halts a lane, what holds a key
-- for good, or what belongs to a group that still lives.
DELETE FROM job WHERE id IN (
    SELECT j.id FROM job AS j
    WHERE j.id > :after AND j.id < :before
      AND j.state IN ('succeeded', 'cancelled', 'failed', 'timed_out') AND NOT j.halts_lane
      AND j.finished_at < :now - CAST(round(:age * 1e6) AS INTEGER)
      AND NOT (j.unique_for = 'ever' AND j.unique_key IS NOT NULL)
      AND (j.group_name IS NULL OR NOT EXISTS (SELECT 1 FROM job AS g WHERE g.group_name = j.group_name
            AND g.state IN ('pending', 'queued', 'running', 'waiting', 'paused')))
    ORDER BY j.id LIMIT :limit)
RETURNING id;

-- name: prune_history
DELETE FROM history WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_tags
DELETE FROM tag WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_questions
DELETE FROM question WHERE job_id IN (SELECT value FROM json_each(:ids));
