-- part: told_of_j
-- What a list tells of a job j, from its places o, r, l, p and from its failure state t: the same as the view job_row.
j.id, j.seq, j.task, j.queue, j.gate, j.priority,
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
    (SELECT w.name FROM leasehold.worker_name AS w WHERE w.number = l.worker) AS worker, l.expires_at AS lease_expires_at,
    CASE WHEN p.state IS NOT NULL THEN p.started_at
         ELSE coalesce(l.started_at, o.started_at, t.started_at) END AS started_at,
    o.finished_at, j.group_name, j.tags,
    CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END AS error,
    coalesce(o.finished_at, CASE WHEN p.state = 4 THEN p.started_at ELSE p.since END, l.started_at, t.changed_at,
        j.created_at) AS updated_at

-- part: places_of_j
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.ready AS x WHERE x.seq = j.seq LIMIT 1) AS r ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.lease AS x WHERE x.job = j.seq LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.parked AS x WHERE x.job = j.seq LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT x.* FROM leasehold.failure_state AS x WHERE x.job = j.seq LIMIT 1) AS t ON true

-- name: get_job
-- As the view job_row tells it, from the places themselves: the view takes the server milliseconds to plan.
SELECT
-- include: told_of_j
    , j.args, j.policy, j.lease_seconds, j.unique_key,
    CASE WHEN j.unique_for_ever THEN 'ever' ELSE 'live' END AS unique_for, j.deadline_at, j.start_by, j.retry_of,
    j.trace, g.slots IS NOT NULL AS limited,
    coalesce(o.special, r.special, l.special, p.special, q.special) AS special,
    coalesce(o.token, r.token, l.token, p.token, q.token) AS lease_token,
    CASE WHEN h.lane IS NOT NULL OR (l.token IS NOT NULL AND j.lane IS NOT NULL) THEN to_timestamp(0)
         ELSE coalesce(p.lane_at, q.lane_at) END AS lane_at,
    h.lane IS NOT NULL AS halts_lane, coalesce(p.held, false) AS held,
    CASE WHEN o.state = 4 THEN (
             SELECT count(*) FROM leasehold.dependency AS d WHERE d.child_id = j.id AND NOT d.met)::integer
         ELSE coalesce(p.unmet, 0) END AS unmet,
    x.site AS execution_site, x.name AS execution_name, x.started_at AS execution_started_at,
    coalesce(t.first_started_at, l.started_at, o.started_at,
        CASE WHEN p.state = 4 THEN p.started_at END) AS first_started_at,
    (SELECT w.name FROM leasehold.worker_name AS w WHERE w.number = o.worker) AS settled_by,
    CASE WHEN o.worker IS NOT NULL THEN o.token END AS settled_token, o.result, o.result_ref, :now AS now
FROM leasehold.job AS j JOIN leasehold.gate AS g ON g.id = j.gate
-- include: places_of_j
LEFT JOIN LATERAL (
    SELECT y.* FROM leasehold.lane_place AS y
    WHERE y.lane = j.lane AND y.seq = j.seq AND coalesce(o.token, r.token, l.token, p.token) IS NULL
    LIMIT 1) AS q ON true
LEFT JOIN LATERAL (
    SELECT y.lane FROM leasehold.lane_hold AS y
    WHERE y.lane = j.lane AND y.job = j.seq AND o.state IN (3, 4) LIMIT 1) AS h ON true
LEFT JOIN LATERAL (
    SELECT y.* FROM leasehold.execution AS y
    WHERE y.job = j.seq AND y.attempt = coalesce(l.attempt, CASE WHEN p.state = 4 THEN p.attempt END)
    LIMIT 1) AS x ON true
WHERE j.id = :id;

-- name: list_jobs
-- One page of a walk, newest first; payloads stay where they are.
SELECT
-- include: told_of_j
FROM (

-- name: list_jobs.page
) AS d, LATERAL (SELECT x.* FROM leasehold.job AS x WHERE x.seq = d.number LIMIT 1) AS j
-- include: places_of_j
ORDER BY d.number DESC LIMIT :limit

-- name: find_ids_between
SELECT id FROM leasehold.job WHERE id BETWEEN :low::uuid AND :high::uuid ORDER BY id LIMIT :limit;

-- name: find_neighbours
-- The jobs before and after each of these in the order of ids.
SELECT g.id, b.id AS before, a.id AS after FROM unnest(:ids::uuid[]) AS g(id)
LEFT JOIN LATERAL (SELECT j.id FROM leasehold.job AS j WHERE j.id < g.id ORDER BY j.id DESC LIMIT 1) AS b ON true
LEFT JOIN LATERAL (SELECT j.id FROM leasehold.job AS j WHERE j.id > g.id ORDER BY j.id LIMIT 1) AS a ON true;

