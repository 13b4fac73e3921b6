-- part: state_of_number
-- The state of the job with this number, in one snapshot. Scalar probes: an EXISTS may be turned into a hash over a
-- whole table. Where it is, but for lanes, is asked by key; whoever is nowhere else is queued in a lane.
coalesce(
    (SELECT CASE p.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
     FROM leasehold.outcome AS p WHERE p.job = number),
    (SELECT 'queued' FROM leasehold.ready AS p WHERE p.seq = number),
    (SELECT 'running' FROM leasehold.lease AS p WHERE p.job = number),
    (SELECT CASE p.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END
     FROM leasehold.parked AS p WHERE p.job = number),
    'queued')

-- part: attempt_in_lane
-- Of a job j that is queued in its lane. Its place there is known if it has started, or if it is where it came in; only
-- one that was moved is looked for along the lane.
(SELECT p.attempt FROM leasehold.lane_place AS p
 WHERE p.lane = j.lane AND p.lane_at = to_timestamp(0) AND p.seq = j.seq),
(SELECT p.attempt FROM leasehold.lane_place AS p
 WHERE p.lane = j.lane AND p.lane_at = greatest(j.available_at, j.created_at) AND p.seq = j.seq),
(SELECT p.attempt FROM leasehold.lane_place AS p WHERE p.lane = j.lane AND p.seq = j.seq LIMIT 1)

-- name: find_cursor
-- Where a page begins that follows this job. If it was pruned meanwhile, behind the next older one by id.
SELECT coalesce((SELECT seq FROM leasehold.job WHERE id = :before),
    (SELECT seq + 1 FROM leasehold.job WHERE id < :before ORDER BY id DESC LIMIT 1), 0) AS below;

-- name: walk.jobs
-- A walk goes through the numbers (seq) of jobs, downwards from :below to :since. Each of these fragments begins one
-- way to find them; conditions named walk.where_… follow as asked, then walk.cut. `j` is the job, where the way brings
-- it or walk.with_job does.
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
-- All that is queued in lanes: it has no index by seq.
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
-- Who has started in a lane or blocks it, and has not ended. Whoever is back in the queue is met there.
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
-- All that has the tag: in the order of ids, not of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM leasehold.tag AS t, LATERAL (
        SELECT b.seq, b.id, b.queue, b.task, b.lane, b.group_name, b.created_at FROM leasehold.job AS b
        WHERE b.id = t.job_id LIMIT 1) AS a
    WHERE t.name = :tag AND a.seq < :below AND a.seq >= :since) AS j

-- name: walk.tag
-- For its size only.
SELECT number FROM (SELECT 1 AS number FROM leasehold.tag AS t WHERE t.name = :tag

-- name: walk.ids
-- All whose ids are in the range: in the order of ids, not of seq.
SELECT number FROM (SELECT j.number FROM (
    SELECT a.seq AS number, a.id, a.queue, a.task, a.lane, a.group_name, a.created_at FROM (
        SELECT b.seq, b.id, b.queue, b.task, b.lane, b.group_name, b.created_at FROM leasehold.job AS b
        WHERE b.id BETWEEN :low::uuid AND :high::uuid OFFSET 0) AS a
    WHERE a.seq < :below AND a.seq >= :since) AS j

-- name: walk.id_range
-- For its size only.
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
-- How far a walk may go whose conditions no index serves: each way reads so many rows and no more. And the id of the
-- job there, as a cursor to go on from.
SELECT w.number, (SELECT j.id FROM leasehold.job AS j WHERE j.seq = w.number) AS id
FROM (SELECT max(number) AS number FROM (

-- name: walk.past
 ORDER BY number DESC LIMIT 1 OFFSET :size::bigint) AS b

-- name: walk.window_end
) AS e) AS w

-- name: walk.size
-- How many there are on a way that has no order, up to :size.
SELECT count(*) AS jobs FROM (

-- name: walk.size_end
 LIMIT :size) AS b) AS e
