-- name: insert_long_names
-- What was too long to be kept as it is. In the order of names: others may insert the same.
INSERT INTO leasehold.long_name (name, whole) SELECT r.name, r.whole
FROM json_to_recordset(:names::json) AS r(name text, whole text) ORDER BY r.name ON CONFLICT (name) DO NOTHING;

-- name: find_long_names
SELECT name, whole FROM leasehold.long_name WHERE name = ANY(:names::text[]);
