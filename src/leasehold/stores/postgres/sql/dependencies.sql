-- part: state_of_j
-- The state of the job j, from the place it is in.
(SELECT 'queued' FROM leasehold.ready AS p WHERE p.seq = j.seq
 UNION ALL SELECT 'queued' FROM leasehold.lane_place AS p WHERE p.lane = j.lane AND p.seq = j.seq
 UNION ALL SELECT 'running' FROM leasehold.lease AS p WHERE p.job = j.seq
 UNION ALL SELECT CASE p.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END
    FROM leasehold.parked AS p WHERE p.job = j.seq
 UNION ALL SELECT CASE p.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
    FROM leasehold.outcome AS p WHERE p.job = j.seq LIMIT 1)

-- part: below
below AS (
    SELECT d.child_id AS id FROM leasehold.dependency AS d WHERE d.parent_id = ANY(:ids::uuid[]) AND NOT d.met
    UNION
    SELECT d.child_id FROM below AS b, LATERAL (
        SELECT e.child_id FROM leasehold.dependency AS e WHERE e.parent_id = b.id AND NOT e.met OFFSET 0) AS d)

-- name: lock_descendants
-- The anchors of all jobs that wait for these jobs, directly or through other jobs, by seq.
WITH RECURSIVE
-- include: below
SELECT j.seq FROM leasehold.job AS j WHERE j.id = ANY(ARRAY(SELECT id FROM below)) ORDER BY j.seq FOR NO KEY UPDATE;

-- name: lock_free_descendants
-- The same without waiting. Returns the jobs that another transaction has locked.
WITH RECURSIVE
-- include: below
, free AS MATERIALIZED (
    SELECT j.seq FROM leasehold.job AS j WHERE j.id = ANY(ARRAY(SELECT id FROM below)) ORDER BY j.seq
    FOR NO KEY UPDATE SKIP LOCKED)
SELECT j.seq FROM leasehold.job AS j
WHERE j.id = ANY(ARRAY(SELECT id FROM below)) AND j.seq <> ALL(ARRAY(SELECT seq FROM free));

-- name: await_ready
UPDATE leasehold.ready SET special = 2 WHERE seq = ANY(:seqs::bigint[]);

-- name: await_lane_places
UPDATE leasehold.lane_place SET special = 2 WHERE lane = ANY(:lanes::text[]) AND seq = ANY(:seqs::bigint[]);

-- name: await_leases
UPDATE leasehold.lease SET special = 2 WHERE job = ANY(:seqs::bigint[]);

-- name: await_parked
UPDATE leasehold.parked SET special = 2 WHERE job = ANY(:seqs::bigint[]);

-- name: await_outcomes
-- The job has ended, but its child may want its result: it is not pruned before.
UPDATE leasehold.outcome SET special = 2 WHERE job = ANY(:seqs::bigint[]);

-- name: insert_dependencies
INSERT INTO leasehold.dependency (child_id, parent_id, position, on_failure)
SELECT r.child_id, r.parent_id, r.position, r.on_failure
FROM json_to_recordset(:dependencies::json) AS r(child_id uuid, parent_id uuid, position integer, on_failure text);

