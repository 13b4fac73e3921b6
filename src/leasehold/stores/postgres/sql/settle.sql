-- part: given_successes
-- Hidden from the planner, as in claim_plain: if it knew how many, it would make a new plan for every batch.
given AS MATERIALIZED (
    SELECT :settled.jobs::bigint[] AS jobs, :settled.tokens::bigint[] AS tokens, :settled.results::text[] AS results,
        :settled.references::text[] AS refs),
v AS MATERIALIZED (
    SELECT r.job, r.token, r.result, r.result_ref
    FROM given, unnest(given.jobs, given.tokens, given.results, given.refs) AS r(job, token, result, result_ref))

-- part: end_successes
-- One list may hold an old token of a job and a new one.
ended AS (
    INSERT INTO leasehold.outcome (job, token, finished_at, started_at, attempt, worker, state, special, result, result_ref)
    SELECT g.job, g.token, :now, g.started_at, g.attempt, g.worker, 1, g.special, v.result::json, v.result_ref
    FROM gone AS g JOIN v ON v.job = g.job AND v.token = g.token)

-- part: left_alone
-- Mostly no job was left alone, and then nothing is compared.
SELECT v.job, false AS slots FROM v
WHERE (SELECT count(*) FROM gone) < (SELECT count(*) FROM v)
  AND NOT EXISTS (SELECT FROM gone AS g WHERE g.job = v.job AND g.token = v.token)

-- name: settle_plain
-- A success stays a success under every stop flag, so the token is the whole guard. One probe per lease, by its key,
-- whatever the statistics are; what another transaction has locked is skipped, so that this statement waits for no job
-- and is in no circle of waits. Only jobs without ties: the tables of settle_succeeded cost a fifth of it, even if they
-- are empty. What is inserted comes from what was deleted. Returns the jobs that were left alone.
WITH
-- include: given_successes
, gone AS (
    DELETE FROM leasehold.lease WHERE ctid = ANY(ARRAY(
        SELECT l.tid FROM v, LATERAL (
            SELECT q.ctid AS tid FROM leasehold.lease AS q WHERE q.job = v.job AND q.token = v.token AND q.special = 0
            LIMIT 1 FOR UPDATE SKIP LOCKED) AS l))
    RETURNING job, token, started_at, attempt, worker, special),
-- include: end_successes
-- include: left_alone
;

-- name: settle_succeeded
-- The same for jobs with ties. Jobs that others wait for are left to the settle under the lock, which judges the others
-- in the same transaction. Returns one row more if slots are free again. Groups are locked after everything else: they
-- wait for the counts of the others. Then listeners are notified of the new states. Without a listener no job is looked
-- up for one.
WITH
-- include: given_successes
, gone AS (
    DELETE FROM leasehold.lease WHERE ctid = ANY(ARRAY(
        SELECT l.tid FROM v, LATERAL (
            SELECT q.ctid AS tid FROM leasehold.lease AS q WHERE q.job = v.job AND q.token = v.token AND q.special < 2
            LIMIT 1 FOR UPDATE SKIP LOCKED) AS l))
    RETURNING job, token, started_at, attempt, worker, special),
facts AS MATERIALIZED (
    SELECT g.job, g.attempt, j.id, j.lane, j.priority, j.group_name, j.task, j.unique_key, j.deadline_at, j.start_by
    FROM gone AS g, LATERAL (SELECT * FROM leasehold.job AS q WHERE q.seq = g.job LIMIT 1) AS j WHERE g.special = 1),
questions AS ( -- only a job with an earlier attempt can have questions
    UPDATE leasehold.question SET closed_at = coalesce(closed_at, :now), answer = CASE WHEN NOT secret THEN answer END
    WHERE job_id = ANY(ARRAY(SELECT id FROM facts WHERE attempt > 1))
      AND (closed_at IS NULL OR (secret AND answer IS NOT NULL))
    RETURNING 1),
limits AS (
    DELETE FROM leasehold.time_limit
    WHERE job = ANY(ARRAY(SELECT job FROM facts WHERE deadline_at IS NOT NULL OR start_by IS NOT NULL))
    RETURNING 1),
keys AS (
    DELETE FROM leasehold.unique_key WHERE ctid = ANY(ARRAY(
        SELECT k.tid FROM facts AS f, LATERAL (
            SELECT q.ctid AS tid FROM leasehold.unique_key AS q
            WHERE q.task = f.task AND q.key = f.unique_key AND q.job_id = f.id AND NOT q.for_ever LIMIT 1) AS k
        WHERE f.unique_key IS NOT NULL))
    RETURNING 1),
