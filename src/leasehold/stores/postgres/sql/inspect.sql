-- part: summary_of_j
-- What a list shows of a job j, from its places o, r, l, p and from its failure state t: the same as the view job_row.
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
-- What the view job_row shows, from the places themselves: the view takes the server milliseconds to plan.
SELECT
-- include: summary_of_j
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
-- One page of a walk, newest first; payloads are not read.
SELECT
-- include: summary_of_j
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
-- Counts jobs by place, each capped, so that no caller waits for it. For a state with two places the caller adds both.
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
-- The attempts after which the job went on, the one that ended the job (unless the job ended after it, elsewhere), and
-- the one that is under way.
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
-- not, so a crowd of delayed jobs costs no more. Other gates with limits, and paused ones, do not delay this job.
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

-- part: state_of_number
-- The state of the job with this number, in one snapshot. Scalar probes: an EXISTS may be turned into a hash over a
-- whole table. Each place but lanes is probed by key; a job that is in no other place is queued in a lane.
coalesce(
    (SELECT CASE p.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
     FROM leasehold.outcome AS p WHERE p.job = number),
    (SELECT 'queued' FROM leasehold.ready AS p WHERE p.seq = number),
    (SELECT 'running' FROM leasehold.lease AS p WHERE p.job = number),
    (SELECT CASE p.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END
     FROM leasehold.parked AS p WHERE p.job = number),
    'queued')

-- part: attempt_in_lane
-- The attempt of a job j that is queued in its lane. Its place there is known if it has started, or if it is where it
-- came in; only a job that was moved is searched for along the lane.
(SELECT p.attempt FROM leasehold.lane_place AS p
 WHERE p.lane = j.lane AND p.lane_at = to_timestamp(0) AND p.seq = j.seq),
(SELECT p.attempt FROM leasehold.lane_place AS p
 WHERE p.lane = j.lane AND p.lane_at = greatest(j.available_at, j.created_at) AND p.seq = j.seq),
(SELECT p.attempt FROM leasehold.lane_place AS p WHERE p.lane = j.lane AND p.seq = j.seq LIMIT 1)

-- name: find_cursor
-- Where the page after this job begins. If the job was pruned meanwhile, behind the next older one by id.
SELECT coalesce((SELECT seq FROM leasehold.job WHERE id = :before),
    (SELECT seq + 1 FROM leasehold.job WHERE id < :before ORDER BY id DESC LIMIT 1), 0) AS below;

-- name: walk.jobs
-- A walk goes through the numbers (seq) of jobs, downwards from :below to :since. Each of these fragments begins one
-- way to find them; the walk.where_… of the request's conditions follow, then walk.cut. `j` is the job, from the way
-- itself or from walk.with_job.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM leasehold.job AS a
    WHERE a.seq < :below AND a.seq >= :since) AS j

-- name: walk.queued
SELECT number FROM (SELECT s.number FROM (
    SELECT p.seq AS number FROM leasehold.ready AS p WHERE p.seq < :below AND p.seq >= :since) AS s

-- name: walk.gated
-- Queued jobs of some queues and tasks: by their gates, not in the order of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT p.seq AS number, g.queue, g.task FROM leasehold.gate AS g, LATERAL (
        SELECT r.seq FROM leasehold.ready AS r WHERE r.gate = g.id OFFSET 0) AS p
    WHERE p.seq < :below AND p.seq >= :since) AS j

