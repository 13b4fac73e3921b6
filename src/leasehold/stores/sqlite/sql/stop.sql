-- name: find_stoppable
-- One page of a walk: the jobs that a stop may move, newest first, so that a job goes before those it waits for.
SELECT j.id, j.task,
-- include: state_of_number
AS state FROM (

-- name: find_stoppable.page
) AS d CROSS JOIN leasehold_job AS j ON j.seq = d.number
ORDER BY d.number DESC LIMIT :limit

-- name: still_running
SELECT j.id FROM leasehold_job AS j WHERE j.id IN (SELECT value FROM json_each(:ids)) AND coalesce(
    (SELECT 1 FROM leasehold_lease AS p WHERE p.job = j.seq),
    (SELECT 1 FROM leasehold_parked AS p WHERE p.job = j.seq AND p.state = 4)) IS NOT NULL
ORDER BY j.seq;

-- name: insert_stop_marks
INSERT INTO leasehold_stop_mark (job_id, scope, reason, actor, at)
SELECT value, :scope, :reason, :actor, :now FROM json_each(:ids) WHERE true
ON CONFLICT (job_id, scope) DO UPDATE SET reason = excluded.reason, actor = excluded.actor, at = excluded.at;

-- name: lock_parents
-- This connection is the writer: a stop that flags these attempts from now on finds what is stored in this transaction.
SELECT j.seq FROM leasehold_job AS j WHERE j.id IN (SELECT value FROM json_each(:ids));

-- name: find_stop_requested
-- The jobs among them with a stop request.
SELECT j.id FROM leasehold_job AS j WHERE j.seq IN (SELECT value FROM json_each(:seqs)) AND coalesce(
    (SELECT p.stop FROM leasehold_lease AS p WHERE p.job = j.seq),
    (SELECT p.stop FROM leasehold_parked AS p WHERE p.job = j.seq), 0) <> 0;

-- name: find_stop_marks
SELECT job_id, scope, reason, actor FROM leasehold_stop_mark
WHERE job_id IN (SELECT value FROM json_each(:ids)) ORDER BY job_id, at DESC;

-- name: clear_stop_marks
DELETE FROM leasehold_stop_mark WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: keep_stopping
UPDATE leasehold_job_group SET stopping_until = :now + CAST(round(:seconds * 1e6) AS INTEGER) WHERE name = :name;

-- name: end_stopping
UPDATE leasehold_job_group SET stopping_until = NULL WHERE name = :name;

-- name: find_stopping
-- The groups among them that a stop is at work on, with what it stops. A hold refuses new jobs by itself.
SELECT name, stop_scope AS scope, stop_reason AS reason, stopped_by AS actor FROM leasehold_job_group
WHERE name IN (SELECT value FROM json_each(:names)) AND stopping_until > :now AND state <> 'held';
