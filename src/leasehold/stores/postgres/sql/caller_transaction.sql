-- name: identify
-- Which database a connection leads to, by whatever route: two servers do not start in the same microsecond. And its
-- settings that would harm.
SELECT current_database()::text AS name, extract(epoch FROM pg_postmaster_start_time())::text AS started,
    to_regclass('leasehold.job') IS NOT NULL AS has_schema, current_setting('array_nulls') AS array_nulls,
    current_setting('datestyle') AS datestyle;

-- name: find_ended
-- Whether jobs have ended, without a lock on them.
SELECT j.id, (SELECT true FROM leasehold.outcome AS o WHERE o.job = j.seq) IS TRUE AS ended
FROM leasehold.job AS j WHERE j.id = ANY(:ids::uuid[]);

-- name: change_groups_at_commit
-- A trigger applies the change at the commit.
INSERT INTO leasehold.group_change AS c (xact, name, live, opens)
SELECT pg_current_xact_id(), r.name, r.live, :opens::boolean
FROM json_to_recordset(:groups::json) AS r(name text, live bigint) ORDER BY r.name
ON CONFLICT (xact, name) DO UPDATE SET live = c.live + excluded.live, opens = c.opens OR excluded.opens;

-- name: notify_at_commit
SELECT pg_notify(:channel::text, '');

-- name: insert_by_hand
-- For other languages: printed with everything but id and arguments filled in. The gate is inserted too, so that the
-- text works for every database with this schema; a repeat of an id stores nothing.
WITH gated AS (
    INSERT INTO leasehold.gate (id, queue, task) VALUES (:gate, :queue, :task) ON CONFLICT DO NOTHING),
made AS (
    INSERT INTO leasehold.job (id, gate, created_at, lease_seconds, priority, task, queue, policy, args)
    VALUES (:id::uuid, :gate, statement_timestamp(), :lease_seconds, :priority, :task, :queue, :policy, :args::json)
    ON CONFLICT DO NOTHING
    RETURNING seq, gate, priority, created_at, lease_seconds)
INSERT INTO leasehold.ready (seq, gate, priority, available_at, lease_seconds)
SELECT seq, gate, priority, created_at, lease_seconds FROM made
RETURNING pg_notify(:channel, '');
