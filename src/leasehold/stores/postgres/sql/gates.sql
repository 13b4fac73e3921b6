-- name: insert_gates
INSERT INTO leasehold.gate (id, queue, task, slots, rate_key)
SELECT r.id, r.queue, r.task, r.slots::json, r.rate_key
FROM json_to_recordset(:gates::json) AS r(id bigint, queue text, task text, slots text, rate_key text)
ON CONFLICT DO NOTHING;
