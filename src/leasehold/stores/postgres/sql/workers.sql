-- name: report_worker
INSERT INTO leasehold.worker (worker, queues, tasks, sites, tenants, concurrency, running, draining, version, problems, started_at, seen_at)
VALUES (:worker, :queues, :tasks, :sites, :tenants, :concurrency, :running, :draining, :version, :problems, :now, :now)
ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, tasks = excluded.tasks, sites = excluded.sites,
    tenants = excluded.tenants, concurrency = excluded.concurrency, running = excluded.running, draining = excluded.draining,
    version = excluded.version, problems = excluded.problems, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM leasehold.worker WHERE worker = :worker;

-- name: forget_silent_workers
DELETE FROM leasehold.worker WHERE seen_at < :now - :age::double precision * interval '1 second';

-- name: list_workers
SELECT worker, queues, tasks, sites, tenants, concurrency, running, draining, version, problems, started_at, seen_at
FROM leasehold.worker WHERE seen_at >= :now - :age::double precision * interval '1 second' ORDER BY worker;

-- name: list_leases
-- Which worker runs what, in the order in which the jobs came. Leases are few, however many jobs have ended.
SELECT l.job AS seq, j.id AS job_id, j.task, j.queue, j.group_name, l.attempt, l.worker, l.started_at, l.expires_at,
    CASE l.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested, :now AS now
FROM (
    SELECT x.job, x.attempt, x.started_at, x.expires_at, x.stop,
        (SELECT o.name FROM leasehold.worker_name AS o WHERE o.number = x.worker) AS worker
    FROM leasehold.lease AS x WHERE x.job > :after) AS l CROSS JOIN LATERAL (
    SELECT x.id, x.task, x.queue, x.group_name FROM leasehold.job AS x WHERE x.seq = l.job LIMIT 1) AS j
WHERE :worker::text IS NULL OR l.worker = :worker ORDER BY l.job LIMIT :limit;

-- name: list_executions
-- Executions, watched by a worker or not, the oldest first. Reads leases and orphans, which are few, and no other rows.
SELECT j.id AS job_id, j.task, j.queue, p.attempt, x.site, x.name, o.name AS worker, x.placed_at, x.started_at,
    CASE p.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested
FROM (
    SELECT l.job, l.attempt, l.worker, l.stop FROM leasehold.lease AS l
    UNION ALL
    SELECT k.job, k.attempt, NULL, k.stop FROM leasehold.parked AS k WHERE k.state = 4) AS p
JOIN leasehold.execution AS x ON x.job = p.job AND x.attempt = p.attempt
JOIN leasehold.job AS j ON j.seq = p.job LEFT JOIN leasehold.worker_name AS o ON o.number = p.worker
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
    (SELECT w.name FROM leasehold.worker_name AS w WHERE w.number = l.worker) AS worker
FROM (
    SELECT x.lane, x.job FROM leasehold.lane_hold AS x UNION ALL SELECT x.lane, x.job FROM leasehold.lane_stop AS x
    ORDER BY lane, job) AS h, LATERAL (
    SELECT x.id, x.seq, x.task FROM leasehold.job AS x WHERE x.seq = h.job LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.lease AS x WHERE x.job = j.seq LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.parked AS x WHERE x.job = j.seq LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.failure_state AS x WHERE x.job = j.seq LIMIT 1) AS t ON true
WHERE coalesce(l.token, p.token, o.token) IS NOT NULL ORDER BY h.lane, h.job LIMIT :limit;

-- name: list_gates
SELECT DISTINCT queue, task FROM leasehold.gate ORDER BY queue, task;

-- name: store_now
SELECT :now AS now;

-- name: count_by_queue
-- What has not ended yet, or needs attention. Of each place at most :cap rows are read; the gate gives queue and task.
SELECT g.queue, g.task, c.state, sum(c.jobs)::bigint AS jobs FROM (
    SELECT p.gate, 'queued' AS state, count(*) AS jobs FROM (
        SELECT gate FROM leasehold.ready LIMIT :cap) AS p GROUP BY p.gate
    UNION ALL
    SELECT p.gate, 'queued', count(*) FROM (SELECT gate FROM leasehold.lane_place LIMIT :cap) AS p GROUP BY p.gate
    UNION ALL
    SELECT j.gate, p.state, count(*) FROM (
        (SELECT job, 'running' AS state FROM leasehold.lease LIMIT :cap)
        UNION ALL (SELECT job, 'running' FROM leasehold.parked WHERE state = 4 LIMIT :cap)
        UNION ALL (SELECT job, 'pending' FROM leasehold.parked WHERE state = 1 LIMIT :cap)
        UNION ALL (SELECT job, 'waiting' FROM leasehold.parked WHERE state = 2 LIMIT :cap)
        UNION ALL (SELECT job, 'paused' FROM leasehold.parked WHERE state = 3 LIMIT :cap)
        UNION ALL (SELECT job, 'failed' FROM leasehold.outcome WHERE state = 3 LIMIT :cap)
        UNION ALL (SELECT job, 'timed_out' FROM leasehold.outcome WHERE state = 4 LIMIT :cap)) AS p, LATERAL (
        SELECT x.gate FROM leasehold.job AS x WHERE x.seq = p.job LIMIT 1) AS j
    GROUP BY j.gate, p.state) AS c
JOIN leasehold.gate AS g ON g.id = c.gate
GROUP BY g.queue, g.task, c.state ORDER BY g.queue, g.task, c.state;

