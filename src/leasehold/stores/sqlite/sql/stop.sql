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
