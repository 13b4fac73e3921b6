-- name: renew
-- The token alone says "mine"; the expiry is not asked, so a late renewal that nobody has fenced still counts.
-- IN, not FROM: with statistics in hand SQLite may turn a join round, and go through the list for every lease there is.
UPDATE leasehold_lease SET expires_at = :now + CAST(round(lease_seconds * 1e6) AS INTEGER)
WHERE (job, token) IN (
    SELECT j.seq, json_extract(r.value, '$[1]')
    FROM json_each(:leases) AS r CROSS JOIN leasehold_job AS j ON j.id = json_extract(r.value, '$[0]'))
RETURNING (SELECT q.id FROM leasehold_job AS q WHERE q.seq = job), stop;

-- name: find_leases
-- Held by these tokens, locked or not.
SELECT j.id, l.stop FROM json_each(:leases) AS r CROSS JOIN leasehold_job AS j ON j.id = json_extract(r.value, '$[0]')
CROSS JOIN leasehold_lease AS l ON l.job = j.seq AND l.token = json_extract(r.value, '$[1]');

-- name: read_flags
-- A probe a lease, by its key.
SELECT l.job, l.stop FROM json_each(:leases) AS r
CROSS JOIN leasehold_lease AS l ON l.job = json_extract(r.value, '$[0]') AND l.token = json_extract(r.value, '$[1]')
WHERE l.stop <> 0;

-- name: place_execution
-- Stored under the fence before the start: an attempt without a row has no execution anywhere.
INSERT INTO leasehold_execution (job, attempt, site, name, placed_at)
SELECT l.job, l.attempt, :site, :name, :now FROM leasehold_job AS j JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token
ON CONFLICT (job, attempt) DO UPDATE SET site = excluded.site, name = excluded.name, placed_at = excluded.placed_at,
    started_at = NULL
RETURNING job;

-- name: mark_started
UPDATE leasehold_execution AS x SET started_at = :now
FROM leasehold_job AS j JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token AND x.job = l.job AND x.attempt = l.attempt
RETURNING job;
