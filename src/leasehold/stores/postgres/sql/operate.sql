-- name: pause_scope
INSERT INTO leasehold.pause (scope, name, paused_by, reason, paused_at, until)
VALUES (:scope, :name, :actor, :reason, :now, coalesce(:until::timestamptz, :now + :seconds::double precision * interval '1 second'))
ON CONFLICT (scope, name) DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason,
    paused_at = excluded.paused_at, until = excluded.until
RETURNING scope, name, paused_by, reason, paused_at, until;

-- name: resume_scope
DELETE FROM leasehold.pause WHERE scope = :scope AND name = :name RETURNING coalesce(until > :now, true) AS was_paused;

-- name: list_pauses
SELECT scope, name, paused_by, reason, paused_at, until FROM leasehold.pause
WHERE until IS NULL OR until > :now ORDER BY scope, name;

-- name: kind_is_paused
SELECT 1 AS yes FROM leasehold.pause WHERE scope = 'kind' AND name = :kind AND (until IS NULL OR until > :now);

-- name: find_halter
-- The job that stands in the way of its lane, if one does; one that can be resumed before one that waits for an answer.
SELECT id FROM leasehold.job WHERE lane = :lane AND lane IS NOT NULL
    AND (state IN ('waiting', 'paused') OR (state IN ('failed', 'timed_out') AND halts_lane)) ORDER BY state = 'waiting', id LIMIT 1;

-- name: answer_question
UPDATE leasehold.question SET answer = :answer::json, answered = true, closed_at = :now
WHERE job_id = :id AND key = :key AND closed_at IS NULL RETURNING key;
