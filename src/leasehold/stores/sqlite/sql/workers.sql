-- name: beat_worker
INSERT INTO leasehold_worker (worker, queues, tasks, sites, tenants, concurrency, running, draining, version, started_at, seen_at)
VALUES (:worker, :queues, :tasks, :sites, :tenants, :concurrency, :running, :draining, :version, :now, :now)
ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, tasks = excluded.tasks, sites = excluded.sites,
    tenants = excluded.tenants, concurrency = excluded.concurrency, running = excluded.running, draining = excluded.draining,
    version = excluded.version, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM leasehold_worker WHERE worker = :worker;

-- name: forget_silent_workers
DELETE FROM leasehold_worker WHERE seen_at < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: list_workers
SELECT worker, queues, tasks, sites, tenants, concurrency, running, draining, version, started_at, seen_at
FROM leasehold_worker WHERE seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER) ORDER BY worker;

-- name: list_leases
-- Who runs what, in the order in which the jobs came. Leases are few, whatever has ended.
SELECT l.job AS seq, j.id AS job_id, j.task, j.queue, j.group_name, l.attempt, o.name AS worker, l.started_at, l.expires_at,
    CASE l.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested, :now AS now
FROM leasehold_lease AS l CROSS JOIN leasehold_job AS j ON j.seq = l.job
    LEFT JOIN leasehold_worker_name AS o ON o.number = l.worker
WHERE l.job > :after AND (:worker IS NULL OR o.name = :worker) ORDER BY l.job LIMIT :limit;

-- name: list_executions
-- What runs outside, watched or not, the oldest first. Reads leases and orphans, which are few, and no other rows.
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
-- Lanes that somebody holds or that stand still, and by which job. Whoever has started and waits in the queue for the
-- next try keeps its lane too, but it is not what people look for here.
SELECT h.lane, j.id,
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
