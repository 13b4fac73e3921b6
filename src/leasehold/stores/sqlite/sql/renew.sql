-- name: renew
-- The token alone says "running, and mine"; the expiry is not asked, so a late renewal that nobody has fenced still
-- counts.
UPDATE job SET lease_expires_at = :now + CAST(round(lease_seconds * 1e6) AS INTEGER)
FROM json_each(:leases) AS v
WHERE job.id = json_extract(v.value, '$.id') AND job.lease_token = json_extract(v.value, '$.token')
RETURNING id, stop_requested;

-- name: place_execution
-- Stored under the fence before the start: a job without a site has no execution anywhere.
UPDATE job SET execution_site = :site, execution_name = :name, execution_started_at = NULL
WHERE id = :id AND lease_token = :token RETURNING id;

-- name: mark_started
UPDATE job SET execution_started_at = :now WHERE id = :id AND lease_token = :token RETURNING id;