-- name: count_states
-- By place, each capped: a count that nobody waits for. Of a state with two places the caller adds both.
SELECT 'queued' AS state, count(*) AS jobs FROM (SELECT 1 FROM leasehold.ready LIMIT :cap) AS c
UNION ALL SELECT 'queued', count(*) FROM (SELECT 1 FROM leasehold.lane_place LIMIT :cap) AS c
UNION ALL SELECT 'running', count(*) FROM (SELECT 1 FROM leasehold.lease LIMIT :cap) AS c
UNION ALL SELECT 'running', count(*) FROM (SELECT 1 FROM leasehold.parked WHERE state = 4 LIMIT :cap) AS c
UNION ALL SELECT 'pending', count(*) FROM (SELECT 1 FROM leasehold.parked WHERE state = 1 LIMIT :cap) AS c
UNION ALL SELECT 'waiting', count(*) FROM (SELECT 1 FROM leasehold.parked WHERE state = 2 LIMIT :cap) AS c
UNION ALL SELECT 'paused', count(*) FROM (SELECT 1 FROM leasehold.parked WHERE state = 3 LIMIT :cap) AS c
UNION ALL SELECT 'succeeded', count(*) FROM (SELECT 1 FROM leasehold.outcome WHERE state = 1 LIMIT :cap) AS c
UNION ALL SELECT 'cancelled', count(*) FROM (SELECT 1 FROM leasehold.outcome WHERE state = 2 LIMIT :cap) AS c
UNION ALL SELECT 'failed', count(*) FROM (SELECT 1 FROM leasehold.outcome WHERE state = 3 LIMIT :cap) AS c
UNION ALL SELECT 'timed_out', count(*) FROM (SELECT 1 FROM leasehold.outcome WHERE state = 4 LIMIT :cap) AS c;

-- name: list_history
SELECT at, event, from_state, to_state, token, attempt, actor, detail FROM leasehold.history
WHERE job_id = :id ORDER BY id;

-- name: list_attempts
-- The runs that went on to something else, the one that ended the job (unless the job ended after it, elsewhere), and the
-- one that is under way.
SELECT a.number, a.token, w.name AS worker, a.started_at, a.ended_at AS ended_at, a.ended AS outcome
FROM leasehold.job AS j JOIN leasehold.attempt AS a ON a.job = j.seq LEFT JOIN leasehold.worker_name AS w ON w.number = a.worker
WHERE j.id = :id
UNION ALL
SELECT o.attempt, o.token, w.name, o.started_at, o.finished_at,
    CASE o.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
FROM leasehold.job AS j JOIN leasehold.outcome AS o ON o.job = j.seq LEFT JOIN leasehold.worker_name AS w ON w.number = o.worker
WHERE j.id = :id AND o.started_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM leasehold.attempt AS a WHERE a.job = o.job AND a.token = o.token)
UNION ALL
SELECT l.attempt, l.token, w.name, l.started_at, NULL, 'running'
FROM leasehold.job AS j JOIN leasehold.lease AS l ON l.job = j.seq LEFT JOIN leasehold.worker_name AS w ON w.number = l.worker
WHERE j.id = :id
ORDER BY 2;

-- name: find_last_actor
SELECT actor FROM leasehold.history WHERE job_id = :id AND event = ANY(:events::text[]) ORDER BY id DESC LIMIT 1;

-- name: count_ahead
-- Due jobs of the queue that a claim would take before this one. Of every gate a limited number of rows is read, due or
-- not, so a crowd of delayed jobs costs no more. Other gates with limits, and paused ones, are in nobody's way.
SELECT count(*) FROM leasehold.gate AS g, LATERAL (
    SELECT p.priority, p.available_at, p.seq FROM leasehold.ready AS p
    WHERE p.gate = g.id AND p.priority >= :priority
    ORDER BY p.priority DESC, p.available_at, p.seq LIMIT :cap) AS b
WHERE g.queue = :queue AND (g.id = :gate OR (g.slots IS NULL AND g.rate_key IS NULL))
  AND NOT EXISTS (SELECT FROM leasehold.pause AS p
                  WHERE p.scope = 'task' AND p.name = g.task AND (p.until IS NULL OR p.until > :now))
  AND b.available_at <= :now
  AND (b.priority > :priority OR (b.available_at, b.seq) < (:available_at::timestamptz, :seq::bigint));

-- name: count_ahead_in_lane
SELECT count(*) FROM (
    SELECT 1 FROM leasehold.lane_place AS p
    WHERE p.lane = :lane AND (p.lane_at, p.seq) < (:lane_at::timestamptz, :seq::bigint)
    ORDER BY p.lane_at, p.seq LIMIT :cap) AS b;
