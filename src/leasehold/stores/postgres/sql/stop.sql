-- name: find_stoppable
-- One page of a walk: the jobs that a stop may move, newest first, so that a job goes before those it waits for.
SELECT j.id, j.task,
-- include: state_of_number
AS state FROM (

-- name: find_stoppable.page
) AS d, LATERAL (SELECT x.id, x.task FROM leasehold.job AS x WHERE x.seq = d.number LIMIT 1) AS j
ORDER BY d.number DESC LIMIT :limit

-- name: still_running
SELECT j.id FROM leasehold.job AS j WHERE j.id = ANY(:ids::uuid[]) AND coalesce(
    (SELECT 1 FROM leasehold.lease AS p WHERE p.job = j.seq),
    (SELECT 1 FROM leasehold.parked AS p WHERE p.job = j.seq AND p.state = 4)) IS NOT NULL
ORDER BY j.seq;

-- name: insert_stop_marks
INSERT INTO leasehold.stop_mark (job_id, scope, reason, actor, at)
SELECT n.id, :scope, :reason, :actor, :now FROM unnest(:ids::uuid[]) AS n(id)
ON CONFLICT (job_id, scope) DO UPDATE SET reason = excluded.reason, actor = excluded.actor, at = excluded.at;

-- name: lock_parents
-- A stop that flags these attempts from now on, under their anchors, finds what is stored in this transaction. Shared:
-- several transactions may store follow-ups of one attempt at a time.
SELECT j.seq FROM leasehold.job AS j WHERE j.id = ANY(:ids::uuid[]) ORDER BY j.seq FOR SHARE;

-- name: find_stop_requested
-- The jobs among them with a stop request. After the lock, in a statement of its own: one that had to wait for the lock
-- would still see the flags from before.
SELECT j.id FROM leasehold.job AS j WHERE j.seq = ANY(:seqs::bigint[]) AND coalesce(
    (SELECT p.stop FROM leasehold.lease AS p WHERE p.job = j.seq),
    (SELECT p.stop FROM leasehold.parked AS p WHERE p.job = j.seq), 0) <> 0;

-- name: find_stop_marks
SELECT job_id, scope, reason, actor FROM leasehold.stop_mark WHERE job_id = ANY(:ids::uuid[]) ORDER BY job_id, at DESC;

-- name: clear_stop_marks
DELETE FROM leasehold.stop_mark WHERE job_id = ANY(:ids::uuid[]);

-- name: keep_stopping
UPDATE leasehold.job_group SET stopping_until = :now + :seconds::double precision * interval '1 second' WHERE name = :name;

-- name: end_stopping
UPDATE leasehold.job_group SET stopping_until = NULL WHERE name = :name;

-- name: find_stopping
-- The groups among them that a stop is at work on, with what it stops. A hold refuses new jobs by itself.
SELECT name, stop_scope AS scope, stop_reason AS reason, stopped_by AS actor FROM leasehold.job_group
WHERE name = ANY(:names::text[]) AND stopping_until > :now AND state <> 'held';
