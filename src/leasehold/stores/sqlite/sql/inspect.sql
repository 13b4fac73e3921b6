-- name: get_job
SELECT r.*, :now AS now FROM leasehold_job_row AS r WHERE r.id = :id;

-- name: list_jobs
-- One page of a walk, newest first; payloads are not read. It shows of a job what the view job_row shows; a join with
-- the view would build the whole view.
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
-- Counts jobs by place, each capped, so that no caller waits for it. For a state with two places the caller adds both.
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
-- The attempts after which the job went on, the one that ended the job (unless the job ended after it, elsewhere), and
-- the one that is under way.
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
-- not, so a crowd of delayed jobs costs no more. Other gates with limits, and paused ones, do not delay this job.
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

-- part: state_of_number
-- The state of the job with this number, in one snapshot. Each place but lanes is probed by key; a job that is in no
-- other place is queued in a lane.
coalesce(
    (SELECT CASE p.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
     FROM leasehold_outcome AS p WHERE p.job = number),
    (SELECT 'queued' FROM leasehold_ready AS p WHERE p.seq = number),
    (SELECT 'running' FROM leasehold_lease AS p WHERE p.job = number),
    (SELECT CASE p.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END
     FROM leasehold_parked AS p WHERE p.job = number),
    'queued')

-- part: attempt_in_lane
-- The attempt of a job j that is queued in its lane. Its place there is known if it has started, or if it is where it
-- came in; only a job that was moved is searched for along the lane.
(SELECT p.attempt FROM leasehold_lane_place AS p
 WHERE p.lane = j.lane AND p.lane_at = 0 AND p.seq = j.seq),
(SELECT p.attempt FROM leasehold_lane_place AS p
 WHERE p.lane = j.lane AND p.lane_at = max(coalesce(j.available_at, j.created_at), j.created_at) AND p.seq = j.seq),
(SELECT p.attempt FROM leasehold_lane_place AS p WHERE p.lane = j.lane AND p.seq = j.seq LIMIT 1)

-- name: find_cursor
-- Where the page after this job begins. If the job was pruned meanwhile, behind the next older one by id.
SELECT coalesce((SELECT seq FROM leasehold_job WHERE id = :before),
    (SELECT seq + 1 FROM leasehold_job WHERE id < :before ORDER BY id DESC LIMIT 1), 0) AS below;

-- name: walk.jobs
-- A walk goes through the numbers (seq) of jobs, downwards from :below to :since. Each of these fragments begins one
-- way to find them; the walk.where_… of the request's conditions follow, then walk.cut. `j` is the job, from the way
-- itself or from walk.with_job.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM leasehold_job AS a
    WHERE a.seq < :below AND a.seq >= :since) AS j

-- name: walk.queued
SELECT number FROM (SELECT s.number FROM (
    SELECT p.seq AS number FROM leasehold_ready AS p WHERE p.seq < :below AND p.seq >= :since) AS s

-- name: walk.gated
-- Queued jobs of some queues and tasks: by their gates, not in the order of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT p.seq AS number, g.queue, g.task FROM leasehold_gate AS g CROSS JOIN leasehold_ready AS p ON p.gate = g.id
    WHERE p.seq < :below AND p.seq >= :since) AS j

