-- name: renew
-- The token alone says "running, and mine"; the expiry is not asked, so a late renewal that nobody has fenced still
-- counts. Owner and state stay out of the WHERE: there they mislead the planner. Locked by id first, as everywhere: an
-- UPDATE locks as its plan goes, and over a table that was empty a while ago that may be as rows lie on the disk. No
-- stronger than an UPDATE locks, so that it passes those who spend.
WITH v AS MATERIALIZED (SELECT r.id, r.token FROM json_to_recordset(:leases::json) AS r(id uuid, token bigint)),
mine AS MATERIALIZED (
    SELECT j.id FROM v JOIN leasehold.job AS j ON j.id = v.id AND j.lease_token = v.token
    WHERE j.id = ANY(ARRAY(SELECT id FROM v)) ORDER BY j.id FOR NO KEY UPDATE OF j)
UPDATE leasehold.job AS j SET lease_expires_at = :now + j.lease_seconds * interval '1 second'
WHERE j.id = ANY(ARRAY(SELECT id FROM mine))
RETURNING j.id, j.stop_requested;

-- name: place_execution
-- Stored under the fence before the start: a job without a site has no execution anywhere.
UPDATE leasehold.job SET execution_site = :site, execution_name = :name, execution_started_at = NULL
WHERE id = :id AND lease_token = :token RETURNING id;

-- name: mark_started
UPDATE leasehold.job SET execution_started_at = :now WHERE id = :id AND lease_token = :token RETURNING id;