slots AS (DELETE FROM leasehold.lease_slot WHERE job = ANY(ARRAY(SELECT job FROM facts)) RETURNING job),
holds AS (
    DELETE FROM leasehold.lane_hold WHERE ctid = ANY(ARRAY(
        SELECT h.tid FROM facts AS f, LATERAL (
            SELECT q.ctid AS tid FROM leasehold.lane_hold AS q WHERE q.lane = f.lane AND q.job = f.job LIMIT 1) AS h
        WHERE f.lane IS NOT NULL))
    RETURNING 1),
tickets AS (
    INSERT INTO leasehold.ticket (gate, priority, available_at, lane)
    SELECT 0, coalesce(h.priority, f.priority), :now, f.lane FROM facts AS f LEFT JOIN LATERAL (
        SELECT p.priority FROM leasehold.lane_place AS p WHERE p.lane = f.lane AND p.lane_at <= :now
        ORDER BY p.lane_at, p.seq LIMIT 1) AS h ON true
    WHERE f.lane IS NOT NULL
    RETURNING 1),
groups AS (
    UPDATE leasehold.job_group AS g SET version = g.version + 1, live = g.live - f.jobs
    FROM (SELECT q.name, n.jobs
          FROM (SELECT group_name, count(*) AS jobs FROM facts WHERE group_name IS NOT NULL GROUP BY group_name) AS n
          JOIN leasehold.job_group AS q ON q.name = n.group_name
          WHERE (SELECT count(*) FROM tickets) + (SELECT count(*) FROM holds) + (SELECT count(*) FROM slots)
              + (SELECT count(*) FROM keys) + (SELECT count(*) FROM limits) + (SELECT count(*) FROM questions) >= 0
          ORDER BY q.name FOR UPDATE OF q) AS f
    WHERE g.name = f.name RETURNING g.name, g.live, g.version),
listeners AS MATERIALIZED (
    SELECT q.name, q.event, q.task FROM leasehold.listener AS q WHERE q.event IN ('succeeded', 'group_done')
      AND (q.seen_at IS NULL OR q.seen_at >= :now - interval '1 day')),
reported AS (
    INSERT INTO leasehold.outbox (id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, due_at)
    SELECT replace(gen_random_uuid()::text, '-', ''), l.name, 'succeeded', j.id, j.task, j.queue, g.attempt, j.group_name,
        '', '{}'::json, :now, :now
    FROM gone AS g, LATERAL (SELECT * FROM leasehold.job AS q WHERE q.seq = g.job LIMIT 1) AS j, listeners AS l
    WHERE EXISTS (SELECT FROM listeners AS x WHERE x.event = 'succeeded')
      AND l.event = 'succeeded' AND l.task IN ('', j.task) AND j.task <> 'leasehold' || '.webhook' -- in one piece it would be taken for a table
    UNION ALL
    SELECT replace(gen_random_uuid()::text, '-', ''), l.name, 'group_done', NULL, '', '', 0, g.name,
        'no job of the group is left that could run', json_build_object('version', g.version), :now, :now
    FROM groups AS g, listeners AS l WHERE g.live = 0 AND l.event = 'group_done'),
-- include: end_successes
-- include: left_alone
UNION ALL
SELECT NULL, true FROM (SELECT FROM slots LIMIT 1) AS freed;

-- name: read_settlements
-- After a lost reply: is the lease still held by this token, and if not, did its holder settle the attempt under it?
SELECT j.id, EXISTS (SELECT FROM leasehold.lease AS l WHERE l.job = j.seq AND l.token = r.token OFFSET 0) AS held, coalesce(
    (SELECT o.name FROM leasehold.outcome AS p JOIN leasehold.worker_name AS o ON o.number = p.worker
     WHERE p.job = j.seq AND p.token = r.token),
    (SELECT o.name FROM leasehold.attempt AS a JOIN leasehold.worker_name AS o ON o.number = a.worker
     WHERE a.job = j.seq AND a.token = r.token AND a.settled)) AS settled_by
FROM unnest(:leases.ids::uuid[], :leases.tokens::bigint[]) AS r(id, token), LATERAL (
    SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j;

-- name: insert_follow_ups
INSERT INTO leasehold.follow_up (parent_id, child_id)
SELECT r.parent_id, r.child_id FROM json_to_recordset(:follow_ups::json) AS r(parent_id uuid, child_id uuid)
ON CONFLICT DO NOTHING;
