-- name: make_slots
-- Limits that tasks bring along: an operator's own stays.
INSERT INTO leasehold.slot (name, lim)
SELECT r.name, r.lim FROM json_to_recordset(:slots::json) AS r(name text, lim integer) ORDER BY r.name
ON CONFLICT DO NOTHING;

-- name: make_rates
INSERT INTO leasehold.rate (key, lim, spacing, burst, next_at)
SELECT r.key, r.lim, r.spacing, r.burst, :now
FROM json_to_recordset(:rates::json) AS r(key text, lim text, spacing double precision, burst integer) ORDER BY r.key
ON CONFLICT DO NOTHING;

-- name: find_slots
SELECT name, lim FROM leasehold.slot WHERE name = ANY(:names::text[]);

-- name: find_rates
SELECT key, burst FROM leasehold.rate WHERE key = ANY(:keys::text[]);
