-- name: delete_ready
-- The caller counts the rows that leave a place: if there are fewer than moves, nothing is written at all. All at once,
-- as in probe_ready. IS TRUE keeps the planner from making a join of it, in whatever order: it is looked up in a hash.
WITH r AS MATERIALIZED (SELECT * FROM json_to_recordset(:rows::json) AS v(seq bigint, token bigint))
DELETE FROM leasehold.ready AS p WHERE p.seq = ANY(ARRAY(SELECT seq FROM r))
    AND ((p.seq, p.token) IN (SELECT seq, token FROM r)) IS TRUE
RETURNING p.seq;

-- name: delete_leases
-- One probe per row, whatever the statistics are. The row is locked, so that the ctid that was found stays what it is.
DELETE FROM leasehold.lease WHERE ctid = ANY(ARRAY(
    SELECT p.tid FROM json_to_recordset(:rows::json) AS r(seq bigint, token bigint), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lease AS q WHERE q.job = r.seq AND q.token = r.token LIMIT 1) AS p))
RETURNING job;

-- name: delete_parked
-- As delete_ready.
WITH r AS MATERIALIZED (SELECT * FROM json_to_recordset(:rows::json) AS v(seq bigint, token bigint))
DELETE FROM leasehold.parked AS p WHERE p.job = ANY(ARRAY(SELECT seq FROM r))
    AND ((p.job, p.token) IN (SELECT seq, token FROM r)) IS TRUE
RETURNING p.job;

-- name: delete_outcomes
DELETE FROM leasehold.outcome WHERE ctid = ANY(ARRAY(
    SELECT p.tid FROM json_to_recordset(:rows::json) AS r(seq bigint, token bigint), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.outcome AS q WHERE q.job = r.seq AND q.token = r.token LIMIT 1) AS p))
RETURNING job;

-- name: delete_lane_places
DELETE FROM leasehold.lane_place WHERE ctid = ANY(ARRAY(
    SELECT p.tid FROM json_to_recordset(:rows::json) AS r(seq bigint, token bigint, lane text, lane_at timestamptz), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lane_place AS q
        WHERE q.lane = r.lane AND q.lane_at = r.lane_at AND q.seq = r.seq AND q.token = r.token LIMIT 1) AS p))
RETURNING seq;

-- name: insert_ready
INSERT INTO leasehold.ready (seq, gate, priority, available_at, token, attempt, lease_seconds, special)
SELECT r.seq, r.gate, r.priority, r.available_at, r.token, r.attempt, r.lease_seconds, r.special
FROM json_to_recordset(:rows::json) AS r(seq bigint, gate bigint, priority smallint, available_at timestamptz, token
    bigint, attempt integer, lease_seconds real, special smallint);

-- name: insert_lane_places
INSERT INTO leasehold.lane_place (seq, lane, lane_at, gate, priority, available_at, token, attempt, lease_seconds, special)
SELECT r.seq, r.lane, r.lane_at, r.gate, r.priority, r.available_at, r.token, r.attempt, r.lease_seconds, r.special
FROM json_to_recordset(:rows::json) AS r(seq bigint, lane text, lane_at timestamptz, gate bigint, priority smallint,
    available_at timestamptz, token bigint, attempt integer, lease_seconds real, special smallint);

-- name: insert_leases
INSERT INTO leasehold.lease (job, token, expires_at, started_at, attempt, worker, lease_seconds, special, stop)
SELECT r.job, r.token, r.expires_at, r.started_at, r.attempt, (SELECT o.number FROM leasehold.worker_name AS o WHERE o.name =
    r.worker), r.lease_seconds, r.special, r.stop
FROM json_to_recordset(:rows::json) AS r(job bigint, token bigint, expires_at timestamptz, started_at timestamptz,
    attempt integer, worker text, lease_seconds real, special smallint, stop smallint);

-- name: insert_parked
INSERT INTO leasehold.parked (job, state, token, attempt, special, since, stop, held, unmet, lane_at, started_at, reason)
SELECT r.job, r.state, r.token, r.attempt, r.special, r.since, r.stop, r.held, r.unmet, r.lane_at, r.started_at,
    r.reason
FROM json_to_recordset(:rows::json) AS r(job bigint, state smallint, token bigint, attempt integer, special smallint,
    since timestamptz, stop smallint, held boolean, unmet integer, lane_at timestamptz, started_at timestamptz,
    reason text);

