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
SELECT h.lane, s.id, s.state, s.kind, s.error, s.reason, s.lease_owner FROM (
    SELECT x.lane, x.job FROM leasehold.lane_hold AS x UNION ALL SELECT x.lane, x.job FROM leasehold.lane_stop AS x
    ORDER BY lane, job) AS h, LATERAL (
    SELECT r.id, r.kind, r.state, r.error, r.reason, r.lease_owner
    FROM leasehold.job_row AS r WHERE r.seq = h.job AND r.state <> 'queued' LIMIT 1) AS s
ORDER BY h.lane, h.job LIMIT :limit;

-- name: list_gates
SELECT DISTINCT queue, kind FROM leasehold.gate ORDER BY queue, kind;
