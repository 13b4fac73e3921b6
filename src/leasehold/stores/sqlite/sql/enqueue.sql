-- name: insert_jobs
-- Jobs that are alike but for id, arguments, lane and key, in the order given (seq follows it). A row that meets its own
-- id (a repeat after a lost reply) or a held unique key is left out of the answer, and the caller finds out which it was.
INSERT INTO job (id, kind, queue, gate, limited, priority, state, args, policy, created_at, available_at, lane, lane_at,
    lease_seconds, unique_key, unique_for, group_name, tags, held, deadline_at, start_by, retry_of, trace)
SELECT json_extract(r.value, '$[0]'), :kind, :queue, :gate, :limited, :priority,
    CASE WHEN :hold THEN 'pending' ELSE 'queued' END, json_extract(r.value, '$[1]'), :policy, :now,
    coalesce(:at, :now + CAST(round(:delay * 1e6) AS INTEGER)),
    json_extract(r.value, '$[2]'), CASE WHEN json_extract(r.value, '$[2]') IS NOT NULL THEN
        max(coalesce(:at, :now + CAST(round(:delay * 1e6) AS INTEGER)), :now) END,
    :lease_seconds, json_extract(r.value, '$[3]'), :unique_for, :group_name, :tags, :hold,
    :now + CAST(round(:deadline * 1e6) AS INTEGER), :now + CAST(round(:start_by * 1e6) AS INTEGER), :retry_of, :trace
FROM json_each(:jobs) AS r WHERE true
ON CONFLICT DO NOTHING
RETURNING id, lane_at;

-- name: insert_gates
INSERT INTO gate (id, queue, kind, slots, rate_key)
SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.queue'), json_extract(r.value, '$.kind'),
    json_extract(r.value, '$.slots'), json_extract(r.value, '$.rate_key')
FROM json_each(:gates) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: insert_tickets
-- A ticket of gate 0 speaks for a head that is not known for sure; its rank is that of the job that seems to be next:
-- under the rank of the job that left, a higher head would be looked at too late.
INSERT INTO ticket (gate, priority, available_at, lane)
SELECT json_extract(r.value, '$.gate'),
    coalesce((SELECT j.priority FROM job AS j INDEXED BY job_lane
              WHERE json_extract(r.value, '$.gate') = 0 AND j.lane = json_extract(r.value, '$.lane')
                AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
              ORDER BY j.lane_at, j.seq LIMIT 1), json_extract(r.value, '$.priority')),
    json_extract(r.value, '$.available_at'), json_extract(r.value, '$.lane')
FROM json_each(:tickets) AS r;

-- name: insert_tags
INSERT INTO tag (name, job_id)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.job_id') FROM json_each(:tags) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: touch_groups
-- Makes the group with its first job, and tells those who watch it that something has changed. A group
-- on hold is left out of the answer: nothing may come into it.
INSERT INTO job_group (name)
SELECT n.value FROM json_each(:names) AS n WHERE true
ON CONFLICT (name) DO UPDATE SET version = version + 1, state = 'active', reason = NULL WHERE state <> 'held'
RETURNING name;

-- name: find_key_holders
-- Who holds these unique keys now. One probe of the unique index per key.
SELECT j.id, j.kind, j.unique_key, j.state, j.attempt
FROM json_each(:kinds) AS k CROSS JOIN job AS j INDEXED BY job_unique
WHERE j.kind = k.value AND j.unique_key = json_extract(:keys, '$[' || k.key || ']') AND j.unique_key IS NOT NULL
  AND (j.unique_for = 'ever' OR j.state IN ('pending', 'queued', 'running', 'waiting', 'paused'));

-- name: find_ids
SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:ids));
