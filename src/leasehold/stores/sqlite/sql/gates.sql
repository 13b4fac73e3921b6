-- name: insert_gates
INSERT INTO leasehold_gate (id, queue, task, slots, rate_key)
SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.queue'), json_extract(r.value, '$.task'),
    json_extract(r.value, '$.slots'), json_extract(r.value, '$.rate_key')
FROM json_each(:gates) AS r WHERE true
ON CONFLICT DO NOTHING;
