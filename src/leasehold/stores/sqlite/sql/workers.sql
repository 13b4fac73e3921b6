-- name: beat_worker
INSERT INTO leasehold_worker (owner, queues, kinds, sites, concurrency, running, draining, version, started_at, seen_at)
VALUES (:owner, :queues, :kinds, :sites, :concurrency, :running, :draining, :version, :now, :now)
ON CONFLICT (owner) DO UPDATE SET queues = excluded.queues, kinds = excluded.kinds, sites = excluded.sites,
    concurrency = excluded.concurrency, running = excluded.running, draining = excluded.draining,
    version = excluded.version, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM leasehold_worker WHERE owner = :owner;

-- name: forget_silent_workers
DELETE FROM leasehold_worker WHERE seen_at < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: list_workers
SELECT owner, queues, kinds, sites, concurrency, running, draining, version, started_at, seen_at
FROM leasehold_worker WHERE seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER) ORDER BY owner;

-- name: list_lanes
-- Lanes that somebody holds or that stand still, and by which job. Whoever has started and waits in the queue for the
-- next try keeps its lane too, but it is not what people look for here.
SELECT h.lane, j.id,
    CASE WHEN o.state IS NOT NULL THEN CASE o.state WHEN 3 THEN 'failed' ELSE 'timed_out' END
         ELSE CASE p.state WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END END AS state,
    j.kind, coalesce(o.error, t.error) AS error,
    CASE WHEN o.state IS NOT NULL THEN o.reason WHEN p.state IS NOT NULL THEN p.reason
         WHEN l.stop <> 0 THEN t.reason END AS reason,
    (SELECT w.name FROM leasehold_owner AS w WHERE w.number = l.owner) AS lease_owner
FROM (
    SELECT x.lane, x.job FROM leasehold_lane_hold AS x
    UNION ALL SELECT x.lane, x.job FROM leasehold_lane_stop AS x) AS h
CROSS JOIN leasehold_job AS j ON j.seq = h.job LEFT JOIN leasehold_lease AS l ON l.job = h.job
LEFT JOIN leasehold_parked AS p ON p.job = h.job LEFT JOIN leasehold_outcome AS o ON o.job = h.job
LEFT JOIN leasehold_trouble AS t ON t.job = h.job
WHERE coalesce(l.token, p.token, o.token) IS NOT NULL ORDER BY h.lane, h.job LIMIT :limit;

-- name: list_gates
SELECT DISTINCT queue, kind FROM leasehold_gate ORDER BY queue, kind;
