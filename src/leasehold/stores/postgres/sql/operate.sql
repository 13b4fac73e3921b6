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

-- name: task_is_paused
SELECT 1 AS yes FROM leasehold.pause WHERE scope = 'task' AND name = :task AND (until IS NULL OR until > :now);

-- name: find_halter
-- The job that blocks its lane, if one does; one that can be resumed before one that waits for an answer. A job that
-- has started and runs, or is queued again, blocks nothing.
SELECT id FROM (
    SELECT j.id, j.seq, p.state = 2 AS waits FROM leasehold.lane_hold AS h JOIN leasehold.job AS j ON j.seq = h.job
    JOIN leasehold.parked AS p ON p.job = h.job WHERE h.lane = :lane AND p.state IN (2, 3)
    UNION ALL
    SELECT j.id, j.seq, false FROM leasehold.lane_hold AS h JOIN leasehold.job AS j ON j.seq = h.job
    JOIN leasehold.outcome AS p ON p.job = h.job WHERE h.lane = :lane
    UNION ALL
    SELECT j.id, j.seq, false FROM leasehold.lane_stop AS s JOIN leasehold.job AS j ON j.seq = s.job WHERE s.lane = :lane
) AS found ORDER BY waits, seq LIMIT 1;