-- name: insert_outcomes
INSERT INTO leasehold.outcome (job, token, finished_at, started_at, attempt, worker, state, special, result, result_ref, error, reason)
SELECT r.job, r.token, r.finished_at, r.started_at, r.attempt, (SELECT o.number FROM leasehold.worker_name AS o WHERE o.name
    = r.worker), r.state, r.special, r.result::json, r.result_ref, r.error, r.reason
FROM json_to_recordset(:rows::json) AS r(job bigint, token bigint, finished_at timestamptz, started_at timestamptz,
    attempt integer, worker text, state smallint, special smallint, result text, result_ref text, error text, reason
    text);

-- name: update_leases
-- A stop flag, or a raised `special`. In place: a renewal that waits for the row must find it.
WITH v AS MATERIALIZED (
    SELECT p.tid, r.stop, r.special
    FROM json_to_recordset(:rows::json) AS r(job bigint, token bigint, stop smallint, special smallint), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lease AS q WHERE q.job = r.job AND q.token = r.token LIMIT 1) AS p)
UPDATE leasehold.lease AS l SET stop = v.stop, special = v.special
FROM v WHERE l.ctid = ANY(ARRAY(SELECT tid FROM v)) AND l.ctid = v.tid;

-- name: update_arguments
-- The one column of `job` that ever changes.
WITH v AS MATERIALIZED (
    SELECT p.tid, r.args FROM json_to_recordset(:rows::json) AS r(seq bigint, args text), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.job AS q WHERE q.seq = r.seq LIMIT 1) AS p)
UPDATE leasehold.job AS j SET args = v.args::json
FROM v WHERE j.ctid = ANY(ARRAY(SELECT tid FROM v)) AND j.ctid = v.tid;

-- name: write_failure_states
INSERT INTO leasehold.failure_state (job, failures, crashes, first_started_at, started_at, available_at, error, reason, changed_at)
SELECT r.job, r.failures, r.crashes, r.first_started_at, r.started_at, r.available_at, r.error, r.reason, :now
FROM json_to_recordset(:rows::json) AS r(job bigint, failures integer, crashes integer, first_started_at timestamptz, started_at timestamptz,
    available_at timestamptz, error text, reason text)
ON CONFLICT (job) DO UPDATE SET failures = excluded.failures, crashes = excluded.crashes, first_started_at = excluded.first_started_at,
    started_at = excluded.started_at, available_at = excluded.available_at, error = excluded.error, reason =
    excluded.reason, changed_at = excluded.changed_at;

-- name: insert_attempts
-- An attempt that is stored already (it went back to the queue before the job ended there) stays as it is.
INSERT INTO leasehold.attempt (job, token, number, worker, settled, started_at, ended_at, ended, error)
SELECT r.job, r.token, r.number, (SELECT o.number FROM leasehold.worker_name AS o WHERE o.name = r.worker), r.settled,
    r.started_at, r.ended_at, r.ended, r.error
FROM json_to_recordset(:rows::json) AS r(job bigint, token bigint, number integer, worker text, settled boolean,
    started_at timestamptz, ended_at timestamptz, ended text, error text)
ON CONFLICT (job, token) DO NOTHING;

-- name: drop_time_limits
DELETE FROM leasehold.time_limit WHERE ctid = ANY(ARRAY(
    SELECT x.tid FROM json_to_recordset(:rows::json) AS r(job bigint, what smallint), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.time_limit AS q WHERE q.job = r.job AND q.what = r.what LIMIT 1) AS x));

-- name: insert_time_limits
INSERT INTO leasehold.time_limit (job, what, due_at)
SELECT r.job, r.what, r.due_at
FROM json_to_recordset(:rows::json) AS r(job bigint, what smallint, due_at timestamptz)
ON CONFLICT DO NOTHING;

-- name: drop_lease_slots
DELETE FROM leasehold.lease_slot WHERE ctid = ANY(ARRAY(
    SELECT x.tid FROM json_to_recordset(:rows::json) AS r(job bigint), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lease_slot AS q WHERE q.job = r.job LIMIT 1) AS x));

-- name: insert_lease_slots
INSERT INTO leasehold.lease_slot (job, gate)
SELECT r.job, r.gate
FROM json_to_recordset(:rows::json) AS r(job bigint, gate bigint);

