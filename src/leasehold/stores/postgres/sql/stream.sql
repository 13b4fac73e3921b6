-- name: lock_leases
-- An attempt without its lease has nothing to report. First the anchors, by seq, as everywhere: while one is locked no
-- other transaction numbers updates of the job. Then the leases, so that their renewals pass and their ends wait.
WITH v AS MATERIALIZED (SELECT r.id, r.token FROM json_to_recordset(:leases::json) AS r(id uuid, token bigint)),
anchors AS MATERIALIZED (
    SELECT j.seq, j.id FROM leasehold.job AS j
    WHERE j.id = ANY(ARRAY(SELECT id FROM v)) ORDER BY j.seq FOR NO KEY UPDATE)
SELECT a.id, l.token, (SELECT o.name FROM leasehold.worker_name AS o WHERE o.number = l.worker) AS worker
FROM anchors AS a JOIN v ON v.id = a.id, LATERAL (
    SELECT q.token, q.worker FROM leasehold.lease AS q WHERE q.job = a.seq AND q.token = v.token
    LIMIT 1 FOR KEY SHARE) AS l;

-- name: lock_leases_skip_locked
-- The same, but what another transaction has locked is left out.
WITH v AS MATERIALIZED (SELECT r.id, r.token FROM json_to_recordset(:leases::json) AS r(id uuid, token bigint)),
anchors AS MATERIALIZED (
    SELECT j.seq, j.id FROM leasehold.job AS j
    WHERE j.id = ANY(ARRAY(SELECT id FROM v)) ORDER BY j.seq FOR NO KEY UPDATE SKIP LOCKED)
SELECT a.id, l.token, (SELECT o.name FROM leasehold.worker_name AS o WHERE o.number = l.worker) AS worker
FROM anchors AS a JOIN v ON v.id = a.id, LATERAL (
    SELECT q.token, q.worker FROM leasehold.lease AS q WHERE q.job = a.seq AND q.token = v.token
    LIMIT 1 FOR KEY SHARE SKIP LOCKED) AS l;

-- name: read_streams
SELECT job_id, last_seq, token, last_note FROM leasehold.stream WHERE job_id = ANY(:ids::uuid[]);

-- name: find_keys
-- The keys among these that are stored already, whichever attempt has reported them.
WITH v AS MATERIALIZED (SELECT r.job_id, r.key FROM json_to_recordset(:keys::json) AS r(job_id uuid, key text))
SELECT v.job_id, v.key FROM v WHERE EXISTS (
    SELECT FROM leasehold.job_update AS e WHERE e.job_id = v.job_id AND e.key = v.key AND e.key IS NOT NULL OFFSET 0);

-- name: drop_progress
DELETE FROM leasehold.job_update WHERE kind = 'progress' AND job_id = ANY(:ids::uuid[]);

-- name: insert_updates
INSERT INTO leasehold.job_update (job_id, seq, kind, data, key, attempt, at)
SELECT r.job_id, r.seq, r.kind, r.data::json, r.key, r.attempt, :now
FROM json_to_recordset(:updates::json) AS r(job_id uuid, seq bigint, kind text, data text, key text, attempt integer);

-- name: append_logs
-- The end is kept: the last lines show what happened.
INSERT INTO leasehold.log_tail AS l (job_id, attempt, text, cut, read_to)
SELECT r.job_id, r.attempt, right(r.text, :cap::integer), r.cut + greatest(length(r.text) - :cap::integer, 0), r.read_to
FROM json_to_recordset(:logs::json) AS r(job_id uuid, attempt integer, text text, cut bigint, read_to text)
ON CONFLICT (job_id, attempt) DO UPDATE SET
    cut = l.cut + excluded.cut + greatest(length(l.text) + length(excluded.text) - :cap::integer, 0),
    text = right(l.text || excluded.text, :cap::integer),
    read_to = coalesce(excluded.read_to, l.read_to);

-- name: write_streams
INSERT INTO leasehold.stream (job_id, last_seq, token, last_note)
SELECT r.job_id, r.last_seq, r.token, r.last_note
FROM json_to_recordset(:streams::json) AS r(job_id uuid, last_seq bigint, token bigint, last_note bigint)
ON CONFLICT (job_id) DO UPDATE SET last_seq = excluded.last_seq, token = excluded.token, last_note = excluded.last_note;

-- name: read_stream
-- State and updates in one read: a job that is seen at rest has no update that this does not return, or that a read
-- behind the last one returned would not find. The limit is inside: a join of two tables would be sorted as a whole.
SELECT
-- include: state_of_number
    AS state,
    coalesce(
        (SELECT p.attempt FROM leasehold.outcome AS p WHERE p.job = j.seq),
        (SELECT p.attempt FROM leasehold.ready AS p WHERE p.seq = j.seq),
        (SELECT p.attempt FROM leasehold.lease AS p WHERE p.job = j.seq),
        (SELECT p.attempt FROM leasehold.parked AS p WHERE p.job = j.seq),
-- include: attempt_in_lane
    ) AS attempt, e.seq, e.kind, e.data, e.key, e.attempt AS emitted_in, e.at
FROM (SELECT a.seq AS number, a.* FROM leasehold.job AS a WHERE a.id = :id) AS j LEFT JOIN LATERAL (
    SELECT * FROM leasehold.job_update AS v
    WHERE v.job_id = j.id AND v.seq > :since ORDER BY v.seq LIMIT :limit) AS e ON true
ORDER BY e.seq;

-- name: mark_jobs
-- A value that changes as soon as something has happened to a job, or the job has reported something.
SELECT j.id,
-- include: state_of_number
    || ' ' || coalesce(l.token, r.token, p.token, o.token, 0) || ' ' || coalesce(l.stop, 0) || ' ' || coalesce(s.last_seq, 0)
    || ' ' || coalesce(extract(epoch from t.changed_at), 0) AS mark
FROM (SELECT a.seq AS number, a.* FROM leasehold.job AS a WHERE a.id = ANY(:ids::uuid[])) AS j
LEFT JOIN leasehold.outcome AS o ON o.job = j.seq LEFT JOIN leasehold.ready AS r ON r.seq = j.seq
LEFT JOIN leasehold.lease AS l ON l.job = j.seq LEFT JOIN leasehold.parked AS p ON p.job = j.seq
LEFT JOIN leasehold.stream AS s ON s.job_id = j.id LEFT JOIN leasehold.failure_state AS t ON t.job = j.seq;

-- name: read_progress
SELECT e.data, e.at FROM leasehold.job_update AS e WHERE e.job_id = :id AND e.kind = 'progress';

-- name: read_logs
SELECT attempt, text, cut FROM leasehold.log_tail WHERE job_id = :id ORDER BY attempt;

-- name: read_log_mark
SELECT read_to FROM leasehold.log_tail WHERE job_id = :id AND attempt = :attempt;
