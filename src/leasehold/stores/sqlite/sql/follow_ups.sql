-- name: insert_follow_ups
INSERT INTO leasehold_follow_up (parent_id, child_id)
SELECT json_extract(r.value, '$.parent_id'), json_extract(r.value, '$.child_id') FROM json_each(:follow_ups) AS r
WHERE true
ON CONFLICT DO NOTHING;
