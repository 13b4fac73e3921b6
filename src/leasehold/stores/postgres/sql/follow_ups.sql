-- name: insert_follow_ups
INSERT INTO leasehold.follow_up (parent_id, child_id)
SELECT r.parent_id, r.child_id FROM json_to_recordset(:follow_ups::json) AS r(parent_id uuid, child_id uuid)
ON CONFLICT DO NOTHING;