-- name: walk.lanes
-- All jobs queued in lanes: the table has no index by seq.
SELECT number FROM (SELECT s.number FROM (
    SELECT p.seq AS number FROM leasehold.lane_place AS p WHERE p.seq < :below AND p.seq >= :since) AS s

-- name: walk.gated_lanes
SELECT number FROM (SELECT j.number FROM (
    SELECT p.seq AS number, g.queue, g.task
    FROM leasehold.lane_place AS p JOIN leasehold.gate AS g ON g.id = p.gate
    WHERE p.seq < :below AND p.seq >= :since) AS j

-- name: walk.in_lane
SELECT number FROM (SELECT s.number FROM (
    SELECT p.seq AS number FROM leasehold.lane_place AS p
    WHERE p.lane = :lane AND p.seq < :below AND p.seq >= :since) AS s

-- name: walk.lane_holders
-- Jobs that have started in a lane or block it, and have not ended. A job that is queued again is found in the queue.
SELECT number FROM (SELECT s.number FROM (
    SELECT h.job AS number FROM (
        SELECT x.job FROM leasehold.lane_hold AS x WHERE x.lane = :lane
        UNION ALL SELECT x.job FROM leasehold.lane_stop AS x WHERE x.lane = :lane) AS h
    WHERE h.job < :below AND h.job >= :since AND coalesce(
        (SELECT 1 FROM leasehold.lease AS p WHERE p.job = h.job),
        (SELECT 1 FROM leasehold.parked AS p WHERE p.job = h.job)) IS NOT NULL) AS s

-- name: walk.running
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.lease AS p WHERE p.job < :below AND p.job >= :since) AS s

-- name: walk.pending
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.parked AS p WHERE p.state = 1 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.waiting
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.parked AS p WHERE p.state = 2 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.paused
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.parked AS p WHERE p.state = 3 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.orphans
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.parked AS p WHERE p.state = 4 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.ended
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number, p.state FROM leasehold.outcome AS p WHERE p.job < :below AND p.job >= :since) AS s

-- name: walk.cancelled
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.outcome AS p WHERE p.state = 2 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.failed
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.outcome AS p WHERE p.state = 3 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.timed_out
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold.outcome AS p WHERE p.state = 4 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.members
SELECT number FROM (SELECT s.number FROM (
    SELECT m.job AS number FROM leasehold.member AS m
    WHERE m.group_name = :group AND m.job < :below AND m.job >= :since) AS s

-- name: walk.tagged
-- All jobs with the tag: in the order of ids, not of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM leasehold.tag AS t, LATERAL (
        SELECT b.seq, b.id, b.queue, b.task, b.lane, b.group_name, b.created_at FROM leasehold.job AS b
        WHERE b.id = t.job_id LIMIT 1) AS a
    WHERE t.name = :tag AND a.seq < :below AND a.seq >= :since) AS j

-- name: walk.tag
-- Counts the jobs with the tag, to estimate the size of this way.
SELECT number FROM (SELECT 1 AS number FROM leasehold.tag AS t WHERE t.name = :tag

-- name: walk.ids
-- All jobs whose ids are in the range: in the order of ids, not of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM (
        SELECT b.seq, b.id, b.queue, b.task, b.lane, b.group_name, b.created_at FROM leasehold.job AS b
        WHERE b.id BETWEEN :low::uuid AND :high::uuid OFFSET 0) AS a
    WHERE a.seq < :below AND a.seq >= :since) AS j

-- name: walk.id_range
-- Counts the ids in the range, to estimate the size of this way.
SELECT number FROM (SELECT 1 AS number FROM leasehold.job AS a WHERE a.id BETWEEN :low::uuid AND :high::uuid

-- name: walk.with_job
, LATERAL (
    SELECT a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM leasehold.job AS a
    WHERE a.seq = s.number LIMIT 1) AS j

-- name: walk.where
 WHERE true

-- name: walk.where_succeeded
 AND s.state = 1

-- name: walk.where_queue
 AND j.queue = :queue

-- name: walk.where_tasks
 AND j.task = ANY(:tasks::text[])

-- name: walk.where_lane
 AND j.lane = :lane

-- name: walk.where_group
 AND j.group_name = :group

-- name: walk.where_tags
 AND (SELECT count(*) FROM leasehold.tag AS w WHERE w.job_id = j.id AND w.name = ANY(:tags::text[])) = :tag_count

-- name: walk.where_ids
 AND j.id BETWEEN :low::uuid AND :high::uuid

-- name: walk.where_created_since
 AND j.created_at >= :created_since::timestamptz

-- name: walk.where_created_until
 AND j.created_at < :created_until::timestamptz

-- name: walk.where_live
 AND (SELECT 1 FROM leasehold.outcome AS p WHERE p.job = number) IS NULL

-- name: walk.where_states
 AND
-- include: state_of_number
 = ANY(:states::text[])

-- name: walk.cut
 ORDER BY number DESC LIMIT :limit) AS b

-- name: walk.or
 UNION ALL

-- name: walk.window
-- How far a walk goes when no index serves its conditions: each way reads :size rows and no more. And the id of the job
-- there, as a cursor to go on from.
SELECT w.number, (SELECT j.id FROM leasehold.job AS j WHERE j.seq = w.number) AS id
FROM (SELECT max(number) AS number FROM (

-- name: walk.past
 ORDER BY number DESC LIMIT 1 OFFSET :size::bigint) AS b

-- name: walk.window_end
) AS e) AS w

-- name: walk.size
-- How many jobs there are on a way that has no order, up to :size.
SELECT count(*) AS jobs FROM (

-- name: walk.size_end
 LIMIT :size) AS b) AS e