-- name: hold_for_parents
-- New children were inserted as held, so that no claim could see them meanwhile; this records what really holds them.
WITH v AS MATERIALIZED (
    SELECT j.seq, r.unmet, r.held
    FROM json_to_recordset(:children::json) AS r(id uuid, unmet integer, held boolean), LATERAL (
        SELECT q.seq FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j)
UPDATE leasehold.parked AS p SET unmet = v.unmet, held = v.held
FROM v WHERE p.job = ANY(ARRAY(SELECT seq FROM v)) AND p.job = v.seq;

-- name: find_dependents
-- The jobs that still wait for these jobs.
SELECT d.child_id, d.parent_id, d.on_failure FROM leasehold.dependency AS d
WHERE d.parent_id = ANY(:ids::uuid[]) AND NOT d.met ORDER BY d.child_id, d.position;

-- name: meet_dependencies
UPDATE leasehold.dependency AS d SET met = true
FROM json_to_recordset(:met::json) AS v(child_id uuid, parent_id uuid)
WHERE d.child_id = v.child_id AND d.parent_id = v.parent_id;

-- name: read_parent_results
-- In the order of `after=`. Parents without success have no result.
SELECT d.parent_id AS id, j.task, p.result, p.result_ref FROM leasehold.dependency AS d,
    LATERAL (SELECT q.seq, q.task FROM leasehold.job AS q WHERE q.id = d.parent_id LIMIT 1) AS j,
    LATERAL (SELECT o.result, o.result_ref FROM leasehold.outcome AS o WHERE o.job = j.seq AND o.state = 1 LIMIT 1) AS p
WHERE d.child_id = :id ORDER BY d.position;

-- name: list_parents
-- The parents that still exist, in the order of `after=`.
SELECT d.parent_id, d.on_failure FROM leasehold.dependency AS d,
    LATERAL (SELECT FROM leasehold.job AS q WHERE q.id = d.parent_id LIMIT 1) AS p
WHERE d.child_id = :id ORDER BY d.position;

-- name: list_relatives
-- What a job waits for (the unmet ones first), which jobs wait for it, whose follow-up it is, and its own follow-ups.
SELECT r.relation, j.id, j.task, j.queue,
-- include: state_of_j
AS state, r.on_failure, r.met FROM (
    SELECT 1 AS rank, 'waits_for' AS relation, parent_id AS id, on_failure, met, position FROM leasehold.dependency
        WHERE child_id = :id
    UNION ALL
    SELECT 2, 'awaited_by', child_id, on_failure, met, 0 FROM leasehold.dependency WHERE parent_id = :id
    UNION ALL
    SELECT 3, 'follow_up_of', parent_id, NULL, NULL, 0 FROM leasehold.follow_up WHERE child_id = :id
    UNION ALL
    SELECT 4, 'follow_up', child_id, NULL, NULL, 0 FROM leasehold.follow_up WHERE parent_id = :id) AS r,
    LATERAL (SELECT q.seq, q.id, q.task, q.queue, q.lane FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j
ORDER BY r.rank, r.met, r.position, j.seq LIMIT :limit;

-- name: count_relatives
SELECT 'waits_for' AS relation, count(*) AS jobs FROM leasehold.dependency WHERE child_id = :id
UNION ALL SELECT 'awaited_by', count(*) FROM leasehold.dependency WHERE parent_id = :id
UNION ALL SELECT 'follow_up_of', count(*) FROM leasehold.follow_up WHERE child_id = :id
UNION ALL SELECT 'follow_up', count(*) FROM leasehold.follow_up WHERE parent_id = :id;

-- name: list_ties
-- Which job waits for which, and which job has enqueued which: all ties of these jobs, with the job at the other end.
-- Of each kind of tie at most :limit.
SELECT r.relation, r.parent_id, r.child_id, r.met, j.id, j.task,
-- include: state_of_j
AS state, left(CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END, 1000) AS error FROM (
    (SELECT 'waits_for' AS relation, d.parent_id, d.child_id, d.met, d.parent_id AS id
     FROM unnest(:ids::uuid[]) AS g(id), LATERAL (
        SELECT x.* FROM leasehold.dependency AS x WHERE x.child_id = g.id LIMIT :limit) AS d LIMIT :limit)
    UNION ALL
    (SELECT 'waits_for', d.parent_id, d.child_id, d.met, d.child_id
     FROM unnest(:ids::uuid[]) AS g(id), LATERAL (
        SELECT x.* FROM leasehold.dependency AS x WHERE x.parent_id = g.id LIMIT :limit) AS d LIMIT :limit)
    UNION ALL
    (SELECT 'follow_up', d.parent_id, d.child_id, NULL, d.parent_id
     FROM unnest(:ids::uuid[]) AS g(id), LATERAL (
        SELECT x.* FROM leasehold.follow_up AS x WHERE x.child_id = g.id LIMIT :limit) AS d LIMIT :limit)
    UNION ALL
    (SELECT 'follow_up', d.parent_id, d.child_id, NULL, d.child_id
     FROM unnest(:ids::uuid[]) AS g(id), LATERAL (
        SELECT x.* FROM leasehold.follow_up AS x
        WHERE x.parent_id = g.id ORDER BY x.child_id LIMIT :limit) AS d LIMIT :limit)) AS r,
    LATERAL (SELECT q.seq, q.id, q.task, q.lane FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT x.state, x.error FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT x.error FROM leasehold.failure_state AS x WHERE x.job = j.seq LIMIT 1) AS t ON true
ORDER BY j.seq, r.relation, r.parent_id, r.child_id;
