-- name: insert_jobs
-- Jobs that are alike but for id, arguments, lane and key, in the order given (seq follows it). A row that meets its
-- own id (a repeat after a lost reply) is not returned.
INSERT INTO leasehold_job (id, gate, created_at, lease_seconds, priority, task, queue, policy, args, available_at, lane,
    group_name, unique_key, unique_for_ever, tags, deadline_at, start_by, retry_of, trace)
SELECT json_extract(r.value, '$[0]'), :gate, :now, :lease_seconds, :priority, :task, :queue, :policy,
    json_extract(r.value, '$[1]'), coalesce(:at, :now + CAST(round(:delay * 1e6) AS INTEGER)),
    json_extract(r.value, '$[2]'), :group_name, json_extract(r.value, '$[3]'), :unique_for_ever, :tags,
    :now + CAST(round(:deadline * 1e6) AS INTEGER), :now + CAST(round(:start_by * 1e6) AS INTEGER), :retry_of, :trace
FROM json_each(:jobs) AS r WHERE true
ON CONFLICT DO NOTHING
RETURNING id, seq;

-- name: insert_new_ready
-- Where new jobs without a lane begin.
INSERT INTO leasehold_ready (seq, gate, priority, available_at, lease_seconds, special)
SELECT seq, gate, priority, coalesce(available_at, created_at), lease_seconds, :special FROM leasehold_job
WHERE seq IN (SELECT value FROM json_each(:seqs))
RETURNING seq, NULL AS lane_at;

-- name: insert_new_lane_places
INSERT INTO leasehold_lane_place (seq, lane, lane_at, gate, priority, available_at, lease_seconds, special)
SELECT seq, lane, max(coalesce(available_at, created_at), created_at), gate, priority, coalesce(available_at, created_at),
    lease_seconds, :special FROM leasehold_job
WHERE seq IN (SELECT value FROM json_each(:seqs))
RETURNING seq, lane_at;

-- name: insert_new_parked
INSERT INTO leasehold_parked (job, state, token, attempt, special, since, held, lane_at)
SELECT seq, 1, 0, 0, :special, created_at, 1,
    CASE WHEN lane IS NOT NULL THEN max(coalesce(available_at, created_at), created_at) END FROM leasehold_job
WHERE seq IN (SELECT value FROM json_each(:seqs))
RETURNING job, lane_at;

-- name: insert_new_time_limits
INSERT INTO leasehold_time_limit (job, what, due_at)
SELECT seq, 1, deadline_at FROM leasehold_job
WHERE seq IN (SELECT value FROM json_each(:seqs)) AND deadline_at IS NOT NULL
UNION ALL
SELECT seq, 2, start_by FROM leasehold_job WHERE seq IN (SELECT value FROM json_each(:seqs)) AND start_by IS NOT NULL;

-- name: join_group
INSERT INTO leasehold_member (group_name, job) SELECT :group, value FROM json_each(:seqs);

-- name: insert_keys
-- Returns the jobs that get their key.
INSERT INTO leasehold_unique_key (task, key, job_id, for_ever)
SELECT json_extract(r.value, '$.task'), json_extract(r.value, '$.key'), json_extract(r.value, '$.job_id'),
    json_extract(r.value, '$.for_ever')
FROM json_each(:keys) AS r WHERE true
ON CONFLICT DO NOTHING
RETURNING job_id;

-- name: find_key_holders
-- The jobs that hold these unique keys now.
SELECT u.job_id AS id, u.task, u.key AS unique_key
FROM json_each(:pairs) AS r CROSS JOIN leasehold_unique_key AS u
    ON u.task = json_extract(r.value, '$[0]') AND u.key = json_extract(r.value, '$[1]');

-- name: find_ids
SELECT id, seq FROM leasehold_job WHERE id IN (SELECT value FROM json_each(:ids));

-- name: insert_tags
INSERT INTO leasehold_tag (name, job_id)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.job_id') FROM json_each(:tags) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: take_idempotency_key
-- No row: the same key was used within that time.
INSERT INTO leasehold_idempotency_key (key, fingerprint, answer, at) VALUES (:key, :fingerprint, '[]', :now)
ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, at = excluded.at
WHERE leasehold_idempotency_key.at < :now - CAST(round(:seconds * 1e6) AS INTEGER) RETURNING key;

-- name: find_request
SELECT fingerprint, answer FROM leasehold_idempotency_key WHERE key = :key;

-- name: answer_request
UPDATE leasehold_idempotency_key SET answer = :answer WHERE key = :key;

-- name: forget_requests
-- A few of the oldest, so that each new one makes room for itself.
DELETE FROM leasehold_idempotency_key WHERE key IN (
    SELECT key FROM leasehold_idempotency_key WHERE at < :now - CAST(round(:seconds * 1e6) AS INTEGER) AND key <> :key
    ORDER BY at LIMIT :limit);

-- name: insert_full_names
-- Names that were too long to be stored as they are. In the order of names: other transactions may insert the same.
INSERT INTO leasehold_long_name (name, whole)
SELECT json_extract(value, '$.name'), json_extract(value, '$.whole') FROM json_each(:names) WHERE true
ORDER BY json_extract(value, '$.name') ON CONFLICT (name) DO NOTHING;

-- name: find_full_names
SELECT name, whole FROM leasehold_long_name WHERE name IN (SELECT value FROM json_each(:names));
