-- name: find_old
-- Outcomes, how old they are, and which of them may be pruned. Whether that is old enough is decided by the rules.
SELECT o.job, o.state, o.result_ref, extract(epoch FROM :now - o.finished_at)::double precision AS age,
    (SELECT k.task FROM leasehold.job AS k WHERE k.seq = o.job) AS task, (true

-- name: find_old.page
-- The next ones in the order of seq. The number of rows read is bounded, not only of those found: on SQLite no other
-- connection writes meanwhile.
) AS free FROM (SELECT * FROM leasehold.outcome WHERE job > :after ORDER BY job LIMIT :limit) AS o ORDER BY o.job;

-- name: find_old.locked
) AS free FROM leasehold.outcome AS o WHERE o.job = ANY(:seqs::bigint[]);

-- name: where_free_to_go
-- Never a job that halts a lane, that holds a key for good (unless that is requested), that belongs to a group that
-- still lives, or whose result a job that waited for it may still want. Plain jobs are none of these. Scalar probes: an
-- EXISTS may be turned into a hash over a whole table.
 AND (o.special = 0 OR (
    SELECT (:keys OR NOT coalesce(j.unique_key IS NOT NULL AND j.unique_for_ever, false))
        AND (SELECT 1 FROM leasehold.lane_hold AS h WHERE h.lane = j.lane AND h.job = j.seq) IS NULL
        AND coalesce((SELECT g.live FROM leasehold.job_group AS g WHERE g.name = j.group_name), 0) <= 0
        AND (o.special < 2 OR (
            SELECT 1 FROM leasehold.dependency AS d, LATERAL (
                SELECT x.seq FROM leasehold.job AS x WHERE x.id = d.child_id LIMIT 1) AS c
            WHERE d.parent_id = j.id
              AND coalesce((SELECT e.state FROM leasehold.outcome AS e WHERE e.job = c.seq), 0) NOT IN (1, 2)
            LIMIT 1) IS NULL)
    FROM leasehold.job AS j WHERE j.seq = o.job))

-- name: is_young
-- Whether this job was created too recently for it, or for one that came after it, to be old.
SELECT j.created_at >= :now - :age::double precision * interval '1 second' AS young FROM leasehold.job AS j
WHERE j.seq = :job;

-- name: lock_old
-- Jobs that another transaction has locked are left to the next time.
SELECT j.seq FROM unnest(:seqs::bigint[]) AS r(seq), LATERAL (
    SELECT q.seq FROM leasehold.job AS q WHERE q.seq = r.seq LIMIT 1 FOR UPDATE SKIP LOCKED) AS j;

-- name: prune_outcomes
DELETE FROM leasehold.outcome WHERE job = ANY(:seqs::bigint[]);

-- name: prune_jobs
DELETE FROM leasehold.job WHERE seq = ANY(:seqs::bigint[]) RETURNING seq, id, task, group_name, unique_key, unique_for_ever;

-- name: prune_result_pieces
DELETE FROM leasehold.result_piece WHERE job = ANY(:seqs::bigint[]);

-- name: prune_failure_states
DELETE FROM leasehold.failure_state WHERE job = ANY(:seqs::bigint[]);

-- name: prune_attempts
DELETE FROM leasehold.attempt WHERE job = ANY(:seqs::bigint[]);

-- name: prune_executions
DELETE FROM leasehold.execution WHERE job = ANY(:seqs::bigint[]);

-- name: prune_time_limits
DELETE FROM leasehold.time_limit WHERE job = ANY(:seqs::bigint[]);

-- name: prune_lease_slots
DELETE FROM leasehold.lease_slot WHERE job = ANY(:seqs::bigint[]);

-- name: prune_slot_holds
DELETE FROM leasehold.slot_hold WHERE job = ANY(:seqs::bigint[]);

-- name: prune_members
DELETE FROM leasehold.member WHERE ctid = ANY(ARRAY(
    SELECT m.tid FROM json_to_recordset(:members::json) AS r(group_name text, job bigint), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.member AS q
        WHERE q.group_name = r.group_name AND q.job = r.job LIMIT 1) AS m));

-- name: prune_history
DELETE FROM leasehold.history WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_tags
DELETE FROM leasehold.tag WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_questions
DELETE FROM leasehold.question WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_updates
DELETE FROM leasehold.job_update WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_streams
DELETE FROM leasehold.stream WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_logs
DELETE FROM leasehold.log_tail WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_dependencies
DELETE FROM leasehold.dependency WHERE child_id = ANY(:ids::uuid[]) OR parent_id = ANY(:ids::uuid[]);

-- name: prune_follow_ups
DELETE FROM leasehold.follow_up WHERE child_id = ANY(:ids::uuid[]) OR parent_id = ANY(:ids::uuid[]);

-- name: prune_spending
DELETE FROM leasehold.spending WHERE job_id = ANY(:ids::uuid[]);

-- name: prune_budgets
-- A group's total stays as long as the group: it counts more jobs than these.
DELETE FROM leasehold.budget WHERE scope = 'job' AND name = ANY(:ids::text[]);

-- name: drop_keys_for_ever
DELETE FROM leasehold.unique_key WHERE ctid = ANY(ARRAY(
    SELECT u.tid FROM json_to_recordset(:rows::json) AS r(task text, key text, job_id uuid), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.unique_key AS q
        WHERE q.task = r.task AND q.key = r.key AND q.job_id = r.job_id LIMIT 1) AS u));

-- name: page_groups
SELECT name FROM leasehold.job_group WHERE name > :after ORDER BY name LIMIT :limit;

-- name: empty_groups
-- Without jobs, and not on hold. A limit was set on purpose: a group that has one goes only if that is requested. In
-- name order, as everywhere that groups are locked.
SELECT g.name FROM leasehold.job_group AS g WHERE g.name = ANY(:names::text[]) AND g.live <= 0 AND g.state <> 'held'
    AND (SELECT 1 FROM leasehold.member AS m WHERE m.group_name = g.name ORDER BY m.job LIMIT 1) IS NULL
    AND (:budgets OR (
        SELECT 1 FROM leasehold.budget AS b WHERE b.scope = 'group' AND b.name = g.name AND b.lim IS NOT NULL
        LIMIT 1) IS NULL)
ORDER BY g.name;

-- name: prune_groups
-- A job that has come in meanwhile has counted itself in the row, and the row is checked again.
DELETE FROM leasehold.job_group AS g WHERE g.name = ANY(:names::text[]) AND g.live <= 0 AND g.state <> 'held'
    AND (SELECT 1 FROM leasehold.member AS m WHERE m.group_name = g.name ORDER BY m.job LIMIT 1) IS NULL RETURNING g.name;

-- name: prune_group_budgets
DELETE FROM leasehold.budget WHERE scope = 'group' AND name = ANY(:names::text[]);

-- name: list_retention
SELECT task, state, seconds FROM leasehold.retention;

-- name: drop_retention
DELETE FROM leasehold.retention WHERE task = ANY(:tasks::text[]);

-- name: insert_retention
-- Another worker with the same tasks may start at the same time.
INSERT INTO leasehold.retention (task, state, seconds)
SELECT r.task, r.state, r.seconds FROM json_to_recordset(:rules::json) AS r(task text, state smallint, seconds double precision)
ORDER BY r.task, r.state ON CONFLICT (task, state) DO UPDATE SET seconds = excluded.seconds;