-- part: error_of_j
CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END

-- part: endings_of_j
LEFT JOIN LATERAL (SELECT x.state, x.error FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT x.error FROM leasehold.failure_state AS x WHERE x.job = j.seq LIMIT 1) AS t ON true

-- name: find_number_at
-- The highest number of a job that was created by then; above the highest, if all were. Jobs are created in the order
-- of their numbers, or nearly so, and no index serves their times: each step reads one job and halves the rest.
WITH RECURSIVE halves(low, width) AS (
    SELECT 0::bigint, 4611686018427387904
    UNION ALL
    SELECT low + CASE WHEN (
            SELECT j.created_at FROM leasehold.job AS j WHERE j.seq > low AND j.seq <= low + width
            ORDER BY j.seq DESC LIMIT 1) > :at::timestamptz THEN 0 ELSE width END, width / 2
    FROM halves WHERE width > 0)
SELECT max(low) AS number FROM halves;

-- name: search_text
-- The jobs of a walk, newest first, and whether each has one of the texts, which are lower case, in its arguments or in
-- its error. What was found in a job with sensitive arguments is in doubt: it may be a value that must not be shown.
SELECT d.number, j.id,
    (EXISTS (SELECT FROM unnest(:in_args::text[]) AS n(needle) WHERE strpos(lower(j.args::text), n.needle) > 0)
     OR EXISTS (SELECT FROM unnest(:in_error::text[]) AS n(needle) WHERE strpos(lower(
-- include: error_of_j
     ), n.needle) > 0)) AS found, strpos(j.policy::text, 'sensitive') > 0 AS doubtful
FROM (

-- name: search_text.page
) AS d, LATERAL (SELECT x.* FROM leasehold.job AS x WHERE x.seq = d.number LIMIT 1) AS j
-- include: endings_of_j
ORDER BY d.number DESC LIMIT :limit

-- name: read_texts
-- The texts to search of these jobs, and which of their arguments are sensitive.
SELECT j.seq AS number, j.args, j.policy,
-- include: error_of_j
AS error FROM unnest(:numbers::bigint[]) AS n(number),
    LATERAL (SELECT x.* FROM leasehold.job AS x WHERE x.seq = n.number LIMIT 1) AS j
-- include: endings_of_j
;

-- name: search.numbers
-- Jobs that were found before, instead of a walk.
SELECT n.number FROM unnest(:numbers::bigint[]) AS n(number)

-- name: list_failures
-- The jobs of a walk that have failed or timed out, newest first; of their errors the beginning.
SELECT j.id, j.task, o.finished_at, left(o.error, 2000) AS error FROM (

-- name: list_failures.page
) AS d, LATERAL (SELECT x.seq, x.id, x.task FROM leasehold.job AS x WHERE x.seq = d.number LIMIT 1) AS j,
    LATERAL (SELECT x.finished_at, x.error FROM leasehold.outcome AS x
             WHERE x.job = j.seq AND x.state IN (3, 4) LIMIT 1) AS o
ORDER BY d.number DESC LIMIT :limit
