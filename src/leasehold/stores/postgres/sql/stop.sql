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
