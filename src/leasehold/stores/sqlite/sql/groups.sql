-- name: get_group
SELECT name, state, reason, version, changed_by, changed_at, stop_scope, stop_mode, stop_reason, stopped_by, stopped_at
FROM leasehold_job_group WHERE name = :name;

-- name: list_groups
-- Jobs are counted up to a cap, along their group's key: a page costs the same however many have ended.
SELECT g.name, g.state, g.reason, g.version, g.live, g.changed_by, g.changed_at, g.stop_scope, g.stop_mode, g.stop_reason,
    g.stopped_by, g.stopped_at,
    (SELECT count(*) FROM (SELECT 1 FROM leasehold_member AS m WHERE m.group_name = g.name LIMIT :cap) AS x) AS total
FROM leasehold_job_group AS g WHERE g.name > :after ORDER BY g.name LIMIT :limit;

-- name: list_groups_in
-- Written so that only the index by state has the order: the groups in one state may be few.
SELECT g.name, g.state, g.reason, g.version, g.live, g.changed_by, g.changed_at, g.stop_scope, g.stop_mode, g.stop_reason,
    g.stopped_by, g.stopped_at,
    (SELECT count(*) FROM (SELECT 1 FROM leasehold_member AS m WHERE m.group_name = g.name LIMIT :cap) AS x) AS total
FROM leasehold_job_group AS g WHERE (g.state, g.name) > (:state, :after) AND g.state <= :state
ORDER BY g.state, g.name LIMIT :limit;

-- name: group_versions
-- Reads the versions of all watched groups at once.
SELECT name, version FROM leasehold_job_group WHERE name IN (SELECT value FROM json_each(:names));

-- name: read_group_counts
-- Reads the group and its jobs in one statement: counts that are newer than the version would look like no change.
SELECT g.name, g.state, g.reason, g.version, g.changed_by, g.changed_at, g.stop_scope, g.stop_mode, g.stop_reason,
    g.stopped_by, g.stopped_at, c.task, c.state AS job_state, c.jobs
FROM leasehold_job_group AS g LEFT JOIN (
    SELECT s.task, s.state, count(*) AS jobs FROM (
        SELECT j.task,
-- include: state_of_number
        AS state FROM (SELECT m.job AS number FROM leasehold_member AS m WHERE m.group_name = :name) AS d
        CROSS JOIN leasehold_job AS j ON j.seq = d.number
        WHERE :tasks IS NULL OR j.task IN (SELECT value FROM json_each(:tasks))) AS s
    GROUP BY s.task, s.state) AS c ON true
WHERE g.name = :name ORDER BY c.task, c.state;

-- name: list_group_results
-- The jobs that ended last. The sort carries no payloads.
SELECT j.id, j.task, o.result, o.result_ref FROM (
    SELECT m.job, e.finished_at
    FROM leasehold_member AS m CROSS JOIN leasehold_outcome AS e ON e.job = m.job AND e.state = 1
    WHERE m.group_name = :name AND (:tasks IS NULL
        OR (SELECT x.task FROM leasehold_job AS x WHERE x.seq = m.job) IN (SELECT value FROM json_each(:tasks)))
    ORDER BY e.finished_at DESC, m.job DESC LIMIT :limit) AS d
CROSS JOIN leasehold_job AS j ON j.seq = d.job CROSS JOIN leasehold_outcome AS o ON o.job = d.job
ORDER BY d.finished_at DESC, d.job DESC;

-- name: list_group_errors
SELECT j.id, j.task, CASE o.state WHEN 3 THEN 'failed' ELSE 'timed_out' END AS state,
    substr(coalesce(o.error, (SELECT x.error FROM leasehold_failure_state AS x WHERE x.job = d.job)), 1, :length) AS error
FROM (
    SELECT m.job, e.finished_at
    FROM leasehold_member AS m CROSS JOIN leasehold_outcome AS e ON e.job = m.job AND e.state IN (3, 4)
    WHERE m.group_name = :name AND (:tasks IS NULL
        OR (SELECT x.task FROM leasehold_job AS x WHERE x.seq = m.job) IN (SELECT value FROM json_each(:tasks)))
    ORDER BY e.finished_at DESC, m.job DESC LIMIT :limit) AS d
CROSS JOIN leasehold_job AS j ON j.seq = d.job CROSS JOIN leasehold_outcome AS o ON o.job = d.job
ORDER BY d.finished_at DESC, d.job DESC;

