-- name: report_worker
INSERT INTO leasehold_worker (worker, queues, tasks, sites, tenants, concurrency, running, draining, version, problems, started_at, seen_at)
VALUES (:worker, :queues, :tasks, :sites, :tenants, :concurrency, :running, :draining, :version, :problems, :now, :now)
ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, tasks = excluded.tasks, sites = excluded.sites,
    tenants = excluded.tenants, concurrency = excluded.concurrency, running = excluded.running, draining = excluded.draining,
    version = excluded.version, problems = excluded.problems, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM leasehold_worker WHERE worker = :worker;

-- name: forget_silent_workers
DELETE FROM leasehold_worker WHERE seen_at < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: list_workers
SELECT worker, queues, tasks, sites, tenants, concurrency, running, draining, version, problems, started_at, seen_at
FROM leasehold_worker WHERE seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER) ORDER BY worker;

-- name: list_leases
-- Which worker runs what, in the order in which the jobs came. Leases are few, however many jobs have ended.
SELECT l.job AS seq, j.id AS job_id, j.task, j.queue, j.group_name, l.attempt, o.name AS worker, l.started_at, l.expires_at,
    CASE l.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested, :now AS now
FROM leasehold_lease AS l CROSS JOIN leasehold_job AS j ON j.seq = l.job
    LEFT JOIN leasehold_worker_name AS o ON o.number = l.worker
WHERE l.job > :after AND (:worker IS NULL OR o.name = :worker) ORDER BY l.job LIMIT :limit;

-- name: list_executions
-- Executions, watched by a worker or not, the oldest first. Reads leases and orphans, which are few, and no other rows.
SELECT j.id AS job_id, j.task, j.queue, p.attempt, x.site, x.name, o.name AS worker, x.placed_at, x.started_at,
    CASE p.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested
FROM (
    SELECT l.job, l.attempt, l.worker, l.stop FROM leasehold_lease AS l
    UNION ALL
    SELECT k.job, k.attempt, NULL, k.stop FROM leasehold_parked AS k WHERE k.state = 4) AS p
JOIN leasehold_execution AS x ON x.job = p.job AND x.attempt = p.attempt
JOIN leasehold_job AS j ON j.seq = p.job LEFT JOIN leasehold_worker_name AS o ON o.number = p.worker
ORDER BY x.placed_at, p.job LIMIT :limit;

-- name: list_lanes
-- Lanes that a job holds or blocks, and which job it is. A job that has started and waits in the queue for its next
-- attempt keeps its lane too, but it is not what people search for here.
SELECT h.lane, j.id AS job_id,
    CASE WHEN o.state IS NOT NULL THEN CASE o.state WHEN 3 THEN 'failed' ELSE 'timed_out' END
         ELSE CASE p.state WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END END AS state,
    j.task, coalesce(o.error, t.error) AS error,
    CASE WHEN o.state IS NOT NULL THEN o.reason WHEN p.state IS NOT NULL THEN p.reason
         WHEN l.stop <> 0 THEN t.reason END AS reason,
    (SELECT w.name FROM leasehold_worker_name AS w WHERE w.number = l.worker) AS worker
FROM (
    SELECT x.lane, x.job FROM leasehold_lane_hold AS x
    UNION ALL SELECT x.lane, x.job FROM leasehold_lane_stop AS x) AS h
CROSS JOIN leasehold_job AS j ON j.seq = h.job LEFT JOIN leasehold_lease AS l ON l.job = h.job
LEFT JOIN leasehold_parked AS p ON p.job = h.job LEFT JOIN leasehold_outcome AS o ON o.job = h.job
LEFT JOIN leasehold_failure_state AS t ON t.job = h.job
WHERE coalesce(l.token, p.token, o.token) IS NOT NULL ORDER BY h.lane, h.job LIMIT :limit;

-- name: list_gates
SELECT DISTINCT queue, task FROM leasehold_gate ORDER BY queue, task;

-- name: store_now
SELECT :now AS now;

-- name: count_by_queue
-- What has not ended yet, or needs attention. Of each place at most :cap rows are read; the gate gives queue and task.
SELECT g.queue, g.task, c.state, sum(c.jobs) AS jobs FROM (
    SELECT p.gate, 'queued' AS state, count(*) AS jobs FROM (
        SELECT gate FROM leasehold_ready LIMIT :cap) AS p GROUP BY p.gate
    UNION ALL
    SELECT p.gate, 'queued', count(*) FROM (SELECT gate FROM leasehold_lane_place LIMIT :cap) AS p GROUP BY p.gate
    UNION ALL
    SELECT j.gate, p.state, count(*) FROM (
        SELECT * FROM (SELECT job, 'running' AS state FROM leasehold_lease LIMIT :cap)
        UNION ALL SELECT * FROM (SELECT job, 'running' FROM leasehold_parked WHERE state = 4 LIMIT :cap)
        UNION ALL SELECT * FROM (SELECT job, 'pending' FROM leasehold_parked WHERE state = 1 LIMIT :cap)
        UNION ALL SELECT * FROM (SELECT job, 'waiting' FROM leasehold_parked WHERE state = 2 LIMIT :cap)
        UNION ALL SELECT * FROM (SELECT job, 'paused' FROM leasehold_parked WHERE state = 3 LIMIT :cap)
        UNION ALL SELECT * FROM (SELECT job, 'failed' FROM leasehold_outcome WHERE state <> 1 AND state = 3 LIMIT :cap)
        UNION ALL SELECT * FROM (
            SELECT job, 'timed_out' FROM leasehold_outcome WHERE state <> 1 AND state = 4 LIMIT :cap)) AS p
    CROSS JOIN leasehold_job AS j ON j.seq = p.job
    GROUP BY j.gate, p.state) AS c
