-- name: get_job
SELECT r.*, :now AS now FROM leasehold_job_row AS r WHERE r.id = :id;

-- name: list_jobs
-- One page of a walk, newest first; payloads stay where they are. It tells of a job what the view job_row would; a
-- join with the view would put all of it together.
SELECT j.id, j.seq, j.task, j.queue, j.gate, j.priority,
    CASE WHEN o.state IS NOT NULL THEN
             CASE o.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
         WHEN p.state IS NOT NULL THEN
             CASE p.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END
         WHEN l.token IS NOT NULL THEN 'running' ELSE 'queued' END AS state,
    CASE WHEN o.state IS NOT NULL THEN o.reason WHEN p.state IS NOT NULL THEN p.reason
         WHEN l.stop = 0 THEN NULL ELSE t.reason END AS reason,
    j.created_at, coalesce(r.available_at, t.available_at, j.available_at, j.created_at) AS available_at, j.lane,
    coalesce(o.attempt, r.attempt, l.attempt, p.attempt,
-- include: attempt_in_lane
    ) AS attempt,
    coalesce(t.failures, 0) AS failures, coalesce(t.crashes, 0) AS crashes,
    CASE coalesce(l.stop, p.stop) WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested,
    (SELECT w.name FROM leasehold_worker_name AS w WHERE w.number = l.worker) AS worker, l.expires_at AS lease_expires_at,
    CASE WHEN p.state IS NOT NULL THEN p.started_at
         ELSE coalesce(l.started_at, o.started_at, t.started_at) END AS started_at,
    o.finished_at, j.group_name, j.tags,
    CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END AS error,
    coalesce(o.finished_at, CASE WHEN p.state = 4 THEN p.started_at ELSE p.since END, l.started_at, t.changed_at,
        j.created_at) AS updated_at
FROM (

-- name: list_jobs.page
) AS d CROSS JOIN leasehold_job AS j ON j.seq = d.number
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_ready AS r ON r.seq = j.seq
LEFT JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_parked AS p ON p.job = j.seq
LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
ORDER BY d.number DESC LIMIT :limit

-- name: find_ids_between
SELECT id FROM leasehold_job WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;

-- name: find_neighbours
-- The jobs before and after each of these in the order of ids.
SELECT g.value, (SELECT max(j.id) FROM leasehold_job AS j WHERE j.id < g.value) AS before,
    (SELECT min(j.id) FROM leasehold_job AS j WHERE j.id > g.value) AS after
FROM json_each(:ids) AS g;

-- name: count_states
-- By place, each capped: a count that nobody waits for. Of a state with two places the caller adds both.
SELECT 'queued' AS state, count(*) AS jobs FROM (SELECT 1 FROM leasehold_ready LIMIT :cap) AS c
UNION ALL SELECT 'queued', count(*) FROM (SELECT 1 FROM leasehold_lane_place LIMIT :cap) AS c
UNION ALL SELECT 'running', count(*) FROM (SELECT 1 FROM leasehold_lease LIMIT :cap) AS c
UNION ALL SELECT 'running', count(*) FROM (SELECT 1 FROM leasehold_parked WHERE state = 4 LIMIT :cap) AS c
UNION ALL SELECT 'pending', count(*) FROM (SELECT 1 FROM leasehold_parked WHERE state = 1 LIMIT :cap) AS c
UNION ALL SELECT 'waiting', count(*) FROM (SELECT 1 FROM leasehold_parked WHERE state = 2 LIMIT :cap) AS c
UNION ALL SELECT 'paused', count(*) FROM (SELECT 1 FROM leasehold_parked WHERE state = 3 LIMIT :cap) AS c
UNION ALL SELECT 'succeeded', count(*) FROM (SELECT 1 FROM leasehold_outcome WHERE state = 1 LIMIT :cap) AS c
UNION ALL SELECT 'cancelled', count(*) FROM (
    SELECT 1 FROM leasehold_outcome WHERE state <> 1 AND state = 2 LIMIT :cap) AS c
UNION ALL SELECT 'failed', count(*) FROM (
    SELECT 1 FROM leasehold_outcome WHERE state <> 1 AND state = 3 LIMIT :cap) AS c
UNION ALL SELECT 'timed_out', count(*) FROM (
    SELECT 1 FROM leasehold_outcome WHERE state <> 1 AND state = 4 LIMIT :cap) AS c;

-- name: list_history
SELECT at, event, from_state, to_state, token, attempt, actor, detail FROM leasehold_history
WHERE job_id = :id ORDER BY id;

-- name: list_attempts
-- The runs that went on to something else, the one that ended the job (unless the job ended after it, elsewhere), and the
-- one that is under way.
SELECT a.number, a.token, w.name AS worker, a.started_at, a.ended_at AS ended_at, a.ended AS outcome
FROM leasehold_job AS j JOIN leasehold_attempt AS a ON a.job = j.seq LEFT JOIN leasehold_worker_name AS w ON w.number = a.worker
WHERE j.id = :id
UNION ALL
SELECT o.attempt, o.token, w.name, o.started_at, o.finished_at,
    CASE o.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
FROM leasehold_job AS j JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_worker_name AS w ON w.number = o.worker
WHERE j.id = :id AND o.started_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM leasehold_attempt AS a WHERE a.job = o.job AND a.token = o.token)
UNION ALL
SELECT l.attempt, l.token, w.name, l.started_at, NULL, 'running'
FROM leasehold_job AS j JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_worker_name AS w ON w.number = l.worker
WHERE j.id = :id
ORDER BY 2;

-- name: find_last_actor
SELECT actor FROM leasehold_history WHERE job_id = :id AND event IN (SELECT value FROM json_each(:events))
ORDER BY id DESC LIMIT 1;

-- name: count_ahead
-- Due jobs of the queue that a claim would take before this one. Of every gate a limited number of rows is read, due or
-- not, so a crowd of delayed jobs costs no more. Other gates with limits, and paused ones, are in nobody's way.
SELECT coalesce(sum((SELECT count(*) FROM (
    SELECT p.priority, p.available_at, p.seq FROM leasehold_ready AS p
    WHERE p.gate = g.id AND p.priority >= :priority
    ORDER BY p.priority DESC, p.available_at, p.seq LIMIT :cap) AS b
    WHERE b.available_at <= :now
      AND (b.priority > :priority OR (b.available_at, b.seq) < (:available_at, :seq)))), 0)
FROM leasehold_gate AS g
WHERE g.queue = :queue AND (g.id = :gate OR (g.slots IS NULL AND g.rate_key IS NULL))
  AND NOT EXISTS (SELECT 1 FROM leasehold_pause AS p
                  WHERE p.scope = 'task' AND p.name = g.task AND (p.until IS NULL OR p.until > :now));

-- name: count_ahead_in_lane
SELECT count(*) FROM (
    SELECT 1 FROM leasehold_lane_place AS p
    WHERE p.lane = :lane AND (p.lane_at, p.seq) < (:lane_at, :seq)
    ORDER BY p.lane_at, p.seq LIMIT :cap) AS b;
