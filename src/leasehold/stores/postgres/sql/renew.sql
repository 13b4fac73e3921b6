-- name: renew
-- The token alone says "running, and mine"; the expiry is not asked, so a late renewal that nobody has fenced still
-- counts. Owner and state stay out of the WHERE: there they mislead the planner. Rows are locked in the order of v,
-- which leads the join: by id, as everywhere.
WITH v AS MATERIALIZED (
    SELECT r.id, r.token FROM json_to_recordset(:leases::json) AS r(id uuid, token bigint) ORDER BY r.id)
UPDATE leasehold.job AS j SET lease_expires_at = :now + j.lease_seconds * interval '1 second'
FROM v WHERE j.id = ANY(ARRAY(SELECT id FROM v)) AND j.id = v.id AND j.lease_token = v.token
RETURNING j.id, j.stop_requested;

-- name: place_execution
-- Stored under the fence before the start: a job without a site has no execution anywhere.
UPDATE leasehold.job SET execution_site = :site, execution_name = :name, execution_started_at = NULL
WHERE id = :id AND lease_token = :token RETURNING id;

-- name: mark_started
UPDATE leasehold.job SET execution_started_at = :now WHERE id = :id AND lease_token = :token RETURNING id;
