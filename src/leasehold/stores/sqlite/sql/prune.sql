-- name: find_old
-- Outcomes, how old they are, and which of them may be pruned. Whether that is old enough is decided by the rules.
SELECT o.job, o.state, o.result_ref, (:now - o.finished_at) / 1e6 AS age,
    (SELECT k.task FROM leasehold_job AS k WHERE k.seq = o.job) AS task, (1

-- name: find_old.page
-- The next ones in the order of seq. The number of rows read is bounded, not only of those found: on SQLite no other
-- connection writes meanwhile.
) AS free FROM (SELECT * FROM leasehold_outcome WHERE job > :after ORDER BY job LIMIT :limit) AS o ORDER BY o.job;

-- name: find_old.locked
) AS free FROM leasehold_outcome AS o WHERE o.job IN (SELECT value FROM json_each(:seqs));

-- name: where_free_to_go
-- Never a job that halts a lane, that holds a key for good (unless that is requested), that belongs to a group that
-- still lives, or whose result a job that waited for it may still want. Plain jobs are none of these.
 AND (o.special = 0 OR (
    SELECT (:keys OR NOT coalesce(j.unique_key IS NOT NULL AND j.unique_for_ever, 0))
        AND (SELECT 1 FROM leasehold_lane_hold AS h WHERE h.lane = j.lane AND h.job = j.seq) IS NULL
        AND coalesce((SELECT g.live FROM leasehold_job_group AS g WHERE g.name = j.group_name), 0) <= 0
        AND (o.special < 2 OR (
            SELECT 1 FROM leasehold_dependency AS d INDEXED BY leasehold_dependency_parent
            CROSS JOIN leasehold_job AS c ON c.id = d.child_id WHERE d.parent_id = j.id
              AND coalesce((SELECT e.state FROM leasehold_outcome AS e WHERE e.job = c.seq), 0) NOT IN (1, 2)
            LIMIT 1) IS NULL)
    FROM leasehold_job AS j WHERE j.seq = o.job))

-- name: is_young
-- Whether this job was created too recently for it, or for one that came after it, to be old.
SELECT j.created_at >= :now - CAST(round(:age * 1e6) AS INTEGER) AS young FROM leasehold_job AS j
WHERE j.seq = :job;

-- name: lock_old
-- This connection is the writer: no other transaction has locked them.
SELECT j.seq FROM leasehold_job AS j WHERE j.seq IN (SELECT value FROM json_each(:seqs));

-- name: prune_outcomes
DELETE FROM leasehold_outcome WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_jobs
DELETE FROM leasehold_job WHERE seq IN (SELECT value FROM json_each(:seqs)) RETURNING seq, id, task, group_name, unique_key, unique_for_ever;

-- name: prune_result_pieces
DELETE FROM leasehold_result_piece WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_failure_states
DELETE FROM leasehold_failure_state WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_attempts
DELETE FROM leasehold_attempt WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_executions
DELETE FROM leasehold_execution WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_time_limits
DELETE FROM leasehold_time_limit WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_lease_slots
DELETE FROM leasehold_lease_slot WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_slot_holds
DELETE FROM leasehold_slot_hold WHERE job IN (SELECT value FROM json_each(:seqs));

-- name: prune_members
DELETE FROM leasehold_member WHERE (group_name, job) IN (
    SELECT json_extract(value, '$.group_name'), json_extract(value, '$.job') FROM json_each(:members));

-- name: prune_history
DELETE FROM leasehold_history WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_tags
DELETE FROM leasehold_tag WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_questions
DELETE FROM leasehold_question WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_updates
DELETE FROM leasehold_job_update WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_streams
DELETE FROM leasehold_stream WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_logs
DELETE FROM leasehold_log_tail WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_dependencies
DELETE FROM leasehold_dependency WHERE child_id IN (SELECT value FROM json_each(:ids))
    OR parent_id IN (SELECT value FROM json_each(:ids));

-- name: prune_follow_ups
DELETE FROM leasehold_follow_up WHERE child_id IN (SELECT value FROM json_each(:ids))
    OR parent_id IN (SELECT value FROM json_each(:ids));

-- name: prune_spending
DELETE FROM leasehold_spending WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_budgets
-- A group's total stays as long as the group: it counts more jobs than these.
DELETE FROM leasehold_budget WHERE scope = 'job' AND name IN (SELECT value FROM json_each(:ids));

-- name: drop_keys_for_ever
DELETE FROM leasehold_unique_key WHERE (task, key) IN (
    SELECT u.task, u.key FROM json_each(:rows) AS r CROSS JOIN leasehold_unique_key AS u
        ON u.task = json_extract(r.value, '$.task') AND u.key = json_extract(r.value, '$.key')
    WHERE u.job_id = json_extract(r.value, '$.job_id'));

-- name: page_groups
SELECT name FROM leasehold_job_group WHERE name > :after ORDER BY name LIMIT :limit;

-- name: empty_groups
-- Without jobs, and not on hold. A limit was set on purpose: a group that has one goes only if that is requested.
SELECT g.name FROM json_each(:names) AS r CROSS JOIN leasehold_job_group AS g ON g.name = r.value
WHERE g.live <= 0 AND g.state <> 'held'
    AND (SELECT 1 FROM leasehold_member AS m WHERE m.group_name = g.name ORDER BY m.job LIMIT 1) IS NULL
    AND (:budgets OR (
        SELECT 1 FROM leasehold_budget AS b WHERE b.scope = 'group' AND b.name = g.name AND b.lim IS NOT NULL
        LIMIT 1) IS NULL)
ORDER BY g.name;

-- name: prune_groups
DELETE FROM leasehold_job_group WHERE name IN (SELECT value FROM json_each(:names)) RETURNING name;

-- name: prune_group_budgets
DELETE FROM leasehold_budget WHERE scope = 'group' AND name IN (SELECT value FROM json_each(:names));

-- name: list_retention
SELECT task, state, seconds FROM leasehold_retention;

-- name: drop_retention
DELETE FROM leasehold_retention WHERE task IN (SELECT value FROM json_each(:tasks));

-- name: insert_retention
INSERT INTO leasehold_retention (task, state, seconds)
SELECT json_extract(value, '$.task'), json_extract(value, '$.state'), json_extract(value, '$.seconds')
FROM json_each(:rules) WHERE true ON CONFLICT (task, state) DO UPDATE SET seconds = excluded.seconds;
