-- name: sight_expired
-- The first look: leases that have run out, oldest first. Reads the live leases only.
SELECT id, lease_token, lease_expires_at, lease_seconds, lease_owner, shared FROM (
    SELECT j.id, j.lease_token, j.lease_expires_at, j.lease_seconds, j.lease_owner,
        count(*) OVER (PARTITION BY j.lease_owner) > 1 AS shared
    FROM job AS j INDEXED BY job_lease WHERE j.lease_owner IS NOT NULL) AS leased
WHERE lease_expires_at <= :now ORDER BY lease_expires_at, id LIMIT :limit;

-- name: lock_sighted
-- The second look, as the writer: only rows whose token and expiry have not moved.
SELECT j.*, :now AS now FROM json_each(:sightings) AS v CROSS JOIN job AS j
WHERE j.id = json_extract(v.value, '$.id') AND j.lease_token = json_extract(v.value, '$.token')
  AND j.lease_expires_at = json_extract(v.value, '$.expires_at')
  AND j.lease_expires_at <= :now AND j.state = 'running'
ORDER BY j.id;

-- name: adopt
-- Orphans of the sites this worker serves. The attempt stays: it names the execution that may still live.
UPDATE job SET lease_owner = :owner, lease_token = lease_token + 1,
    lease_expires_at = :now + CAST(round(lease_seconds * 1e6) AS INTEGER)
WHERE seq IN (
    SELECT q.seq FROM job AS q INDEXED BY job_orphan
    WHERE q.execution_site IN (SELECT value FROM json_each(:sites)) AND q.execution_site IS NOT NULL
      AND q.lease_owner IS NULL AND q.state = 'running'
      AND (:kinds IS NULL OR q.kind IN (SELECT value FROM json_each(:kinds)))
    ORDER BY q.id LIMIT :limit)
RETURNING id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at;

-- name: find_held
-- After a lost reply: what this owner holds in the row's own words.
SELECT id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at
FROM job WHERE lease_owner = :owner ORDER BY id;

-- name: read_settlements
-- After a lost reply: did the settle arrive?
SELECT id, lease_token, settled_by, settled_token FROM job WHERE id IN (SELECT value FROM json_each(:ids));

-- name: count_leases
SELECT count(*) AS leases FROM job INDEXED BY job_lease WHERE lease_owner IS NOT NULL;

-- name: lock_overdue
-- Jobs that do not run and whose time is over. Two small indexes hold only jobs with such limits.
SELECT j.*, :now AS now FROM job AS j WHERE j.id IN (
    SELECT id FROM (SELECT d.id FROM job AS d INDEXED BY job_deadline
        WHERE d.deadline_at IS NOT NULL AND d.state IN ('pending', 'queued', 'waiting') AND d.deadline_at <= :now
        ORDER BY d.deadline_at LIMIT :limit)
    UNION
    SELECT id FROM (SELECT s.id FROM job AS s INDEXED BY job_start_by
        WHERE s.start_by IS NOT NULL AND s.attempt = 0 AND s.state IN ('pending', 'queued') AND s.start_by <= :now
        ORDER BY s.start_by LIMIT :limit))
ORDER BY j.id;
