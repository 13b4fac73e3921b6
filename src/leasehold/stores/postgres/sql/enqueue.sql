-- name: insert_jobs
-- Jobs that are alike but for id, arguments, lane and key, in the order given (seq follows it). A row that meets its
-- own id (a repeat after a lost reply) is not returned.
INSERT INTO leasehold.job (id, gate, created_at, lease_seconds, priority, task, queue, policy, args, available_at, lane,
    group_name, unique_key, unique_for_ever, tags, deadline_at, start_by, retry_of, trace)
SELECT r.id, :gate::bigint, :now, :lease_seconds::real, :priority::smallint, :task::text, :queue::text, :policy::json,
    r.args::json, coalesce(:at::timestamptz, :now + :delay::double precision * interval '1 second'),
    r.lane, :group_name::text, r.unique_key, :unique_for_ever::boolean, :tags::json,
    :now + :deadline::double precision * interval '1 second', :now + :start_by::double precision * interval '1 second',
    :retry_of::uuid, :trace::text
FROM unnest(:jobs.ids::uuid[], :jobs.args::text[], :jobs.lanes::text[], :jobs.keys::text[])
    AS r(id, args, lane, unique_key)
ON CONFLICT DO NOTHING
RETURNING id, seq;

-- name: insert_new_ready
-- Where new jobs without a lane begin.
INSERT INTO leasehold.ready (seq, gate, priority, available_at, lease_seconds, special)
SELECT j.seq, j.gate, j.priority, coalesce(j.available_at, j.created_at), j.lease_seconds, :special::smallint
FROM leasehold.job AS j WHERE j.seq = ANY(:seqs::bigint[])
RETURNING seq, NULL::timestamptz AS lane_at;

-- name: insert_new_lane_places
INSERT INTO leasehold.lane_place (seq, lane, lane_at, gate, priority, available_at, lease_seconds, special)
SELECT j.seq, j.lane, greatest(coalesce(j.available_at, j.created_at), j.created_at), j.gate, j.priority,
    coalesce(j.available_at, j.created_at), j.lease_seconds, :special::smallint
FROM leasehold.job AS j WHERE j.seq = ANY(:seqs::bigint[])
RETURNING seq, lane_at;

-- name: insert_new_parked
INSERT INTO leasehold.parked (job, state, token, attempt, special, since, held, lane_at)
SELECT j.seq, 1, 0, 0, :special::smallint, j.created_at, true,
    CASE WHEN j.lane IS NOT NULL THEN greatest(coalesce(j.available_at, j.created_at), j.created_at) END
FROM leasehold.job AS j WHERE j.seq = ANY(:seqs::bigint[])
RETURNING job, lane_at;

-- name: insert_new_time_limits
INSERT INTO leasehold.time_limit (job, what, due_at)
SELECT j.seq, 1, j.deadline_at FROM leasehold.job AS j
WHERE j.seq = ANY(:seqs::bigint[]) AND j.deadline_at IS NOT NULL
UNION ALL
SELECT j.seq, 2, j.start_by FROM leasehold.job AS j WHERE j.seq = ANY(:seqs::bigint[]) AND j.start_by IS NOT NULL;

-- name: join_group
INSERT INTO leasehold.member (group_name, job) SELECT :group::text, n.seq FROM unnest(:seqs::bigint[]) AS n(seq);

-- name: insert_keys
-- Returns the jobs that get their key. In the order of keys: a key that another transaction is about to take, or to
-- give up, is waited for.
INSERT INTO leasehold.unique_key (task, key, job_id, for_ever)
SELECT r.task, r.key, r.job_id, r.for_ever
FROM json_to_recordset(:keys::json) AS r(task text, key text, job_id uuid, for_ever boolean) ORDER BY r.task, r.key
ON CONFLICT DO NOTHING
RETURNING job_id;

