-- name: load_steps
-- All steps of a job, in one read.
SELECT name, result FROM leasehold_step WHERE job_id = :id;

-- name: list_steps
SELECT name, attempt, saved_at, result FROM leasehold_step WHERE job_id = :id ORDER BY saved_at, attempt, name;

-- name: save_steps
-- Under the fence: an attempt that has lost its lease writes nothing, and gets no row back. The same step again (a
-- repeat after a lost reply) writes the same values over it.
INSERT INTO leasehold_step (job_id, name, result, attempt, saved_at)
SELECT j.id, json_extract(r.value, '$.name'), json_extract(r.value, '$.result'), l.attempt, :now
FROM leasehold_job AS j CROSS JOIN leasehold_lease AS l ON l.job = j.seq CROSS JOIN json_each(:steps) AS r
WHERE j.id = :id AND l.token = :token
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, attempt = excluded.attempt,
    saved_at = excluded.saved_at
RETURNING job_id;

-- name: load_checkpoint
SELECT state FROM leasehold_checkpoint WHERE job_id = :id;

-- name: save_checkpoint
-- Under the fence, as save_steps. The attempt is the one that reached this state: the same state again is no progress.
INSERT INTO leasehold_checkpoint AS c (job_id, state, attempt, saved_at)
SELECT j.id, :state, l.attempt, :now FROM leasehold_job AS j CROSS JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token
ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, saved_at = excluded.saved_at,
    attempt = CASE WHEN c.state = excluded.state THEN c.attempt ELSE excluded.attempt END
RETURNING job_id;

-- name: forget_steps
DELETE FROM leasehold_step WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: forget_checkpoints
DELETE FROM leasehold_checkpoint WHERE job_id IN (SELECT value FROM json_each(:ids));
