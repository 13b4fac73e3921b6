-- name: get_group
SELECT name, state, reason, version, changed_by, changed_at, stop_scope, stop_mode, stop_reason, stopped_by, stopped_at
FROM leasehold.job_group WHERE name = :name;

-- name: list_groups
-- Jobs are counted up to a cap, along their group's key: a page costs the same however many have ended, once the table
-- was vacuumed.
SELECT g.name, g.state, g.reason, g.version, g.live, g.changed_by, g.changed_at, g.stop_scope, g.stop_mode, g.stop_reason,
    g.stopped_by, g.stopped_at,
    (SELECT count(*) FROM (SELECT 1 FROM leasehold.member AS m WHERE m.group_name = g.name LIMIT :cap) AS x) AS total
FROM leasehold.job_group AS g WHERE g.name > :after ORDER BY g.name LIMIT :limit;

-- name: list_groups_in
-- Written so that only the index by state has the order: the groups in one state may be few.
SELECT g.name, g.state, g.reason, g.version, g.live, g.changed_by, g.changed_at, g.stop_scope, g.stop_mode, g.stop_reason,
    g.stopped_by, g.stopped_at,
    (SELECT count(*) FROM (SELECT 1 FROM leasehold.member AS m WHERE m.group_name = g.name LIMIT :cap) AS x) AS total
FROM leasehold.job_group AS g WHERE (g.state, g.name) > (:state, :after) AND g.state <= :state
ORDER BY g.state, g.name LIMIT :limit;

-- name: group_versions
-- Reads the versions of all watched groups at once.
SELECT name, version FROM leasehold.job_group WHERE name = ANY(:names::text[]);

-- name: read_group_counts
-- Reads the group and its jobs in one statement: counts that are newer than the version would look like no change.
SELECT g.name, g.state, g.reason, g.version, g.changed_by, g.changed_at, g.stop_scope, g.stop_mode, g.stop_reason,
    g.stopped_by, g.stopped_at, c.task, c.state AS job_state, c.jobs
FROM leasehold.job_group AS g LEFT JOIN (
    SELECT s.task, s.state, count(*) AS jobs FROM (
        SELECT j.task,
-- include: state_of_number
        AS state FROM (
            SELECT x.seq AS number, x.task FROM leasehold.job AS x WHERE x.seq = ANY(ARRAY(
                SELECT m.job FROM leasehold.member AS m WHERE m.group_name = :name))) AS j
        WHERE :tasks::text[] IS NULL OR j.task = ANY(:tasks::text[])) AS s
    GROUP BY s.task, s.state) AS c ON true
WHERE g.name = :name ORDER BY c.task, c.state;

-- name: list_group_results
-- The jobs that ended last. The sort carries no payloads.
SELECT j.id, j.task, o.result, o.result_ref FROM (
    SELECT x.job, x.finished_at FROM leasehold.outcome AS x
    WHERE x.job = ANY(ARRAY(SELECT m.job FROM leasehold.member AS m WHERE m.group_name = :name)) AND x.state = 1
      AND (:tasks::text[] IS NULL
        OR (SELECT j.task FROM leasehold.job AS j WHERE j.seq = x.job) = ANY(:tasks::text[]))
    ORDER BY x.finished_at DESC, x.job DESC LIMIT :limit) AS d, LATERAL (
    SELECT x.id, x.task FROM leasehold.job AS x WHERE x.seq = d.job LIMIT 1) AS j, LATERAL (
    SELECT x.result, x.result_ref FROM leasehold.outcome AS x WHERE x.job = d.job LIMIT 1) AS o
ORDER BY d.finished_at DESC, d.job DESC;

-- name: list_group_errors
SELECT j.id, j.task, CASE o.state WHEN 3 THEN 'failed' ELSE 'timed_out' END AS state,
    substr(coalesce(o.error, (SELECT x.error FROM leasehold.failure_state AS x WHERE x.job = d.job)), 1, :length) AS error
FROM (
    SELECT x.job, x.finished_at FROM leasehold.outcome AS x
    WHERE x.job = ANY(ARRAY(SELECT m.job FROM leasehold.member AS m WHERE m.group_name = :name)) AND x.state IN (3, 4)
      AND (:tasks::text[] IS NULL
        OR (SELECT j.task FROM leasehold.job AS j WHERE j.seq = x.job) = ANY(:tasks::text[]))
    ORDER BY x.finished_at DESC, x.job DESC LIMIT :limit) AS d, LATERAL (
    SELECT x.id, x.task FROM leasehold.job AS x WHERE x.seq = d.job LIMIT 1) AS j, LATERAL (
    SELECT x.state, x.error FROM leasehold.outcome AS x WHERE x.job = d.job LIMIT 1) AS o
ORDER BY d.finished_at DESC, d.job DESC;

