-- name: stop_window
-- Where the next look ends, if there is more behind it: the number of rows read is bounded, not only of those found.
SELECT id FROM job WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :size;

-- name: find_stoppable
-- The jobs that a stop may move, newest first, so that a job goes before those it waits for. This is the way where no
-- index serves: one window of ids after the other. Fragments named find_stoppable.where_… are added as asked.
SELECT j.id, j.kind, j.state FROM job AS j WHERE j.id < :before AND j.id >= :since
    AND j.state IN ('pending', 'queued', 'running', 'waiting', 'paused')

-- name: find_stoppable.in_group
SELECT j.id, j.kind, j.state FROM job AS j INDEXED BY job_group_member
WHERE j.group_name = :group AND j.group_name IS NOT NULL AND j.id < :before
    AND j.state IN ('pending', 'queued', 'running', 'waiting', 'paused')

-- name: find_stoppable.in_lane
-- A lane's jobs lie in three indexes; held ones are found by their state.
SELECT j.id, j.kind, j.state FROM (
    SELECT id, kind, queue, group_name, state FROM job INDEXED BY job_lane
    WHERE lane = :lane AND lane IS NOT NULL AND state = 'queued'
    UNION ALL
    SELECT id, kind, queue, group_name, state FROM job INDEXED BY job_lane_held
    WHERE lane = :lane AND lane IS NOT NULL AND lane_at = 0
      AND (state IN ('queued', 'running', 'waiting', 'paused') OR halts_lane) AND state = 'running'
    UNION ALL
    SELECT id, kind, queue, group_name, state FROM job INDEXED BY job_lane_halt
    WHERE lane = :lane AND lane IS NOT NULL
      AND (state IN ('waiting', 'paused') OR (state IN ('failed', 'timed_out') AND halts_lane)) AND state IN ('waiting', 'paused')
    UNION ALL
    SELECT id, kind, queue, group_name, state FROM job INDEXED BY job_notable
    WHERE state = 'pending' AND state IN ('pending', 'waiting', 'paused', 'failed', 'timed_out', 'cancelled') AND lane = :lane
) AS j WHERE j.id < :before

-- name: find_stoppable.with_tag
SELECT t.job_id AS id, j.kind, j.state FROM tag AS t CROSS JOIN job AS j ON j.id = t.job_id
WHERE t.name = :tag AND t.job_id < :before AND j.state IN ('pending', 'queued', 'running', 'waiting', 'paused')

-- name: find_stoppable.running
-- The leases that are held, and orphans: what a stop flags first, so that nothing goes back to the queue behind it.
SELECT j.id, j.kind, j.state FROM (
    SELECT id, kind, queue, lane, group_name, state FROM job INDEXED BY job_lease WHERE lease_owner IS NOT NULL
    UNION ALL
    SELECT id, kind, queue, lane, group_name, state FROM job INDEXED BY job_orphan
    WHERE execution_site IS NOT NULL AND lease_owner IS NULL AND state = 'running'
) AS j WHERE j.state = 'running' AND j.id < :before

-- name: find_stoppable.where_group
 AND j.group_name = :group

-- name: find_stoppable.where_queue
 AND j.queue = :queue

-- name: find_stoppable.where_kinds
 AND j.kind IN (SELECT value FROM json_each(:kinds))

-- name: find_stoppable.where_lane
 AND j.lane = :lane

-- name: find_stoppable.where_tags
 AND (SELECT count(*) FROM tag AS w INDEXED BY tag_job WHERE w.job_id = j.id AND w.name IN (SELECT value FROM json_each(:tags))) = :tag_count

-- name: find_stoppable.page
 ORDER BY id DESC LIMIT :limit

-- name: still_running
SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'running' ORDER BY id;

-- name: mark_stopped
INSERT INTO stop_mark (job_id, scope, reason, actor, at)
SELECT value, :scope, :reason, :actor, :now FROM json_each(:ids) WHERE true
ON CONFLICT (job_id, scope) DO UPDATE SET reason = excluded.reason, actor = excluded.actor, at = excluded.at;

-- name: lock_flags
-- Whether these runs were told to stop. Whoever tells them from now on finds what is stored in this transaction.
SELECT id, stop_requested FROM job WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: find_stop_marks
SELECT job_id, scope, reason, actor FROM stop_mark WHERE job_id IN (SELECT value FROM json_each(:ids)) ORDER BY job_id, at DESC;

-- name: clear_stop_marks
DELETE FROM stop_mark WHERE job_id IN (SELECT value FROM json_each(:ids));
