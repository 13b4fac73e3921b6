-- name: sight_overdue
-- The first check, made when a renewal is overdue, so that the second one falls on the expiry: leases that have less
-- left than a third of their time plus the time until the next sweep. Workers renew at two thirds; a lease that is seen
-- in time and renewed has another expiry at the next check. And leases that expire further ahead than they are long:
-- the clock was set back. By expiry; reads the leases, which are few.
SELECT j.id, l.token AS lease_token, l.expires_at AS lease_expires_at, l.lease_seconds, o.name AS worker, l.alone,
    (l.expires_at - :now) / 1e6 AS expires_in
FROM (SELECT q.*, count(*) OVER (PARTITION BY q.worker) = 1 AS alone FROM leasehold_lease AS q) AS l
CROSS JOIN leasehold_job AS j ON j.seq = l.job CROSS JOIN leasehold_worker_name AS o ON o.number = l.worker
WHERE l.expires_at <= :now + (l.lease_seconds / 3 + min(:sweep, l.lease_seconds / 3)) * 1e6
   OR l.expires_at > :now + (l.lease_seconds + :tolerance) * 1e6
ORDER BY l.expires_at, l.job LIMIT :limit;

-- name: find_orphans
-- Finds orphans of the sites this worker serves, by priority, then age. Only a read: anchors are locked to take them.
-- Not those that a copy of a database has from its original.
SELECT j.id FROM leasehold_parked AS p CROSS JOIN leasehold_job AS j ON j.seq = p.job
CROSS JOIN leasehold_execution AS x ON x.job = p.job AND x.attempt = p.attempt
WHERE p.state = 4 AND x.site IN (SELECT value FROM json_each(:sites)) AND x.origin = :origin
  AND (:tasks IS NULL OR j.task IN (SELECT value FROM json_each(:tasks)))
ORDER BY j.priority DESC, p.job LIMIT :limit;

-- name: find_leases_of
-- After a lost reply: what this worker holds. Whether a job was to start sooner is judged by the time of its grant.
SELECT l.job AS seq, j.id, l.token, l.attempt, j.task, j.queue, j.args, l.lease_seconds, j.policy, j.lane, j.group_name,
    CASE WHEN l.attempt = 1 AND j.start_by <= l.started_at THEN 0.0 ELSE (j.deadline_at - :now) / 1e6 END AS seconds_left,
    j.trace, coalesce(t.failures, 0) AS failures, coalesce(t.crashes, 0) AS crashes, l.special,
    CASE l.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested,
    x.site AS execution_site, x.name AS execution_name, (:now - x.started_at) / 1e6 AS execution_age
FROM leasehold_lease AS l CROSS JOIN leasehold_job AS j ON j.seq = l.job
LEFT JOIN leasehold_failure_state AS t ON t.job = l.job
LEFT JOIN leasehold_execution AS x ON x.job = l.job AND x.attempt = l.attempt
WHERE l.worker = (SELECT o.number FROM leasehold_worker_name AS o WHERE o.name = :worker) ORDER BY l.job;

-- name: count_leases
SELECT count(*) AS leases FROM leasehold_lease;

-- name: find_passed_limits
-- Jobs whose time is over and that no worker runs. Only jobs with such limits: the index leads with the time. Whether a
-- job that had to start by now has started is checked under the lock. And jobs with a question that was not answered in
-- time: one read for both, every few seconds.
SELECT * FROM (
    SELECT j.id, 0 AS is_question FROM leasehold_time_limit AS t CROSS JOIN leasehold_job AS j ON j.seq = t.job
    WHERE t.due_at <= :now AND NOT EXISTS (SELECT 1 FROM leasehold_lease AS l WHERE l.job = t.job)
      AND NOT EXISTS (SELECT 1 FROM leasehold_parked AS p WHERE p.job = t.job AND p.state = 4)
    ORDER BY t.due_at LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT job_id, 1 FROM leasehold_question INDEXED BY leasehold_question_expiry
    WHERE closed_at IS NULL AND expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: renew
-- The token alone proves the lease; the expiry is not checked, so a late renewal that nothing has fenced still counts.
-- IN, not FROM: with statistics SQLite may reverse a join, and go through the list for every lease there is.
UPDATE leasehold_lease SET expires_at = :now + CAST(round(lease_seconds * 1e6) AS INTEGER)
WHERE (job, token) IN (
    SELECT j.seq, json_extract(r.value, '$[1]')
    FROM json_each(:leases) AS r CROSS JOIN leasehold_job AS j ON j.id = json_extract(r.value, '$[0]'))
RETURNING (SELECT q.id FROM leasehold_job AS q WHERE q.seq = job), stop;

-- name: find_leases
-- Leases held by these tokens, locked or not.
SELECT j.id, l.stop FROM json_each(:leases) AS r CROSS JOIN leasehold_job AS j ON j.id = json_extract(r.value, '$[0]')
CROSS JOIN leasehold_lease AS l ON l.job = j.seq AND l.token = json_extract(r.value, '$[1]');

-- name: read_stop_requests
-- One probe per lease, by its key.
SELECT l.job, l.stop FROM json_each(:leases) AS r
CROSS JOIN leasehold_lease AS l ON l.job = json_extract(r.value, '$[0]') AND l.token = json_extract(r.value, '$[1]')
WHERE l.stop <> 0;

-- name: find_origin
-- Whether an execution was placed by this database.
SELECT x.job FROM leasehold_execution AS x WHERE x.job = :job AND x.attempt = :attempt AND x.origin = :origin;

-- name: record_site
-- Stored under the fence before the start: an attempt without a row has no execution anywhere.
INSERT INTO leasehold_execution (job, attempt, site, name, origin, placed_at)
SELECT l.job, l.attempt, :site, :name, :origin, :now FROM leasehold_job AS j JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token
ON CONFLICT (job, attempt) DO UPDATE SET site = excluded.site, name = excluded.name, origin = excluded.origin,
    placed_at = excluded.placed_at, started_at = NULL
RETURNING job;

-- name: mark_started
UPDATE leasehold_execution AS x SET started_at = :now
FROM leasehold_job AS j JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token AND x.job = l.job AND x.attempt = l.attempt
RETURNING job;
