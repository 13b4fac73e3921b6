-- name: find_old
-- The next outcomes in the order of seq, and which of them may go. The number of rows read is bounded, not only of
-- those found: on SQLite nobody else writes meanwhile.
SELECT o.job, (o.finished_at < :now - :age::double precision * interval '1 second'

-- name: find_old.page
) AS old FROM (SELECT * FROM leasehold.outcome WHERE job > :after ORDER BY job LIMIT :limit) AS o ORDER BY o.job;

-- name: where_free_to_go
-- Never what halts a lane, what holds a key for good, what belongs to a group that still lives, or what somebody waited
-- for who may still want its result. Plain jobs are none of these. Scalar probes: an EXISTS may be turned into a hash
-- over a whole table.
 AND (o.special = 0 OR (
    SELECT NOT coalesce(j.unique_key IS NOT NULL AND j.unique_for_ever, false)
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
-- Whether this job was made too lately for it, or for one that came after it, to be old.
SELECT j.created_at >= :now - :age::double precision * interval '1 second' AS young FROM leasehold.job AS j
WHERE j.seq = :job;

-- name: lock_old
-- Whom somebody else has in hand is left to the next time.
SELECT j.seq FROM unnest(:seqs::bigint[]) AS r(seq), LATERAL (
    SELECT q.seq FROM leasehold.job AS q WHERE q.seq = r.seq LIMIT 1 FOR UPDATE SKIP LOCKED) AS j;

-- name: prune_outcomes
-- Looked at again under the lock: a job may have been resumed since, or somebody waits for it now.
DELETE FROM leasehold.outcome AS o WHERE o.job = ANY(:seqs::bigint[])
    AND o.finished_at < :now - :age::double precision * interval '1 second'

-- name: prune_outcomes.told
 RETURNING o.job;

-- name: prune_jobs
DELETE FROM leasehold.job WHERE seq = ANY(:seqs::bigint[]) RETURNING seq, id, group_name;

-- name: prune_troubles
DELETE FROM leasehold.trouble WHERE job = ANY(:seqs::bigint[]);

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

-- name: prune_events
DELETE FROM leasehold.event WHERE job_id = ANY(:ids::uuid[]);

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
-- A group's total stays: it speaks of more jobs than these.
DELETE FROM leasehold.budget WHERE scope = 'job' AND name = ANY(:ids::text[]);