-- name: count_group_questions
-- Counts from the open questions, which are few. A failed job keeps its questions open: it may be resumed.
SELECT count(*) AS questions
FROM leasehold_question AS q INDEXED BY leasehold_question_open CROSS JOIN leasehold_job AS j ON j.id = q.job_id
WHERE q.closed_at IS NULL AND j.group_name = :name
    AND (:tasks IS NULL OR j.task IN (SELECT value FROM json_each(:tasks)))
    AND (SELECT 1 FROM leasehold_outcome AS o WHERE o.job = j.seq) IS NULL;

-- name: stop_group
-- A hold outlasts a later stop: only a release lifts it.
UPDATE leasehold_job_group SET state = CASE WHEN state = 'held' THEN 'held' ELSE 'stopped' END, reason = :reason,
    version = version + 1, changed_by = :actor, changed_at = :now
WHERE name = :name;

-- name: hold_group
INSERT INTO leasehold_job_group AS g (name, state, reason, changed_by, changed_at)
VALUES (:name, 'held', :reason, :actor, :now)
ON CONFLICT (name) DO UPDATE SET state = 'held', reason = excluded.reason, version = g.version + 1,
    changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: note_stops
-- An INSERT that always meets the row that is there, as bump_groups does: an UPDATE may go through all groups.
INSERT INTO leasehold_job_group (name)
SELECT g.name FROM json_each(:names) AS r CROSS JOIN leasehold_job_group AS g ON g.name = r.value WHERE true
ON CONFLICT (name) DO UPDATE SET stop_scope = :scope, stop_mode = :mode, stop_reason = :reason, stopped_by = :actor,
    stopped_at = :now;

-- name: release_group
UPDATE leasehold_job_group SET state = 'active', reason = NULL, version = version + 1, changed_by = :actor,
    changed_at = :now
WHERE name = :name AND state = 'held' RETURNING name;

-- name: lock_groups
-- Locks groups in name order, after the jobs.
SELECT name, state, reason, version, changed_by, changed_at, stop_scope, stop_mode, stop_reason, stopped_by, stopped_at
FROM leasehold_job_group
WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name;

-- name: touch_groups
-- Makes the group with its first job; its new version shows watchers that something has changed. A group on hold is not
-- returned: no job must enter it. Follow-ups do not reopen a stopped group.
INSERT INTO leasehold_job_group AS g (name, live)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.live') FROM json_each(:groups) AS r WHERE true
ON CONFLICT (name) DO UPDATE SET version = g.version + 1, live = g.live + excluded.live,
    state = CASE WHEN :reopens THEN 'active' ELSE g.state END, reason = CASE WHEN :reopens THEN NULL ELSE g.reason END
WHERE g.state <> 'held'
RETURNING name, live, version;

-- name: add_cancelled_to_groups
-- Adds jobs that enter the group cancelled: they do not reopen it, and its hold does not keep them out.
INSERT INTO leasehold_job_group AS g (name, live)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.live') FROM json_each(:groups) AS r WHERE true
ON CONFLICT (name) DO UPDATE SET version = g.version + 1, live = g.live + excluded.live
RETURNING name, live, version;

-- name: group_notes
-- How much the attempts of each of these groups have reported. By the leases, which are few however large the group is.
SELECT j.group_name AS name, sum(coalesce((SELECT s.last_seq FROM leasehold_stream AS s WHERE s.job_id = j.id), 0)) AS noted
FROM leasehold_lease AS l CROSS JOIN leasehold_job AS j ON j.seq = l.job
WHERE j.group_name IN (SELECT value FROM json_each(:names)) GROUP BY j.group_name;

-- name: list_group_running
SELECT j.id, j.task, l.attempt, e.data AS progress, e.at
FROM leasehold_lease AS l CROSS JOIN leasehold_job AS j ON j.seq = l.job
    LEFT JOIN leasehold_job_update AS e ON e.job_id = j.id AND e.kind = 'progress'
WHERE j.group_name = :name AND (:tasks IS NULL OR j.task IN (SELECT value FROM json_each(:tasks)))
ORDER BY l.job LIMIT :limit;

-- name: list_emitted
-- The last :limit updates of each job, in order.
SELECT e.job_id, e.seq, e.kind, e.data, e.key, e.attempt, e.at FROM json_each(:ids) AS r
CROSS JOIN leasehold_job_update AS e ON e.rowid IN (
    SELECT x.rowid FROM leasehold_job_update AS x
    WHERE x.job_id = r.value AND x.kind NOT IN ('progress', 'stalled') ORDER BY x.seq DESC LIMIT :limit)
ORDER BY e.job_id, e.seq;
