-- name: sight_overdue
-- The first check, made when a renewal is overdue, so that the second one falls on the expiry: leases that have less
-- left than a third of their time plus the time until the next sweep. Workers renew at two thirds; a lease that is seen
-- in time and renewed has another expiry at the next check. And leases that expire further ahead than they are long:
-- the clock was set back. By expiry; reads the leases, which are few.
SELECT j.id, l.token AS lease_token, l.expires_at AS lease_expires_at, l.lease_seconds, o.name AS worker, l.alone,
    extract(epoch FROM l.expires_at - :now)::float8 AS expires_in
FROM (SELECT q.*, count(*) OVER (PARTITION BY q.worker) = 1 AS alone FROM leasehold.lease AS q) AS l,
    LATERAL (SELECT q.id FROM leasehold.job AS q WHERE q.seq = l.job LIMIT 1) AS j,
    LATERAL (SELECT q.name FROM leasehold.worker_name AS q WHERE q.number = l.worker LIMIT 1) AS o
WHERE l.expires_at <= :now + (l.lease_seconds / 3 + least(:sweep, l.lease_seconds / 3)) * interval '1 second'
   OR l.expires_at > :now + (l.lease_seconds + :tolerance) * interval '1 second'
ORDER BY l.expires_at, l.job LIMIT :limit;

-- name: find_orphans
-- Finds orphans of the sites this worker serves, by priority, then age. Only a read: anchors are locked to take them.
-- Not those that a copy of a database has from its original.
SELECT j.id FROM leasehold.parked AS p,
    LATERAL (SELECT q.id, q.task, q.priority FROM leasehold.job AS q WHERE q.seq = p.job LIMIT 1) AS j,
    LATERAL (
        SELECT q.site, q.origin FROM leasehold.execution AS q WHERE q.job = p.job AND q.attempt = p.attempt LIMIT 1) AS x
WHERE p.state = 4 AND x.site = ANY(:sites::text[]) AND x.origin = :origin
  AND (:tasks::text[] IS NULL OR j.task = ANY(:tasks::text[]))
ORDER BY j.priority DESC, p.job LIMIT :limit;

-- name: find_leases_of
-- After a lost reply: what this worker holds. Whether a job was to start sooner is judged by the time of its grant.
SELECT l.job AS seq, j.id, l.token, l.attempt, j.task, j.queue, j.args, l.lease_seconds, j.policy, j.lane, j.group_name,
    CASE WHEN l.attempt = 1 AND j.start_by <= l.started_at THEN 0 ELSE extract(epoch FROM j.deadline_at - :now) END::float8
        AS seconds_left, j.trace, coalesce(t.failures, 0) AS failures, coalesce(t.crashes, 0) AS crashes, l.special,
    CASE l.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested,
    x.site AS execution_site, x.name AS execution_name, extract(epoch FROM :now - x.started_at)::float8 AS execution_age
FROM leasehold.lease AS l CROSS JOIN LATERAL (SELECT * FROM leasehold.job AS q WHERE q.seq = l.job LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT * FROM leasehold.failure_state AS q WHERE q.job = l.job LIMIT 1) AS t ON true
LEFT JOIN LATERAL (
    SELECT * FROM leasehold.execution AS q WHERE q.job = l.job AND q.attempt = l.attempt LIMIT 1) AS x ON true
WHERE l.worker = (SELECT o.number FROM leasehold.worker_name AS o WHERE o.name = :worker) ORDER BY l.job;

-- name: count_leases
SELECT count(*) AS leases FROM leasehold.lease;

-- name: find_passed_limits
-- Jobs whose time is over and that no worker runs. Only jobs with such limits: the index leads with the time. Whether a
-- job that had to start by now has started is checked under the lock. And jobs with a question that was not answered in
-- time: one read for both, every few seconds.
(SELECT j.id, false AS is_question
 FROM leasehold.time_limit AS t, LATERAL (SELECT q.id FROM leasehold.job AS q WHERE q.seq = t.job LIMIT 1) AS j
 WHERE t.due_at <= :now AND NOT EXISTS (SELECT FROM leasehold.lease AS l WHERE l.job = t.job OFFSET 0)
   AND NOT EXISTS (SELECT FROM leasehold.parked AS p WHERE p.job = t.job AND p.state = 4 OFFSET 0)
 ORDER BY t.due_at LIMIT :limit)
UNION ALL
(SELECT job_id, true FROM leasehold.question
 WHERE closed_at IS NULL AND expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: renew
-- The token alone proves the lease; the expiry is not checked, so a late renewal that nothing has fenced still counts.
-- A lease that another transaction has locked is skipped and looked up by a read of its own: one locked job must not
-- cost the others their leases. One probe per lease, by its key, whatever the statistics are.
WITH mine AS MATERIALIZED (
    SELECT l.tid, j.id FROM unnest(:leases.ids::uuid[], :leases.tokens::bigint[]) AS r(id, token), LATERAL (
        SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j, LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lease AS q WHERE q.job = j.seq AND q.token = r.token
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS l)
UPDATE leasehold.lease AS l SET expires_at = :now + l.lease_seconds * interval '1 second'
FROM mine AS m WHERE l.ctid = ANY(ARRAY(SELECT tid FROM mine)) AND l.ctid = m.tid
RETURNING m.id, l.stop;

-- name: find_leases
-- Leases held by these tokens, locked or not.
SELECT j.id, l.stop FROM unnest(:leases.ids::uuid[], :leases.tokens::bigint[]) AS r(id, token), LATERAL (
    SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j, LATERAL (
    SELECT q.stop FROM leasehold.lease AS q WHERE q.job = j.seq AND q.token = r.token LIMIT 1) AS l;

-- name: read_stop_requests
-- One probe per lease, by its key.
SELECT l.job, l.stop FROM unnest(:leases.jobs::bigint[], :leases.tokens::bigint[]) AS r(job, token), LATERAL (
    SELECT q.job, q.stop FROM leasehold.lease AS q WHERE q.job = r.job AND q.token = r.token LIMIT 1) AS l
WHERE l.stop <> 0;

-- name: find_origin
-- Whether an execution was placed by this database.
SELECT x.job FROM leasehold.execution AS x WHERE x.job = :job AND x.attempt = :attempt AND x.origin = :origin LIMIT 1;

-- name: identify_schema
-- What distinguishes this schema from its copies in one cluster, and the server's address.
SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') AS is_allowed,
    (SELECT d.oid::text FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()) AS database,
    (SELECT c.relnamespace::text FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass('leasehold.job')) AS schema,
    concat(inet_server_addr(), ':', inet_server_port()) AS address;

-- name: identify_cluster
SELECT system_identifier::text FROM pg_catalog.pg_control_system();

-- name: record_site
-- Stored under the fence before the start: an attempt without a row has no execution anywhere.
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.job, l.attempt FROM anchor, LATERAL (
        SELECT q.job, q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
INSERT INTO leasehold.execution (job, attempt, site, name, origin, placed_at)
SELECT job, attempt, :site, :name, :origin, :now FROM mine
ON CONFLICT (job, attempt) DO UPDATE SET site = excluded.site, name = excluded.name, origin = excluded.origin,
    placed_at = excluded.placed_at, started_at = NULL
RETURNING job;

-- name: mark_started
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.job, l.attempt FROM anchor, LATERAL (
        SELECT q.job, q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
UPDATE leasehold.execution AS x SET started_at = :now FROM mine
WHERE x.job = mine.job AND x.attempt = mine.attempt RETURNING x.job;
