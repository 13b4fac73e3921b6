-- name: settle_succeeded
-- Success is success under every flag, so the token is the whole guard and nothing needs to be read first. Jobs that
-- others wait for are left to the decided path, which judges those in the same transaction. The lanes' tickets and the
-- groups' versions follow in the same transaction. Arrays [id, token, result, reference] are taken apart more quickly
-- than objects.
UPDATE job SET state = 'succeeded', reason = NULL, result = json_extract(v.value, '$[2]'),
    result_ref = json_extract(v.value, '$[3]'),
    lease_owner = NULL, lease_expires_at = NULL, lease_token = lease_token + 1, stop_requested = NULL,
    finished_at = :now, settled_by = lease_owner, settled_token = lease_token,
    execution_site = NULL, execution_name = NULL, execution_started_at = NULL
FROM json_each(:settled) AS v
WHERE job.id = json_extract(v.value, '$[0]') AND job.lease_token = json_extract(v.value, '$[1]') AND job.awaited = 0
RETURNING id, limited, lane, group_name, attempt;

-- name: file_next_tickets
-- One writer at a time: what is seen here is what is there.
INSERT INTO ticket (gate, priority, available_at, lane)
SELECT h.gate, h.priority, max(h.available_at, h.lane_at), h.lane
FROM json_each(:lanes) AS l CROSS JOIN job AS h ON h.seq = (
    SELECT j.seq FROM job AS j INDEXED BY job_lane WHERE j.lane = l.value AND j.lane IS NOT NULL AND j.state = 'queued'
    ORDER BY j.lane_at, j.seq LIMIT 1);

-- name: lock_jobs
-- Every decision that depends on the row is taken while this connection is the writer. The store's now comes along.
SELECT j.*, :now AS now FROM job AS j WHERE j.id IN (SELECT value FROM json_each(:ids)) ORDER BY j.id;

-- name: update_jobs
-- Writes moves that were decided under lock_jobs.
UPDATE job SET state = json_extract(v.value, '$.state'), reason = json_extract(v.value, '$.reason'),
    args = json_extract(v.value, '$.args'), available_at = json_extract(v.value, '$.available_at'),
    lane_at = json_extract(v.value, '$.lane_at'), halts_lane = json_extract(v.value, '$.halts_lane'),
    lease_owner = json_extract(v.value, '$.lease_owner'),
    lease_expires_at = json_extract(v.value, '$.lease_expires_at'),
    lease_token = json_extract(v.value, '$.lease_token'), attempt = json_extract(v.value, '$.attempt'),
    failures = json_extract(v.value, '$.failures'), crashes = json_extract(v.value, '$.crashes'),
    stop_requested = json_extract(v.value, '$.stop_requested'),
    execution_site = json_extract(v.value, '$.execution_site'),
    execution_name = json_extract(v.value, '$.execution_name'),
    execution_started_at = json_extract(v.value, '$.execution_started_at'),
    first_started_at = json_extract(v.value, '$.first_started_at'),
    started_at = json_extract(v.value, '$.started_at'), finished_at = json_extract(v.value, '$.finished_at'),
    settled_by = json_extract(v.value, '$.settled_by'), settled_token = json_extract(v.value, '$.settled_token'),
    result = json_extract(v.value, '$.result'), result_ref = json_extract(v.value, '$.result_ref'),
    error = json_extract(v.value, '$.error'), held = json_extract(v.value, '$.held'),
    unmet = json_extract(v.value, '$.unmet')
FROM json_each(:jobs) AS v WHERE job.id = json_extract(v.value, '$.id');

-- name: insert_history
INSERT INTO history (job_id, at, event, from_state, to_state, token, attempt, actor, detail)
SELECT json_extract(r.value, '$.job_id'), :now, json_extract(r.value, '$.event'), json_extract(r.value, '$.from_state'),
    json_extract(r.value, '$.to_state'), json_extract(r.value, '$.token'), json_extract(r.value, '$.attempt'),
    json_extract(r.value, '$.actor'), json_extract(r.value, '$.detail')
FROM json_each(:entries) AS r;

-- name: bump_groups
UPDATE job_group SET version = version + 1 WHERE name IN (SELECT value FROM json_each(:names));

-- name: open_question
-- Asked again while it is open, it is the same question: its time runs from the first asking on.
INSERT INTO question (job_id, key, text, schema, secret, asked_at, expires_at)
VALUES (:id, :key, :text, :schema, :secret, :now, :now + CAST(round(:seconds * 1e6) AS INTEGER))
ON CONFLICT (job_id, key) DO UPDATE SET text = excluded.text, schema = excluded.schema, secret = excluded.secret,
    asked_at = CASE WHEN closed_at IS NULL THEN asked_at ELSE excluded.asked_at END,
    expires_at = CASE WHEN closed_at IS NULL THEN coalesce(expires_at, excluded.expires_at) ELSE excluded.expires_at END,
    closed_at = NULL, answer = NULL, answered = 0, expired = 0;

-- name: close_questions
-- By the end of their job; what it was told in secret goes with it.
UPDATE question SET closed_at = coalesce(closed_at, :now), answer = CASE WHEN NOT secret THEN answer END
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND (closed_at IS NULL OR (secret AND answer IS NOT NULL));
