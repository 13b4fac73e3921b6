-- name: lock_running_cap
-- SQLite has one writer, so the turn is ours already.
SELECT task FROM leasehold_running_cap WHERE task = :task;

-- name: insert_running_cap
INSERT INTO leasehold_running_cap (task) VALUES (:task) ON CONFLICT DO NOTHING;

-- name: list_places
-- What runs of a task, the oldest first: under a lease, live or not, and orphans. Reads all leases and orphans, and no
-- other rows: finished and queued jobs of the task may be millions.
SELECT j.id, o.name AS worker, p.started_at, p.expires_at AS lease_expires_at, :now AS now,
    EXISTS (SELECT 1 FROM leasehold_execution AS x WHERE x.job = p.job AND x.attempt = p.attempt) AS placed FROM (
    SELECT l.job, l.attempt, l.worker, l.started_at, l.expires_at FROM leasehold_lease AS l
    UNION ALL
    SELECT k.job, k.attempt, NULL, k.started_at, NULL FROM leasehold_parked AS k WHERE k.state = 4) AS p
CROSS JOIN leasehold_job AS j ON j.seq = p.job AND j.task = :task LEFT JOIN leasehold_worker_name AS o ON o.number = p.worker
ORDER BY p.started_at, p.job;
