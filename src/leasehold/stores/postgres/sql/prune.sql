-- name: prune_jobs
-- In id order (ids are in time order), from where the last batch stopped. Never what halts a lane, what holds a key
-- for good, or what belongs to a group that still lives.
DELETE FROM leasehold.job WHERE id = ANY(ARRAY(
    SELECT j.id FROM leasehold.job AS j
    WHERE j.id > :after AND j.id < :before
      AND j.state IN ('succeeded', 'cancelled', 'failed', 'timed_out') AND NOT j.halts_lane
      AND j.finished_at < :now - :age::double precision * interval '1 second'
      AND NOT (j.unique_for = 'ever' AND j.unique_key IS NOT NULL)
      AND (j.group_name IS NULL OR NOT EXISTS (SELECT FROM leasehold.job AS g WHERE g.group_name = j.group_name
            AND g.state IN ('pending', 'queued', 'running', 'waiting', 'paused')))
    ORDER BY j.id LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_history
DELETE FROM leasehold.history WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_tags
DELETE FROM leasehold.tag WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_questions
DELETE FROM leasehold.question WHERE job_id = ANY(:ids::uuid[]);
