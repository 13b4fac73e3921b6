-- name: load_steps
-- All of a job's, in one read.
SELECT name, result FROM leasehold.step WHERE job_id = :id;

-- name: save_steps
-- Under the fence: a run that has lost its lease writes nothing, and gets no row back. The row is locked, so that a
-- reaper that comes at the same time either is first, and the token no longer fits, or waits for the commit. The same
-- step again (a repeat after a lost reply) writes the same values over it.
WITH mine AS MATERIALIZED (
    SELECT id, attempt FROM leasehold.job WHERE id = :id AND lease_token = :token FOR UPDATE)
INSERT INTO leasehold.step (job_id, name, result, attempt, saved_at)
SELECT mine.id, r.name, r.result::json, mine.attempt, :now
FROM mine, json_to_recordset(:steps::json) AS r(name text, result text)
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, attempt = excluded.attempt, saved_at = excluded.saved_at
RETURNING job_id;

-- name: load_checkpoint
SELECT state FROM leasehold.checkpoint WHERE job_id = :id;

-- name: save_checkpoint
-- Under the fence, as save_steps.
WITH mine AS MATERIALIZED (SELECT id FROM leasehold.job WHERE id = :id AND lease_token = :token FOR UPDATE)
INSERT INTO leasehold.checkpoint (job_id, state, saved_at)
SELECT mine.id, :state::json, :now FROM mine
ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, saved_at = excluded.saved_at
RETURNING job_id;

-- name: forget_steps
DELETE FROM leasehold.step WHERE job_id = ANY(:ids::uuid[]);

-- name: forget_checkpoints
DELETE FROM leasehold.checkpoint WHERE job_id = ANY(:ids::uuid[]);