-- name: count_group_questions
-- Counts from the open questions, which are few. A failed job keeps its questions open: it may be resumed.
SELECT count(*) AS questions FROM leasehold.question AS q, LATERAL (
    SELECT x.seq, x.task, x.group_name FROM leasehold.job AS x WHERE x.id = q.job_id LIMIT 1) AS j
WHERE q.closed_at IS NULL AND j.group_name = :name AND (:tasks::text[] IS NULL OR j.task = ANY(:tasks::text[]))
    AND (SELECT 1 FROM leasehold.outcome AS o WHERE o.job = j.seq) IS NULL;

-- name: stop_group
-- A hold outlasts a later stop: only a release lifts it.
UPDATE leasehold.job_group SET state = CASE WHEN state = 'held' THEN 'held' ELSE 'stopped' END, reason = :reason,
    version = version + 1, changed_by = :actor, changed_at = :now
WHERE name = :name;

-- name: hold_group
INSERT INTO leasehold.job_group AS g (name, state, reason, changed_by, changed_at)
VALUES (:name, 'held', :reason, :actor, :now)
ON CONFLICT (name) DO UPDATE SET state = 'held', reason = excluded.reason, version = g.version + 1,
    changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: note_stops
UPDATE leasehold.job_group SET stop_scope = :scope::json, stop_mode = :mode, stop_reason = :reason, stopped_by = :actor,
    stopped_at = :now
WHERE name = ANY(:names::text[]);

-- name: release_group
UPDATE leasehold.job_group SET state = 'active', reason = NULL, version = version + 1, changed_by = :actor,
    changed_at = :now
WHERE name = :name AND state = 'held' RETURNING name;

-- name: lock_groups
-- Locks groups in name order, after the jobs.
SELECT name, state, reason, version, changed_by, changed_at, stop_scope, stop_mode, stop_reason, stopped_by, stopped_at
FROM leasehold.job_group
WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE;

-- name: touch_groups
-- Makes the group with its first job; its new version shows watchers that something has changed. A group on hold is not
-- returned: no job must enter it. Follow-ups do not reopen a stopped group. In name order: two transactions that touch
-- the same groups must not wait for each other in a circle.
INSERT INTO leasehold.job_group AS g (name, live)
SELECT r.name, r.live FROM json_to_recordset(:groups::json) AS r(name text, live bigint) ORDER BY r.name
ON CONFLICT (name) DO UPDATE SET version = g.version + 1, live = g.live + excluded.live,
    state = CASE WHEN :reopens::boolean THEN 'active' ELSE g.state END, reason = CASE WHEN :reopens::boolean THEN NULL ELSE g.reason END
WHERE g.state <> 'held'
RETURNING name, live, version;

-- name: add_cancelled_to_groups
-- Adds jobs that enter the group cancelled: they do not reopen it, and its hold does not keep them out.
INSERT INTO leasehold.job_group AS g (name, live)
SELECT r.name, r.live FROM json_to_recordset(:groups::json) AS r(name text, live bigint) ORDER BY r.name
ON CONFLICT (name) DO UPDATE SET version = g.version + 1, live = g.live + excluded.live
RETURNING g.name, g.live, g.version;

-- name: group_notes
-- How much the attempts of each of these groups have reported. By the leases, which are few however large the group is.
SELECT j.group_name AS name,
    sum(coalesce((SELECT s.last_seq FROM leasehold.stream AS s WHERE s.job_id = j.id), 0))::bigint AS noted
FROM leasehold.lease AS l, LATERAL (
    SELECT x.id, x.group_name FROM leasehold.job AS x WHERE x.seq = l.job LIMIT 1) AS j
WHERE j.group_name = ANY(:names::text[]) GROUP BY j.group_name;

-- name: list_group_running
SELECT j.id, j.task, l.attempt, e.data AS progress, e.at
FROM leasehold.lease AS l CROSS JOIN LATERAL (
    SELECT x.id, x.task, x.group_name FROM leasehold.job AS x WHERE x.seq = l.job LIMIT 1) AS j LEFT JOIN LATERAL (
    SELECT x.data, x.at FROM leasehold.job_update AS x WHERE x.job_id = j.id AND x.kind = 'progress' LIMIT 1) AS e ON true
WHERE j.group_name = :name AND (:tasks::text[] IS NULL OR j.task = ANY(:tasks::text[]))
ORDER BY l.job LIMIT :limit;

-- name: list_emitted
-- The last :limit updates of each job, in order.
SELECT e.* FROM unnest(:ids::uuid[]) AS r(id), LATERAL (
    SELECT x.job_id, x.seq, x.kind, x.data, x.key, x.attempt, x.at FROM leasehold.job_update AS x
    WHERE x.job_id = r.id AND x.kind NOT IN ('progress', 'stalled') ORDER BY x.seq DESC LIMIT :limit) AS e
ORDER BY e.job_id, e.seq;