-- name: list_stuck_lanes
-- A lane that nothing blocks, whose head is due, and that has no due ticket. There must never be one.
SELECT h.lane FROM (
    SELECT p.lane, p.seq, p.available_at, row_number() OVER (PARTITION BY p.lane ORDER BY p.lane_at, p.seq) AS place
    FROM leasehold.lane_place AS p WHERE p.lane_at <= :now) AS h
WHERE h.place = 1 AND h.available_at <= :now
  AND NOT EXISTS (SELECT 1 FROM leasehold.lane_hold AS b WHERE b.lane = h.lane AND b.job <> h.seq)
  AND NOT EXISTS (SELECT 1 FROM leasehold.lane_stop AS b WHERE b.lane = h.lane)
  AND h.lane NOT IN (SELECT t.lane FROM leasehold.ticket AS t WHERE t.available_at <= :now)
ORDER BY h.lane LIMIT :limit;

-- name: list_stuck_children
-- Pending without a hold, and no job that it waits for can still end. There must never be one.
SELECT j.id FROM leasehold.parked AS p JOIN leasehold.job AS j ON j.seq = p.job
WHERE p.state = 1 AND NOT p.held AND NOT EXISTS (
    SELECT 1 FROM leasehold.dependency AS d JOIN leasehold.job AS a ON a.id = d.parent_id
    WHERE d.child_id = j.id AND NOT d.met AND (SELECT 1 FROM leasehold.outcome AS o WHERE o.job = a.seq) IS NULL)
ORDER BY j.seq LIMIT :limit;

-- name: list_long_expired
-- Leases that expired so long ago that a worker should have taken the job over.
SELECT (SELECT j.id FROM leasehold.job AS j WHERE j.seq = l.job) AS id FROM leasehold.lease AS l
WHERE l.expires_at < :now - :age::double precision * interval '1 second' LIMIT :limit;

-- name: list_misplaced
-- What breaks "a job is in exactly one place", and groups that miscount their jobs. There must never be any. Of jobs
-- and their outcomes the newest :rows are read: a store may hold tens of millions. A number without a job is returned
-- as it is. A job of a group is special: plain ones need not be read. Everything is counted in one pass: a join of two
-- long lists, of which a few rows are wanted, may be planned as a nested loop.
WITH recent AS (SELECT coalesce((SELECT seq FROM leasehold.job ORDER BY seq DESC LIMIT 1 OFFSET :rows), 0) AS seq),
odd AS MATERIALIZED (
    SELECT p.seq, sum(p.jobs) AS jobs, count(*) - sum(p.jobs) AS places FROM (
        SELECT seq, 1 AS jobs FROM leasehold.job WHERE seq > (SELECT seq FROM recent)
        UNION ALL SELECT seq, 0 FROM leasehold.ready
        UNION ALL SELECT seq, 0 FROM leasehold.lane_place
        UNION ALL SELECT job, 0 FROM leasehold.lease
        UNION ALL SELECT job, 0 FROM leasehold.parked
        UNION ALL SELECT job, 0 FROM leasehold.outcome WHERE job > (SELECT seq FROM recent)) AS p
    GROUP BY p.seq HAVING sum(p.jobs) <> 1 OR count(*) <> 2),
miscounted AS MATERIALIZED (
    SELECT c.name FROM (
        SELECT name, live FROM leasehold.job_group
        UNION ALL
        SELECT j.group_name, -1 FROM (
            SELECT seq FROM leasehold.ready WHERE special > 0
            UNION ALL SELECT seq FROM leasehold.lane_place
            UNION ALL SELECT job FROM leasehold.lease WHERE special > 0
            UNION ALL SELECT job FROM leasehold.parked) AS p, LATERAL (
            SELECT q.group_name FROM leasehold.job AS q WHERE q.seq = p.seq LIMIT 1) AS j
        WHERE j.group_name IS NOT NULL) AS c
    GROUP BY c.name HAVING sum(c.live) <> 0)
SELECT m.what, m.id FROM (
    SELECT 'nowhere' AS what, (SELECT j.id FROM leasehold.job AS j WHERE j.seq = o.seq)::text AS id FROM odd AS o
    WHERE o.places = 0
    UNION ALL
    SELECT 'twice', coalesce((SELECT j.id FROM leasehold.job AS j WHERE j.seq = o.seq)::text, o.seq::text)
    FROM odd AS o WHERE o.places > 1
    UNION ALL
    SELECT 'no_job', o.seq::text FROM odd AS o
    WHERE o.jobs = 0 AND (SELECT 1 FROM leasehold.job AS j WHERE j.seq = o.seq) IS NULL
    UNION ALL
    SELECT 'group', name FROM miscounted) AS m
LIMIT :limit;

-- name: list_definitions
-- All tables, views, indexes and constraints, as text that names them. An index that failed to build is left out.
SELECT CASE c.relkind WHEN 'v' THEN 'CREATE VIEW ' ELSE 'CREATE TABLE ' END || c.relname AS definition
FROM pg_class AS c
WHERE c.relkind IN ('r', 'v')
    AND c.relnamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass)
UNION ALL
SELECT 'CREATE INDEX ' || c.relname FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE i.indisvalid
    AND c.relnamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass)
UNION ALL
SELECT 'CONSTRAINT ' || k.conname FROM pg_constraint AS k
WHERE k.connamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass);

-- name: list_missing_tables
-- Which of these tables and views the schema lacks.
SELECT wanted.name
FROM unnest(:names::text[]) AS wanted (name)
WHERE NOT EXISTS (
    SELECT 1
    FROM pg_class AS c
    WHERE c.relname = wanted.name
        AND c.relkind IN ('r', 'v')
        AND c.relnamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass)
)
ORDER BY wanted.name;
