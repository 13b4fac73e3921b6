-- name: load_steps
-- All steps of a job, in one read.
SELECT name, result FROM leasehold.step WHERE job_id = :id;

-- name: list_steps
SELECT name, attempt, saved_at, result FROM leasehold.step WHERE job_id = :id ORDER BY saved_at, attempt, name;

-- name: save_steps
-- Under the fence: an attempt that has lost its lease writes nothing, and gets no row back. The lease stays locked
-- until the commit, so that its renewals pass and its end waits: what an attempt has saved is there when the next one
-- begins. The same step again (a repeat after a lost reply) writes the same values over it.
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.attempt FROM anchor, LATERAL (
        SELECT q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
INSERT INTO leasehold.step (job_id, name, result, attempt, saved_at)
SELECT :id, r.name, r.result::json, mine.attempt, :now
FROM mine, json_to_recordset(:steps::json) AS r(name text, result text)
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, attempt = excluded.attempt,
    saved_at = excluded.saved_at
RETURNING job_id;

-- name: load_checkpoint
SELECT state FROM leasehold.checkpoint WHERE job_id = :id;

-- name: save_checkpoint
-- Under the fence, as save_steps. The attempt is the one that reached this state: the same state again is no progress.
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.attempt FROM anchor, LATERAL (
        SELECT q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
INSERT INTO leasehold.checkpoint AS c (job_id, state, attempt, saved_at)
SELECT :id, :state::json, mine.attempt, :now FROM mine
ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, saved_at = excluded.saved_at,
    attempt = CASE WHEN c.state::text = excluded.state::text THEN c.attempt ELSE excluded.attempt END
RETURNING job_id;

-- name: forget_steps
DELETE FROM leasehold.step WHERE job_id = ANY(:ids::uuid[]);

-- name: forget_checkpoints
DELETE FROM leasehold.checkpoint WHERE job_id = ANY(:ids::uuid[]);
