-- name: insert_long_names
-- What was too long to be kept as it is. In the order of names: others may insert the same.
INSERT INTO leasehold_long_name (name, whole)
SELECT json_extract(value, '$.name'), json_extract(value, '$.whole') FROM json_each(:names) WHERE true
ORDER BY json_extract(value, '$.name') ON CONFLICT (name) DO NOTHING;

-- name: find_long_names
SELECT name, whole FROM leasehold_long_name WHERE name IN (SELECT value FROM json_each(:names));
