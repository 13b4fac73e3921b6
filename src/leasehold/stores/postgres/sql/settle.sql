-- name: settle_succeeded
-- Success is success under every flag, so the token is the whole guard and nothing needs to be read first. Jobs that
-- others wait for are left to the decided path, which judges those in the same transaction. A lane job
-- leaves a ticket whether or not anybody is seen to wait: a look could miss an enqueue whose own ticket a claim is just
-- dropping. Only the ticket's rank is taken from the job that seems to be next. Jobs are locked in the order of v, by
-- id, and groups in name order.
WITH v AS MATERIALIZED (
    SELECT r.id, r.token, r.result, r.result_ref
    FROM (SELECT * FROM unnest(:settled.ids::uuid[], :settled.tokens::bigint[], :settled.results::text[],
              :settled.references::text[])
          -- No row, but a hundred thousand by the planner's reckoning: so it goes through v, in the order of v, and looks
          -- for the jobs. Taken for few rows, v itself is looked up in, and jobs are locked as they lie on the disk. A
          -- thousand were too few for a large table that was vacuumed when it was empty: every plan was as dear as
          -- reading it. (renew locks beforehand; here that would be a tenth of the statement.)
          UNION ALL SELECT NULL, NULL, NULL, NULL FROM generate_series(1, (SELECT 0)), json_array_elements('[]')
         ) AS r(id, token, result, result_ref)
    ORDER BY r.id),
s AS (
    UPDATE leasehold.job AS j SET state = 'succeeded', reason = NULL, result = v.result::json, result_ref = v.result_ref,
        lease_owner = NULL, lease_expires_at = NULL, lease_token = j.lease_token + 1, stop_requested = NULL,
        finished_at = :now, settled_by = j.lease_owner, settled_token = j.lease_token,
        execution_site = NULL, execution_name = NULL, execution_started_at = NULL
    FROM v WHERE j.id = ANY(ARRAY(SELECT id FROM v)) AND j.id = v.id AND j.lease_token = v.token
      AND NOT j.awaited
    RETURNING j.id, j.lane, j.priority, j.group_name, j.attempt, j.limited),
tickets AS (
    INSERT INTO leasehold.ticket (gate, priority, available_at, lane)
    SELECT 0, coalesce(h.priority, s.priority), :now, s.lane FROM s LEFT JOIN LATERAL (
        SELECT j.priority FROM leasehold.job AS j
        WHERE j.lane = s.lane AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
        ORDER BY j.lane_at, j.seq LIMIT 1) AS h ON true
    WHERE s.lane IS NOT NULL),
questions AS ( -- only a job that has run before can have asked
    UPDATE leasehold.question SET closed_at = coalesce(closed_at, :now), answer = CASE WHEN NOT secret THEN answer END
    WHERE job_id = ANY(ARRAY(SELECT id FROM s WHERE attempt > 1))
      AND (closed_at IS NULL OR (secret AND answer IS NOT NULL))),
groups AS (
    UPDATE leasehold.job_group SET version = version + 1 WHERE name = ANY(ARRAY(
        SELECT name FROM leasehold.job_group
        WHERE name = ANY(ARRAY(SELECT DISTINCT group_name FROM s WHERE group_name IS NOT NULL))
        ORDER BY name FOR UPDATE)))
SELECT id, limited FROM s;

-- name: lock_jobs
-- Every decision that depends on the row is taken under its lock, in id order. The store's now comes along, so that
-- instants are the database's.
SELECT j.*, :now AS now FROM leasehold.job AS j WHERE j.id = ANY(:ids::uuid[]) ORDER BY j.id FOR UPDATE;

-- name: update_jobs
-- Writes moves that were decided under lock_jobs.
WITH v AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:jobs::json) AS r(id uuid, state text, reason text, args text,
        available_at timestamptz, lane_at timestamptz, halts_lane boolean, lease_owner text,
        lease_expires_at timestamptz, lease_token bigint, attempt integer, failures integer, crashes integer,
        stop_requested text, execution_site text, execution_name text, execution_started_at timestamptz,
        first_started_at timestamptz, started_at timestamptz, finished_at timestamptz, settled_by text,
        settled_token bigint, result text, result_ref text, error text, held boolean, unmet integer)
    ORDER BY r.id)
UPDATE leasehold.job AS j SET state = v.state, reason = v.reason, args = v.args::json, available_at = v.available_at,
    lane_at = v.lane_at, halts_lane = v.halts_lane, lease_owner = v.lease_owner,
    lease_expires_at = v.lease_expires_at, lease_token = v.lease_token, attempt = v.attempt, failures = v.failures,
    crashes = v.crashes, stop_requested = v.stop_requested, execution_site = v.execution_site,
    execution_name = v.execution_name, execution_started_at = v.execution_started_at,
    first_started_at = v.first_started_at, started_at = v.started_at, finished_at = v.finished_at,
    settled_by = v.settled_by, settled_token = v.settled_token, result = v.result::json, result_ref = v.result_ref,
    error = v.error, held = v.held, unmet = v.unmet
FROM v WHERE j.id = ANY(ARRAY(SELECT id FROM v)) AND j.id = v.id;

-- name: insert_history
INSERT INTO leasehold.history (job_id, at, event, from_state, to_state, token, attempt, actor, detail)
SELECT r.job_id, :now, r.event, r.from_state, r.to_state, r.token, r.attempt, r.actor, r.detail
FROM json_to_recordset(:entries::json) AS r(job_id uuid, event text, from_state text, to_state text, token bigint,
    attempt integer, actor text, detail text);

-- name: bump_groups
UPDATE leasehold.job_group SET version = version + 1 WHERE name = ANY(ARRAY(
    SELECT name FROM leasehold.job_group WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE));

-- name: open_question
-- Asked again while it is open, it is the same question: its time runs from the first asking on.
INSERT INTO leasehold.question AS q (job_id, key, text, schema, secret, asked_at, expires_at)
VALUES (:id, :key, :text, :schema, :secret, :now, :now + :seconds::double precision * interval '1 second')
ON CONFLICT (job_id, key) DO UPDATE SET text = excluded.text, schema = excluded.schema, secret = excluded.secret,
    asked_at = CASE WHEN q.closed_at IS NULL THEN q.asked_at ELSE excluded.asked_at END,
    expires_at = CASE WHEN q.closed_at IS NULL THEN coalesce(q.expires_at, excluded.expires_at) ELSE excluded.expires_at END,
    closed_at = NULL, answer = NULL, answered = false, expired = false;

-- name: close_questions
-- By the end of their job; what it was told in secret goes with it.
UPDATE leasehold.question SET closed_at = coalesce(closed_at, :now), answer = CASE WHEN NOT secret THEN answer END
WHERE job_id = ANY(:ids::uuid[]) AND (closed_at IS NULL OR (secret AND answer IS NOT NULL));
