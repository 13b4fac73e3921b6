-- name: pause_scope
INSERT INTO pause (scope, name, paused_by, reason, paused_at, until)
VALUES (:scope, :name, :actor, :reason, :now, coalesce(:until, :now + CAST(round(:seconds * 1e6) AS INTEGER)))
ON CONFLICT (scope, name) DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason,
    paused_at = excluded.paused_at, until = excluded.until
RETURNING scope, name, paused_by, reason, paused_at, until;

-- name: resume_scope
DELETE FROM pause WHERE scope = :scope AND name = :name RETURNING coalesce(until > :now, true) AS was_paused;

-- name: list_pauses
SELECT scope, name, paused_by, reason, paused_at, until FROM pause
WHERE until IS NULL OR until > :now ORDER BY scope, name;

-- name: kind_is_paused
SELECT 1 AS yes FROM pause WHERE scope = 'kind' AND name = :kind AND (until IS NULL OR until > :now);

-- name: find_halter
-- The job that stands in the way of its lane, if one does; one that can be resumed before one that waits for an answer.
SELECT id FROM job INDEXED BY job_lane_halt WHERE lane = :lane AND lane IS NOT NULL
    AND (state IN ('waiting', 'paused') OR (state IN ('failed', 'timed_out') AND halts_lane)) ORDER BY state = 'waiting', id LIMIT 1;

-- name: answer_question
UPDATE question SET answer = :answer, answered = 1, closed_at = :now
WHERE job_id = :id AND key = :key AND closed_at IS NULL RETURNING key;