-- name: walk.lanes
-- All jobs queued in lanes: the table has no index by seq.
SELECT number FROM (SELECT s.number FROM (
    SELECT p.seq AS number FROM leasehold_lane_place AS p WHERE p.seq < :below AND p.seq >= :since) AS s

-- name: walk.gated_lanes
SELECT number FROM (SELECT j.number FROM (
    SELECT p.seq AS number, g.queue, g.task
    FROM leasehold_lane_place AS p CROSS JOIN leasehold_gate AS g ON g.id = p.gate
    WHERE p.seq < :below AND p.seq >= :since) AS j

-- name: walk.in_lane
SELECT number FROM (SELECT s.number FROM (
    SELECT p.seq AS number FROM leasehold_lane_place AS p
    WHERE p.lane = :lane AND p.seq < :below AND p.seq >= :since) AS s

-- name: walk.lane_holders
-- Jobs that have started in a lane or block it, and have not ended. A job that is queued again is found in the queue.
SELECT number FROM (SELECT s.number FROM (
    SELECT h.job AS number FROM (
        SELECT x.job FROM leasehold_lane_hold AS x WHERE x.lane = :lane
        UNION ALL SELECT x.job FROM leasehold_lane_stop AS x WHERE x.lane = :lane) AS h
    WHERE h.job < :below AND h.job >= :since AND coalesce(
        (SELECT 1 FROM leasehold_lease AS p WHERE p.job = h.job),
        (SELECT 1 FROM leasehold_parked AS p WHERE p.job = h.job)) IS NOT NULL) AS s

-- name: walk.running
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_lease AS p WHERE p.job < :below AND p.job >= :since) AS s

-- name: walk.pending
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_parked AS p INDEXED BY leasehold_parked_state
    WHERE p.state = 1 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.waiting
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_parked AS p INDEXED BY leasehold_parked_state
    WHERE p.state = 2 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.paused
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_parked AS p INDEXED BY leasehold_parked_state
    WHERE p.state = 3 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.orphans
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_parked AS p INDEXED BY leasehold_parked_state
    WHERE p.state = 4 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.ended
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number, p.state FROM leasehold_outcome AS p WHERE p.job < :below AND p.job >= :since) AS s

-- name: walk.cancelled
-- The condition of the index is repeated here: SQLite does not infer it.
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_outcome AS p INDEXED BY leasehold_outcome_notable
    WHERE p.state <> 1 AND p.state = 2 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.failed
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_outcome AS p INDEXED BY leasehold_outcome_notable
    WHERE p.state <> 1 AND p.state = 3 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.timed_out
SELECT number FROM (SELECT s.number FROM (
    SELECT p.job AS number FROM leasehold_outcome AS p INDEXED BY leasehold_outcome_notable
    WHERE p.state <> 1 AND p.state = 4 AND p.job < :below AND p.job >= :since) AS s

-- name: walk.members
SELECT number FROM (SELECT s.number FROM (
    SELECT m.job AS number FROM leasehold_member AS m
    WHERE m.group_name = :group AND m.job < :below AND m.job >= :since) AS s

-- name: walk.tagged
-- All jobs with the tag: in the order of ids, not of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at
    FROM leasehold_tag AS t CROSS JOIN leasehold_job AS a ON a.id = t.job_id
    WHERE t.name = :tag AND a.seq < :below AND a.seq >= :since) AS j

-- name: walk.tag
-- Counts the jobs with the tag, to estimate the size of this way.
SELECT number FROM (SELECT 1 AS number FROM leasehold_tag AS t WHERE t.name = :tag

-- name: walk.ids
-- All jobs whose ids are in the range: in the order of ids, not of seq, which the plus signs keep SQLite from using.
SELECT number FROM (SELECT j.number FROM (
    SELECT +a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM leasehold_job AS a
    WHERE a.id BETWEEN :low AND :high AND +a.seq < :below AND +a.seq >= :since) AS j

-- name: walk.id_range
-- Counts the ids in the range, to estimate the size of this way.
SELECT number FROM (SELECT 1 AS number FROM leasehold_job AS a WHERE a.id BETWEEN :low AND :high

-- name: walk.with_job
 CROSS JOIN leasehold_job AS j ON j.seq = s.number

-- name: walk.where
 WHERE true

-- name: walk.where_succeeded
 AND s.state = 1

-- name: walk.where_queue
 AND j.queue = :queue

-- name: walk.where_tasks
 AND j.task IN (SELECT value FROM json_each(:tasks))

-- name: walk.where_lane
 AND j.lane = :lane

-- name: walk.where_group
 AND j.group_name = :group

-- name: walk.where_tags
 AND (SELECT count(*) FROM leasehold_tag AS w INDEXED BY leasehold_tag_job
      WHERE w.job_id = j.id AND w.name IN (SELECT value FROM json_each(:tags))) = :tag_count

-- name: walk.where_ids
 AND j.id BETWEEN :low AND :high

-- name: walk.where_created_since
 AND j.created_at >= :created_since

-- name: walk.where_created_until
 AND j.created_at < :created_until

-- name: walk.where_live
 AND (SELECT 1 FROM leasehold_outcome AS p WHERE p.job = number) IS NULL

-- name: walk.where_states
 AND
-- include: state_of_number
 IN (SELECT value FROM json_each(:states))

-- name: walk.cut
 ORDER BY number DESC LIMIT :limit) AS b

-- name: walk.or
 UNION ALL

-- name: walk.window
-- How far a walk goes when no index serves its conditions: each way reads :size rows and no more. And the id of the job
-- there, as a cursor to go on from.
SELECT w.number, (SELECT j.id FROM leasehold_job AS j WHERE j.seq = w.number) AS id
FROM (SELECT max(number) AS number FROM (

-- name: walk.past
 ORDER BY number DESC LIMIT 1 OFFSET :size) AS b

-- name: walk.window_end
) AS e) AS w

-- name: walk.size
-- How many jobs there are on a way that has no order, up to :size.
SELECT count(*) AS jobs FROM (

-- name: walk.size_end
 LIMIT :size) AS b) AS e

-- part: error_of_j
CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END

-- name: find_number_at
-- The highest number of a job that was created by then; above the highest, if all were. Jobs are created in the order
-- of their numbers, or nearly so, and no index serves their times: each step reads one job and halves the rest.
WITH RECURSIVE halves(low, width) AS (
    SELECT 0, 4611686018427387904
    UNION ALL
    SELECT low + CASE WHEN (
            SELECT j.created_at FROM leasehold_job AS j WHERE j.seq > low AND j.seq <= low + width
            ORDER BY j.seq DESC LIMIT 1) > :at THEN 0 ELSE width END, width / 2
    FROM halves WHERE width > 0)
SELECT max(low) AS number FROM halves;

-- name: search_text
-- The jobs of a walk, newest first, and whether each has one of the texts, which are lower case, in its arguments or in
-- its error. What was found in a job with sensitive arguments is in doubt: it may be a value that must not be shown.
SELECT d.number, j.id,
    (EXISTS (SELECT 1 FROM json_each(:in_args) AS n WHERE instr(lower(j.args), n.value) > 0)
     OR EXISTS (SELECT 1 FROM json_each(:in_error) AS n WHERE instr(lower(
-- include: error_of_j
     ), n.value) > 0)) AS found, instr(j.policy, 'sensitive') > 0 AS doubtful
FROM (

-- name: search_text.page
) AS d CROSS JOIN leasehold_job AS j ON j.seq = d.number
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
ORDER BY d.number DESC LIMIT :limit

-- name: read_texts
-- The texts to search of these jobs, and which of their arguments are sensitive.
SELECT j.seq AS number, j.args, j.policy,
-- include: error_of_j
AS error FROM json_each(:numbers) AS n CROSS JOIN leasehold_job AS j ON j.seq = n.value
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq;

-- name: search.numbers
-- Jobs that were found before, instead of a walk.
SELECT n.value AS number FROM json_each(:numbers) AS n

-- name: list_failures
-- The jobs of a walk that have failed or timed out, newest first; of their errors the beginning.
SELECT j.id, j.task, o.finished_at, substr(o.error, 1, 2000) AS error FROM (

-- name: list_failures.page
) AS d CROSS JOIN leasehold_job AS j ON j.seq = d.number
CROSS JOIN leasehold_outcome AS o ON o.job = j.seq AND o.state IN (3, 4) ORDER BY d.number DESC LIMIT :limit
