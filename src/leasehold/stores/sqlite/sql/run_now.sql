-- name: lock_cap
-- SQLite has one writer, so the turn is ours already.
SELECT kind FROM cap WHERE kind = :kind;

-- name: insert_cap
INSERT INTO cap (kind) VALUES (:kind) ON CONFLICT DO NOTHING;

-- name: list_places
-- What runs of a kind, the oldest first: under a lease, live or not, and orphans. Reads all leases and orphans, and no
-- other rows: finished and queued jobs of the kind may be millions.
SELECT j.id, j.lease_owner, j.started_at, j.lease_expires_at, :now AS now FROM (
    SELECT l.id, l.lease_owner, l.started_at, l.lease_expires_at FROM job AS l INDEXED BY job_lease
    WHERE l.lease_owner IS NOT NULL AND l.kind = :kind
    UNION ALL
    SELECT o.id, o.lease_owner, o.started_at, o.lease_expires_at FROM job AS o INDEXED BY job_orphan
    WHERE o.execution_site IS NOT NULL AND o.lease_owner IS NULL AND o.state = 'running' AND o.kind = :kind) AS j
ORDER BY j.started_at, j.id;
