-- name: lock_leases
-- An attempt without its lease has nothing to report. This connection is the writer, so nothing moves meanwhile.
SELECT j.id, l.token, (SELECT o.name FROM leasehold_worker_name AS o WHERE o.number = l.worker) AS worker
FROM json_each(:leases) AS v CROSS JOIN leasehold_job AS j ON j.id = json_extract(v.value, '$.id')
    CROSS JOIN leasehold_lease AS l ON l.job = j.seq AND l.token = json_extract(v.value, '$.token');

-- name: lock_leases_skip_locked
SELECT j.id, l.token, (SELECT o.name FROM leasehold_worker_name AS o WHERE o.number = l.worker) AS worker
FROM json_each(:leases) AS v CROSS JOIN leasehold_job AS j ON j.id = json_extract(v.value, '$.id')
    CROSS JOIN leasehold_lease AS l ON l.job = j.seq AND l.token = json_extract(v.value, '$.token');

-- name: read_streams
SELECT job_id, last_seq, token, last_note FROM leasehold_stream WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: find_keys
-- The keys among these that are stored already, whichever attempt has reported them.
SELECT e.job_id, e.key FROM json_each(:keys) AS v CROSS JOIN leasehold_job_update AS e INDEXED BY leasehold_job_update_key
    ON e.job_id = json_extract(v.value, '$.job_id') AND e.key = json_extract(v.value, '$.key') AND e.key IS NOT NULL;

-- name: drop_progress
DELETE FROM leasehold_job_update WHERE kind = 'progress' AND job_id IN (SELECT value FROM json_each(:ids));

-- name: insert_updates
INSERT INTO leasehold_job_update (job_id, seq, kind, data, key, attempt, at)
SELECT json_extract(r.value, '$.job_id'), json_extract(r.value, '$.seq'), json_extract(r.value, '$.kind'),
    json_extract(r.value, '$.data'), json_extract(r.value, '$.key'), json_extract(r.value, '$.attempt'), :now
FROM json_each(:updates) AS r;

-- name: append_logs
-- The end is kept: the last lines show what happened.
INSERT INTO leasehold_log_tail (job_id, attempt, text, cut, read_to)
SELECT json_extract(r.value, '$.job_id'), json_extract(r.value, '$.attempt'),
    substr(json_extract(r.value, '$.text'), -:cap),
    json_extract(r.value, '$.cut') + max(length(json_extract(r.value, '$.text')) - :cap, 0),
    json_extract(r.value, '$.read_to')
FROM json_each(:logs) AS r WHERE true
ON CONFLICT (job_id, attempt) DO UPDATE SET
    cut = cut + excluded.cut + max(length(text) + length(excluded.text) - :cap, 0),
    text = substr(text || excluded.text, -:cap),
    read_to = coalesce(excluded.read_to, read_to);

-- name: write_streams
INSERT INTO leasehold_stream (job_id, last_seq, token, last_note)
SELECT json_extract(r.value, '$.job_id'), json_extract(r.value, '$.last_seq'), json_extract(r.value, '$.token'),
    json_extract(r.value, '$.last_note')
FROM json_each(:streams) AS r WHERE true
ON CONFLICT (job_id) DO UPDATE SET last_seq = excluded.last_seq, token = excluded.token, last_note = excluded.last_note;

-- name: read_stream
-- State and updates in one read: a job that is seen at rest has no update that this does not return, or that a read
-- behind the last one returned would not find. The places are joined one by one: a join with job_row would build the
-- whole view.
SELECT
-- include: state_of_number
    AS state,
    coalesce(o.attempt, r.attempt, l.attempt, p.attempt,
-- include: attempt_in_lane
    ) AS attempt, e.seq, e.kind, e.data, e.key, e.attempt AS emitted_in, e.at
FROM (SELECT a.seq AS number, a.* FROM leasehold_job AS a WHERE a.id = :id) AS j
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_ready AS r ON r.seq = j.seq
LEFT JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_parked AS p ON p.job = j.seq
LEFT JOIN leasehold_job_update AS e ON e.job_id = j.id AND e.seq > :since
ORDER BY e.seq LIMIT :limit;

-- name: mark_jobs
-- A value that changes as soon as something has happened to a job, or the job has reported something.
SELECT j.id,
-- include: state_of_number
    || ' ' || coalesce(l.token, r.token, p.token, o.token, 0) || ' ' || coalesce(l.stop, 0) || ' ' || coalesce(s.last_seq, 0)
    || ' ' || coalesce(t.changed_at, 0) AS mark
FROM (SELECT a.seq AS number, a.* FROM leasehold_job AS a WHERE a.id IN (SELECT value FROM json_each(:ids))) AS j
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_ready AS r ON r.seq = j.seq
LEFT JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_parked AS p ON p.job = j.seq
LEFT JOIN leasehold_stream AS s ON s.job_id = j.id LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq;

-- name: read_progress
SELECT e.data, e.at FROM leasehold_job_update AS e WHERE e.job_id = :id AND e.kind = 'progress';

-- name: read_logs
SELECT attempt, text, cut FROM leasehold_log_tail WHERE job_id = :id ORDER BY attempt;

-- name: read_log_mark
SELECT read_to FROM leasehold_log_tail WHERE job_id = :id AND attempt = :attempt;
