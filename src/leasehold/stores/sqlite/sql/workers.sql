-- name: beat_worker
INSERT INTO worker (owner, queues, kinds, sites, concurrency, running, draining, version, started_at, seen_at)
VALUES (:owner, :queues, :kinds, :sites, :concurrency, :running, :draining, :version, :now, :now)
ON CONFLICT (owner) DO UPDATE SET queues = excluded.queues, kinds = excluded.kinds, sites = excluded.sites,
    concurrency = excluded.concurrency, running = excluded.running, draining = excluded.draining,
    version = excluded.version, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM worker WHERE owner = :owner;

-- name: forget_silent_workers
DELETE FROM worker WHERE seen_at < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: list_workers
SELECT owner, queues, kinds, sites, concurrency, running, draining, version, started_at, seen_at
FROM worker WHERE seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER) ORDER BY owner;

-- name: list_lanes
-- Lanes that somebody holds or that stand still, and by which job.
SELECT lane, id, state, kind, error, reason, lease_owner FROM job INDEXED BY job_lane_held
WHERE lane IS NOT NULL AND lane_at = 0
    AND (state IN ('queued', 'running', 'waiting', 'paused') OR halts_lane) AND state = 'running'
UNION ALL
SELECT lane, id, state, kind, error, reason, lease_owner FROM job INDEXED BY job_lane_halt
WHERE lane IS NOT NULL AND (state IN ('waiting', 'paused') OR (state IN ('failed', 'timed_out') AND halts_lane))
ORDER BY lane, id LIMIT :limit;

-- name: list_gates
SELECT DISTINCT queue, kind FROM gate ORDER BY queue, kind;
