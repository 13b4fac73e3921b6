-- name: make_slots
-- Limits that tasks bring along: an operator's own stays.
INSERT INTO leasehold_slot (name, lim)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.lim') FROM json_each(:slots) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: make_rates
INSERT INTO leasehold_rate (key, lim, spacing, burst, next_at)
SELECT json_extract(r.value, '$.key'), json_extract(r.value, '$.lim'), json_extract(r.value, '$.spacing'),
    json_extract(r.value, '$.burst'), :now
FROM json_each(:rates) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: find_slots
SELECT name, lim FROM leasehold_slot WHERE name IN (SELECT value FROM json_each(:names));

-- name: find_rates
SELECT key, burst FROM leasehold_rate WHERE key IN (SELECT value FROM json_each(:keys));