-- name: drop_lane_holds
DELETE FROM leasehold.lane_hold WHERE ctid = ANY(ARRAY(
    SELECT x.tid FROM json_to_recordset(:rows::json) AS r(job bigint, lane text), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lane_hold AS q WHERE q.lane = r.lane AND q.job = r.job LIMIT 1) AS x));

-- name: insert_lane_holds
-- In the order of lanes. The key refuses a second job in a lane, and the transaction is repeated.
INSERT INTO leasehold.lane_hold (lane, job)
SELECT r.lane, r.job FROM json_to_recordset(:rows::json) AS r(job bigint, lane text) ORDER BY r.lane;

-- name: drop_lane_stops
DELETE FROM leasehold.lane_stop WHERE ctid = ANY(ARRAY(
    SELECT x.tid FROM json_to_recordset(:rows::json) AS r(job bigint, lane text), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lane_stop AS q WHERE q.lane = r.lane AND q.job = r.job LIMIT 1) AS x));

-- name: insert_lane_stops
INSERT INTO leasehold.lane_stop (lane, job)
SELECT r.lane, r.job
FROM json_to_recordset(:rows::json) AS r(lane text, job bigint);

-- name: drop_keys
DELETE FROM leasehold.unique_key WHERE ctid = ANY(ARRAY(
    SELECT x.tid FROM json_to_recordset(:rows::json) AS r(task text, key text, job_id uuid), LATERAL (
        SELECT q.ctid AS tid FROM leasehold.unique_key AS q WHERE q.task = r.task AND q.key = r.key AND q.job_id = r.job_id LIMIT 1) AS x));

-- name: insert_history
INSERT INTO leasehold.history (job_id, at, event, from_state, to_state, token, attempt, actor, detail)
SELECT r.job_id, :now, r.event, r.from_state, r.to_state, r.token, r.attempt, r.actor, r.detail
FROM json_to_recordset(:entries::json) AS r(job_id uuid, event text, from_state text, to_state text, token bigint,
    attempt integer, actor text, detail text);

-- name: insert_tickets
-- A ticket of gate 0 is for a head that is not known for sure; its rank is that of the job that seems to be next: under
-- the rank of the job that left, a higher head would be checked too late.
INSERT INTO leasehold.ticket (gate, priority, available_at, lane)
SELECT r.gate, coalesce(h.priority, r.priority), r.available_at, r.lane
FROM json_to_recordset(:tickets::json) AS r(gate bigint, priority smallint, available_at timestamptz, lane text)
LEFT JOIN LATERAL (
    SELECT p.priority FROM leasehold.lane_place AS p WHERE r.gate = 0 AND p.lane = r.lane AND p.lane_at <= :now
    ORDER BY p.lane_at, p.seq LIMIT 1) AS h ON true;

-- name: bump_groups
-- In the order of names, and after everything else.
WITH changed AS MATERIALIZED (
    SELECT g.name, r.live FROM json_to_recordset(:groups::json) AS r(name text, live bigint)
    JOIN leasehold.job_group AS g ON g.name = r.name ORDER BY g.name FOR UPDATE OF g)
UPDATE leasehold.job_group AS g SET version = g.version + 1, live = g.live + c.live FROM changed AS c WHERE g.name = c.name
RETURNING g.name, g.live, g.version;

-- name: read_listeners
-- The listeners to these events. In the transaction of a move, and without a lock.
SELECT name, event, task, webhook FROM leasehold.listener
WHERE event = ANY(:events::text[])
  AND (seen_at IS NULL OR seen_at >= :now - :age::double precision * interval '1 second');

-- name: insert_outbox
-- With a notification for the hook dispatchers, which is sent at the commit.
WITH reported AS (
    INSERT INTO leasehold.outbox (id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, due_at)
    SELECT r.id, r.listener, r.event, r.job_id, r.task, r.queue, r.attempt, r.group_name, r.detail, r.data::json, :now, :now
    FROM json_to_recordset(:rows::json) AS r(id text, listener text, event text, job_id uuid, task text, queue text,
        attempt integer, group_name text, detail text, data text)
    RETURNING tableoid)
SELECT pg_notify('leasehold_' || n.nspname, 'hooks') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = (SELECT tableoid FROM reported LIMIT 1);
