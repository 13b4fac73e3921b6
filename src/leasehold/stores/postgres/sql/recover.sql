-- name: sight_expired
-- The first look: leases that have run out on the database's clock, oldest first. Reads the live leases only.
SELECT id, lease_token, lease_expires_at, lease_seconds, lease_owner, shared FROM (
    SELECT j.id, j.lease_token, j.lease_expires_at, j.lease_seconds, j.lease_owner,
        count(*) OVER (PARTITION BY j.lease_owner) > 1 AS shared
    FROM leasehold.job AS j WHERE j.lease_owner IS NOT NULL) AS leased
WHERE lease_expires_at <= :now ORDER BY lease_expires_at, id LIMIT :limit;

-- name: lock_sighted
-- The second look, under the lock: only rows whose token and expiry have not moved. Rows that somebody else is
-- working on are left to them.
WITH v AS MATERIALIZED (
    SELECT r.id, r.token, r.expires_at
    FROM json_to_recordset(:sightings::json) AS r(id uuid, token bigint, expires_at timestamptz))
SELECT j.*, :now AS now FROM leasehold.job AS j JOIN v ON j.id = v.id
WHERE j.id = ANY(ARRAY(SELECT id FROM v)) AND j.lease_token = v.token AND j.lease_expires_at = v.expires_at
  AND j.lease_expires_at <= :now AND j.state = 'running'
ORDER BY j.id FOR UPDATE OF j SKIP LOCKED;

-- name: adopt
-- Orphans of the sites this worker serves. The attempt stays: it names the execution that may still live.
WITH taken AS (
    UPDATE leasehold.job AS j SET lease_owner = :owner, lease_token = j.lease_token + 1,
        lease_expires_at = :now + j.lease_seconds * interval '1 second'
    WHERE j.ctid = ANY(ARRAY(
        SELECT q.ctid FROM leasehold.job AS q
        WHERE q.execution_site = ANY(:sites::text[]) AND q.execution_site IS NOT NULL AND q.lease_owner IS NULL
          AND q.state = 'running' AND (:kinds::text[] IS NULL OR q.kind = ANY(:kinds::text[]))
        ORDER BY q.id LIMIT :limit FOR UPDATE SKIP LOCKED))
    RETURNING j.id, j.lease_token, j.attempt, j.kind, j.queue, j.args, j.lease_seconds, j.policy, j.lane, j.group_name,
        j.failures, j.crashes, j.stop_requested, j.deadline_at, j.trace, j.execution_site, j.execution_name,
        j.execution_started_at)
SELECT id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at
FROM taken ORDER BY id;

-- name: find_held
-- After a lost reply: what this owner holds in the row's own words.
SELECT id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at
FROM leasehold.job WHERE lease_owner = :owner ORDER BY id;

-- name: read_settlements
-- After a lost reply: did the settle arrive?
SELECT id, lease_token, settled_by, settled_token FROM leasehold.job WHERE id = ANY(:ids::uuid[]);

-- name: count_leases
SELECT count(*) AS leases FROM leasehold.job WHERE lease_owner IS NOT NULL;

-- name: lock_overdue
-- Jobs that do not run and whose time is over. Two small indexes hold only jobs with such limits.
SELECT j.*, :now AS now FROM leasehold.job AS j WHERE j.id = ANY(ARRAY(
    (SELECT d.id FROM leasehold.job AS d WHERE d.deadline_at IS NOT NULL AND d.state IN ('pending', 'queued', 'waiting')
        AND d.deadline_at <= :now ORDER BY d.deadline_at LIMIT :limit)
    UNION
    (SELECT s.id FROM leasehold.job AS s WHERE s.start_by IS NOT NULL AND s.attempt = 0 AND s.state IN ('pending', 'queued')
        AND s.start_by <= :now ORDER BY s.start_by LIMIT :limit)))
ORDER BY j.id FOR UPDATE SKIP LOCKED;
