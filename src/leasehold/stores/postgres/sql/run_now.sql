-- name: lock_running_cap
-- FOR UPDATE writes no new version of the row, so that thousands of calls leave nothing to vacuum.
SELECT task FROM leasehold.running_cap WHERE task = :task FOR UPDATE;

-- name: insert_running_cap
INSERT INTO leasehold.running_cap (task) VALUES (:task) ON CONFLICT DO NOTHING;

-- name: list_places
-- What runs of a task, the oldest first: under a lease, live or not, and orphans. Reads all leases and orphans, and no
-- other rows: finished and queued jobs of the task may be millions.
SELECT j.id, o.name AS worker, p.started_at, p.expires_at AS lease_expires_at, :now AS now,
    EXISTS (SELECT FROM leasehold.execution AS x WHERE x.job = p.job AND x.attempt = p.attempt OFFSET 0) AS placed FROM (
    SELECT l.job, l.attempt, l.worker, l.started_at, l.expires_at FROM leasehold.lease AS l
    UNION ALL
    SELECT k.job, k.attempt, NULL, k.started_at, NULL FROM leasehold.parked AS k WHERE k.state = 4) AS p, LATERAL (
    SELECT x.id FROM leasehold.job AS x WHERE x.seq = p.job AND x.task = :task LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT x.name FROM leasehold.worker_name AS x WHERE x.number = p.worker LIMIT 1) AS o ON true
ORDER BY p.started_at, p.job;
