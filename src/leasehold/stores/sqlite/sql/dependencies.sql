-- part: state_of_j
-- The state of the job j, from the place it is in.
(SELECT 'queued' FROM leasehold_ready AS p WHERE p.seq = j.seq
 UNION ALL SELECT 'queued' FROM leasehold_lane_place AS p WHERE p.lane = j.lane AND p.seq = j.seq
 UNION ALL SELECT 'running' FROM leasehold_lease AS p WHERE p.job = j.seq
 UNION ALL SELECT CASE p.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END
    FROM leasehold_parked AS p WHERE p.job = j.seq
 UNION ALL SELECT CASE p.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END
    FROM leasehold_outcome AS p WHERE p.job = j.seq LIMIT 1)

-- name: lock_descendants
-- Nothing to lock: one writer at a time.
SELECT 1 WHERE json_array_length(:ids) < 0;

-- name: lock_free_descendants
SELECT 1 WHERE json_array_length(:ids) < 0;

-- name: await_ready
UPDATE leasehold_ready SET special = 2 WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: await_lane_places
UPDATE leasehold_lane_place SET special = 2
WHERE lane IN (SELECT value FROM json_each(:lanes)) AND seq IN (SELECT value FROM json_each(:seqs));

-- name: await_leases
UPDATE leasehold_lease SET special = 2 WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: await_parked
UPDATE leasehold_parked SET special = 2 WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: await_outcomes
-- The job has ended, but its child may want its result: it is not pruned before.
UPDATE leasehold_outcome SET special = 2 WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: insert_dependencies
INSERT INTO leasehold_dependency (child_id, parent_id, position, on_failure)
SELECT json_extract(r.value, '$.child_id'), json_extract(r.value, '$.parent_id'), json_extract(r.value, '$.position'),
    json_extract(r.value, '$.on_failure')
FROM json_each(:dependencies) AS r;

-- name: hold_for_parents
-- New children were inserted as held, so that no claim could see them meanwhile; this records what really holds them.
-- An INSERT that always meets the row that is there: with statistics SQLite may reverse the join of an UPDATE, and go
-- through all parked rows.
INSERT INTO leasehold_parked (job, state, token, attempt, special, since, unmet, held)
SELECT p.job, p.state, p.token, p.attempt, p.special, p.since, json_extract(r.value, '$.unmet'),
    json_extract(r.value, '$.held')
FROM json_each(:children) AS r CROSS JOIN leasehold_job AS j ON j.id = json_extract(r.value, '$.id')
    CROSS JOIN leasehold_parked AS p ON p.job = j.seq WHERE true
ON CONFLICT (job) DO UPDATE SET unmet = excluded.unmet, held = excluded.held;

-- name: find_dependents
-- The jobs that still wait for these jobs.
SELECT d.child_id, d.parent_id, d.on_failure FROM leasehold_dependency AS d
WHERE d.parent_id IN (SELECT value FROM json_each(:ids)) AND NOT d.met ORDER BY d.child_id, d.position;

-- name: meet_dependencies
UPDATE leasehold_dependency SET met = 1 WHERE (child_id, parent_id) IN (
    SELECT json_extract(value, '$.child_id'), json_extract(value, '$.parent_id') FROM json_each(:met));

-- name: read_parent_results
-- In the order of `after=`. Parents without success have no result.
SELECT d.parent_id AS id, j.task, p.result, p.result_ref FROM leasehold_dependency AS d
CROSS JOIN leasehold_job AS j ON j.id = d.parent_id CROSS JOIN leasehold_outcome AS p ON p.job = j.seq
WHERE d.child_id = :id AND p.state = 1 ORDER BY d.position;

-- name: list_parents
-- The parents that still exist, in the order of `after=`.
SELECT d.parent_id, d.on_failure FROM leasehold_dependency AS d CROSS JOIN leasehold_job AS p ON p.id = d.parent_id
WHERE d.child_id = :id ORDER BY d.position;

-- name: list_relatives
-- What a job waits for (the unmet ones first), which jobs wait for it, whose follow-up it is, and its own follow-ups.
SELECT r.relation, j.id, j.task, j.queue,
-- include: state_of_j
AS state, r.on_failure, r.met FROM (
    SELECT 1 AS rank, 'waits_for' AS relation, parent_id AS id, on_failure, met, position FROM leasehold_dependency
        WHERE child_id = :id
    UNION ALL
    SELECT 2, 'awaited_by', child_id, on_failure, met, 0 FROM leasehold_dependency WHERE parent_id = :id
    UNION ALL
    SELECT 3, 'follow_up_of', parent_id, NULL, NULL, 0 FROM leasehold_follow_up WHERE child_id = :id
    UNION ALL
    SELECT 4, 'follow_up', child_id, NULL, NULL, 0 FROM leasehold_follow_up WHERE parent_id = :id) AS r
CROSS JOIN leasehold_job AS j ON j.id = r.id
ORDER BY r.rank, r.met, r.position, j.seq LIMIT :limit;

-- name: count_relatives
SELECT 'waits_for' AS relation, count(*) AS jobs FROM leasehold_dependency WHERE child_id = :id
UNION ALL SELECT 'awaited_by', count(*) FROM leasehold_dependency WHERE parent_id = :id
UNION ALL SELECT 'follow_up_of', count(*) FROM leasehold_follow_up WHERE child_id = :id
UNION ALL SELECT 'follow_up', count(*) FROM leasehold_follow_up WHERE parent_id = :id;

-- name: list_ties
-- Which job waits for which, and which job has enqueued which: all ties of these jobs, with the job at the other end.
-- Of each kind of tie at most :limit.
SELECT r.relation, r.parent_id, r.child_id, r.met, j.id, j.task,
-- include: state_of_j
AS state, substr(CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END, 1, 1000) AS error FROM (
    SELECT * FROM (
        SELECT 'waits_for' AS relation, d.parent_id, d.child_id, d.met, d.parent_id AS id
        FROM json_each(:ids) AS g CROSS JOIN leasehold_dependency AS d ON d.child_id = g.value LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT 'waits_for', d.parent_id, d.child_id, d.met, d.child_id
        FROM json_each(:ids) AS g CROSS JOIN leasehold_dependency AS d ON d.parent_id = g.value LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT 'follow_up', d.parent_id, d.child_id, NULL, d.parent_id
        FROM json_each(:ids) AS g CROSS JOIN leasehold_follow_up AS d ON d.child_id = g.value LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT 'follow_up', d.parent_id, d.child_id, NULL, d.child_id
        FROM json_each(:ids) AS g CROSS JOIN leasehold_follow_up AS d ON d.parent_id = g.value LIMIT :limit)) AS r
CROSS JOIN leasehold_job AS j ON j.id = r.id
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
ORDER BY j.seq, r.relation, r.parent_id, r.child_id;
