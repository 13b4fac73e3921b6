-- name: beat_worker
INSERT INTO leasehold.worker (owner, queues, kinds, sites, concurrency, running, draining, version, started_at, seen_at)
VALUES (:owner, :queues, :kinds, :sites, :concurrency, :running, :draining, :version, :now, :now)
ON CONFLICT (owner) DO UPDATE SET queues = excluded.queues, kinds = excluded.kinds, sites = excluded.sites,
    concurrency = excluded.concurrency, running = excluded.running, draining = excluded.draining,
    version = excluded.version, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM leasehold.worker WHERE owner = :owner;

-- name: forget_silent_workers
DELETE FROM leasehold.worker WHERE seen_at < :now - :age::double precision * interval '1 second';

-- name: list_workers
SELECT owner, queues, kinds, sites, concurrency, running, draining, version, started_at, seen_at
FROM leasehold.worker WHERE seen_at >= :now - :age::double precision * interval '1 second' ORDER BY owner;

-- name: list_lanes
-- Lanes that somebody holds or that stand still, and by which job. Whoever has started and waits in the queue for the
-- next try keeps its lane too, but it is not what people look for here.
SELECT h.lane, j.id,
    CASE WHEN o.state IS NOT NULL THEN CASE o.state WHEN 3 THEN 'failed' ELSE 'timed_out' END
         ELSE CASE p.state WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END END AS state,
    j.kind, coalesce(o.error, t.error) AS error,
    CASE WHEN o.state IS NOT NULL THEN o.reason WHEN p.state IS NOT NULL THEN p.reason
         WHEN l.stop <> 0 THEN t.reason END AS reason,
    (SELECT w.name FROM leasehold.owner AS w WHERE w.number = l.owner) AS lease_owner
FROM (
    SELECT x.lane, x.job FROM leasehold.lane_hold AS x UNION ALL SELECT x.lane, x.job FROM leasehold.lane_stop AS x
    ORDER BY lane, job) AS h, LATERAL (
    SELECT x.id, x.seq, x.kind FROM leasehold.job AS x WHERE x.seq = h.job LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.lease AS x WHERE x.job = j.seq LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.parked AS x WHERE x.job = j.seq LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.trouble AS x WHERE x.job = j.seq LIMIT 1) AS t ON true
WHERE coalesce(l.token, p.token, o.token) IS NOT NULL ORDER BY h.lane, h.job LIMIT :limit;

-- name: list_gates
SELECT DISTINCT queue, kind FROM leasehold.gate ORDER BY queue, kind;
