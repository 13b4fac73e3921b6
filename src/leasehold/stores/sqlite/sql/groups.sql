-- name: get_group
SELECT name, state, reason, version, changed_by, changed_at FROM job_group WHERE name = :name;

-- name: group_versions
-- Of all groups that somebody watches, in one read.
SELECT name, version FROM job_group WHERE name IN (SELECT value FROM json_each(:names));

-- name: count_group
SELECT j.kind, j.state, count(*) AS jobs FROM job AS j INDEXED BY job_group_member
WHERE j.group_name = :name AND j.group_name IS NOT NULL
    AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)))
GROUP BY j.kind, j.state ORDER BY j.kind, j.state;

-- name: list_group_results
-- Those that ended last. The sort carries no payloads.
SELECT r.id, r.kind, r.result, r.result_ref FROM job AS r WHERE r.seq IN (
    SELECT j.seq FROM job AS j INDEXED BY job_group_member
    WHERE j.group_name = :name AND j.group_name IS NOT NULL AND j.state = 'succeeded'
        AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY j.finished_at DESC, j.id DESC LIMIT :limit)
ORDER BY r.finished_at DESC, r.id DESC;

-- name: list_group_errors
SELECT j.id, j.kind, j.state, substr(j.error, 1, :length) AS error FROM job AS j INDEXED BY job_group_member
WHERE j.group_name = :name AND j.group_name IS NOT NULL AND j.state IN ('failed', 'timed_out')
    AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)))
ORDER BY j.finished_at DESC, j.id DESC LIMIT :limit;

-- name: count_group_questions
SELECT count(*) AS questions FROM job AS j INDEXED BY job_group_live CROSS JOIN question AS q ON q.job_id = j.id
WHERE j.group_name = :name AND j.group_name IS NOT NULL
    AND j.state IN ('pending', 'queued', 'running', 'waiting', 'paused') AND q.closed_at IS NULL
    AND (:kinds IS NULL OR j.kind IN (SELECT value FROM json_each(:kinds)));

-- name: stop_group
-- A hold outlasts a later stop: only a release lifts it.
UPDATE job_group SET state = CASE WHEN state = 'held' THEN 'held' ELSE 'stopped' END, reason = :reason,
    version = version + 1, changed_by = :actor, changed_at = :now
WHERE name = :name;

-- name: hold_group
INSERT INTO job_group (name, state, reason, changed_by, changed_at) VALUES (:name, 'held', :reason, :actor, :now)
ON CONFLICT (name) DO UPDATE SET state = 'held', reason = excluded.reason, version = version + 1,
    changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: release_group
UPDATE job_group SET state = 'active', reason = NULL, version = version + 1, changed_by = :actor, changed_at = :now
WHERE name = :name AND state = 'held' RETURNING name;

-- name: lock_groups
-- In name order, and after the jobs.
SELECT name, state, reason, version, changed_by, changed_at FROM job_group
WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name;

-- name: file_groups
-- For jobs that come into the group cancelled: they neither reopen it nor does its hold keep them out.
INSERT INTO job_group (name)
SELECT n.value FROM json_each(:names) AS n WHERE true
ON CONFLICT (name) DO UPDATE SET version = version + 1;