-- name: find_key_holders
-- The jobs that hold these unique keys now. One probe per key, whatever the statistics are.
SELECT u.job_id AS id, u.task, u.key AS unique_key
FROM unnest(:pairs.tasks::text[], :pairs.keys::text[]) AS k(task, key), LATERAL (
    SELECT q.job_id, q.task, q.key FROM leasehold.unique_key AS q WHERE q.task = k.task AND q.key = k.key LIMIT 1) AS u;

-- name: find_ids
SELECT j.id, j.seq FROM unnest(:ids::uuid[]) AS r(id), LATERAL (
    SELECT q.id, q.seq FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j;

-- name: insert_tags
INSERT INTO leasehold.tag (name, job_id)
SELECT r.name, r.job_id FROM json_to_recordset(:tags::json) AS r(name text, job_id uuid)
ON CONFLICT DO NOTHING;

-- name: insert_plain
-- One plain job and its notification in the same commit: a round trip less than one by one. Due now, or after a delay.
WITH made AS (
    INSERT INTO leasehold.job (id, gate, created_at, lease_seconds, priority, task, queue, policy, args, available_at)
    VALUES (:id, :gate, :now, :lease_seconds::real, :priority, :task, :queue, :policy, :args,
        :now + :delay::double precision * interval '1 second')
    ON CONFLICT DO NOTHING
    RETURNING seq, gate, priority, coalesce(available_at, created_at) AS due, lease_seconds)
INSERT INTO leasehold.ready (seq, gate, priority, available_at, lease_seconds)
SELECT seq, gate, priority, due, lease_seconds FROM made
RETURNING CASE WHEN :notify::boolean THEN pg_notify(:channel, '') END;

-- name: ready_many
-- Places for plain jobs that are due now, before the jobs themselves follow by COPY: the server writes them while the
-- next arguments are encoded. Returns the numbers themselves, not their bounds: with a second producer they are no
-- single range.
WITH numbered AS MATERIALIZED (
    SELECT nextval((SELECT pg_get_serial_sequence('leasehold.job', 'seq')::regclass)) AS seq
    FROM generate_series(1, :count::integer)),
made AS (
    INSERT INTO leasehold.ready (seq, gate, priority, available_at, lease_seconds)
    SELECT seq, :gate::bigint, :priority::smallint, statement_timestamp(), :lease_seconds::real FROM numbered)
SELECT statement_timestamp()::text AS now, string_agg(seq::text, ',') AS seqs FROM numbered;

-- name: copy_plain
COPY leasehold.job (seq, id, gate, created_at, lease_seconds, priority, task, queue, policy, args) FROM STDIN;

-- name: take_idempotency_key
-- No row: the same key was used within that time. A request at the same moment waits here until the first is done.
INSERT INTO leasehold.idempotency_key AS a (key, fingerprint, answer, at) VALUES (:key, :fingerprint, '[]', :now)
ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, at = excluded.at
WHERE a.at < :now - :seconds::double precision * interval '1 second' RETURNING key;

-- name: find_request
SELECT fingerprint, answer FROM leasehold.idempotency_key WHERE key = :key;

-- name: answer_request
UPDATE leasehold.idempotency_key SET answer = :answer WHERE key = :key;

-- name: forget_requests
-- A few of the oldest, so that each new one makes room for itself. Rows locked elsewhere are left to the next request.
DELETE FROM leasehold.idempotency_key WHERE key IN (
    SELECT key FROM leasehold.idempotency_key WHERE at < :now - :seconds::double precision * interval '1 second' AND key <> :key
    ORDER BY at LIMIT :limit FOR UPDATE SKIP LOCKED);

-- name: insert_full_names
-- Names that were too long to be stored as they are. In the order of names: other transactions may insert the same.
INSERT INTO leasehold.long_name (name, whole) SELECT r.name, r.whole
FROM json_to_recordset(:names::json) AS r(name text, whole text) ORDER BY r.name ON CONFLICT (name) DO NOTHING;

-- name: find_full_names
SELECT name, whole FROM leasehold.long_name WHERE name = ANY(:names::text[]);
