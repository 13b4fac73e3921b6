-- name: lock_cap
-- FOR UPDATE writes no new version of the row, so that thousands of calls leave nothing to vacuum.
SELECT kind FROM leasehold.cap WHERE kind = :kind FOR UPDATE;

-- name: insert_cap
INSERT INTO leasehold.cap (kind) VALUES (:kind) ON CONFLICT DO NOTHING;

-- name: list_places
-- What runs of a kind, the oldest first: under a lease, live or not, and orphans. Reads all leases and orphans, and no
-- other rows: finished and queued jobs of the kind may be millions.
SELECT j.id, j.lease_owner, j.started_at, j.lease_expires_at, :now AS now FROM (
    SELECT l.id, l.lease_owner, l.started_at, l.lease_expires_at FROM leasehold.job AS l
    WHERE l.lease_owner IS NOT NULL AND l.kind = :kind
    UNION ALL
    SELECT o.id, o.lease_owner, o.started_at, o.lease_expires_at FROM leasehold.job AS o
    WHERE o.execution_site IS NOT NULL AND o.lease_owner IS NULL AND o.state = 'running' AND o.kind = :kind) AS j
ORDER BY j.started_at, j.id;