JOIN leasehold_gate AS g ON g.id = c.gate
GROUP BY g.queue, g.task, c.state ORDER BY g.queue, g.task, c.state;

-- name: list_stuck_lanes
-- A lane that nothing blocks, whose head is due, and that has no due ticket. There must never be one.
SELECT h.lane FROM (
    SELECT p.lane, p.seq, p.available_at, row_number() OVER (PARTITION BY p.lane ORDER BY p.lane_at, p.seq) AS place
    FROM leasehold_lane_place AS p WHERE p.lane_at <= :now) AS h
WHERE h.place = 1 AND h.available_at <= :now
  AND NOT EXISTS (SELECT 1 FROM leasehold_lane_hold AS b WHERE b.lane = h.lane AND b.job <> h.seq)
  AND NOT EXISTS (SELECT 1 FROM leasehold_lane_stop AS b WHERE b.lane = h.lane)
  AND h.lane NOT IN (SELECT t.lane FROM leasehold_ticket AS t WHERE t.available_at <= :now)
ORDER BY h.lane LIMIT :limit;

-- name: list_stuck_children
-- Pending without a hold, and no job that it waits for can still end. There must never be one.
SELECT j.id FROM leasehold_parked AS p JOIN leasehold_job AS j ON j.seq = p.job
WHERE p.state = 1 AND NOT p.held AND NOT EXISTS (
    SELECT 1 FROM leasehold_dependency AS d JOIN leasehold_job AS a ON a.id = d.parent_id
    WHERE d.child_id = j.id AND NOT d.met AND (SELECT 1 FROM leasehold_outcome AS o WHERE o.job = a.seq) IS NULL)
ORDER BY j.seq LIMIT :limit;

-- name: list_long_expired
-- Leases that expired so long ago that a worker should have taken the job over.
SELECT (SELECT j.id FROM leasehold_job AS j WHERE j.seq = l.job) AS id FROM leasehold_lease AS l
WHERE l.expires_at < :now - CAST(round(:age * 1e6) AS INTEGER) LIMIT :limit;

-- name: list_misplaced
-- What breaks "a job is in exactly one place", and groups that miscount their jobs. There must never be any. Of jobs
-- and their outcomes the newest :rows are read: a store may hold tens of millions. A number without a job is returned
-- as it is. A job of a group is special: plain ones need not be read.
WITH recent AS (SELECT coalesce((SELECT seq FROM leasehold_job ORDER BY seq DESC LIMIT 1 OFFSET :rows), 0) AS seq),
placed AS MATERIALIZED (
    SELECT p.seq, count(*) AS places FROM (
        SELECT seq FROM leasehold_ready
        UNION ALL SELECT seq FROM leasehold_lane_place
        UNION ALL SELECT job FROM leasehold_lease
        UNION ALL SELECT job FROM leasehold_parked
        UNION ALL SELECT job FROM leasehold_outcome WHERE job > (SELECT seq FROM recent)) AS p
    GROUP BY p.seq),
living AS MATERIALIZED (
    SELECT j.group_name, count(*) AS live FROM (
        SELECT seq FROM leasehold_ready WHERE special > 0
        UNION ALL SELECT seq FROM leasehold_lane_place
        UNION ALL SELECT job FROM leasehold_lease WHERE special > 0
        UNION ALL SELECT job FROM leasehold_parked) AS p JOIN leasehold_job AS j ON j.seq = p.seq
    WHERE j.group_name IS NOT NULL GROUP BY j.group_name)
SELECT m.what, m.id FROM (
    SELECT 'nowhere' AS what, j.id FROM leasehold_job AS j
    WHERE j.seq > (SELECT seq FROM recent) AND NOT EXISTS (SELECT 1 FROM placed AS p WHERE p.seq = j.seq)
    UNION ALL
    SELECT 'twice', coalesce((SELECT j.id FROM leasehold_job AS j WHERE j.seq = p.seq), CAST(p.seq AS TEXT))
    FROM placed AS p WHERE p.places > 1
    UNION ALL
    SELECT 'no_job', CAST(p.seq AS TEXT) FROM placed AS p
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_job AS j WHERE j.seq = p.seq)
    UNION ALL
    SELECT 'group', g.name FROM leasehold_job_group AS g LEFT JOIN living AS l ON l.group_name = g.name
    WHERE g.live <> coalesce(l.live, 0)) AS m
LIMIT :limit;

-- name: list_definitions
-- All tables, views, indexes and constraints, as text that names them.
SELECT sql AS definition FROM sqlite_master WHERE sql IS NOT NULL;

-- name: list_missing_tables
-- Which of these tables and views the schema lacks.
SELECT wanted.value AS name
FROM json_each(:names) AS wanted
WHERE wanted.value NOT IN (SELECT there.name FROM sqlite_master AS there WHERE there.type IN ('table', 'view'))
ORDER BY wanted.value;
