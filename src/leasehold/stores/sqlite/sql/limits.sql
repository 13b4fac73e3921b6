-- name: read_gates
-- What jobs behind these gates need. A gate never changes, so every process asks once.
SELECT id, slots, rate_key FROM gate WHERE id IN (SELECT value FROM json_each(:ids));

-- name: lock_slots
-- In name order. What is in use is counted by the statement that follows.
SELECT name FROM slot WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name;

-- name: lock_rates
SELECT key FROM rate WHERE key IN (SELECT value FROM json_each(:keys)) ORDER BY key;

-- name: read_slots
-- Limits, and units in use: of running jobs by their gates (all are above 0: said so that the index is searched), and
-- those taken inside runs that still run.
SELECT s.name, s.lim,
    coalesce((SELECT sum(h.units) FROM slot_hold AS h CROSS JOIN job AS j
              WHERE h.name = s.name AND j.id = h.job_id AND j.attempt = h.attempt AND j.state = 'running'), 0)
    + coalesce(u.units, 0) AS used
FROM slot AS s LEFT JOIN (
    SELECT n.key AS name, sum(n.value * r.jobs) AS units
    FROM (SELECT j.gate, count(*) AS jobs FROM job AS j INDEXED BY job_limited
          WHERE j.gate > 0 AND j.limited AND j.state = 'running' GROUP BY j.gate) AS r
    CROSS JOIN gate AS g ON g.id = r.gate CROSS JOIN json_each(g.slots) AS n
    GROUP BY n.key) AS u ON u.name = s.name
WHERE :names IS NULL OR s.name IN (SELECT value FROM json_each(:names))
ORDER BY s.name;

-- name: read_rates
SELECT key, lim, spacing, burst, next_at, closed AND (closed_until IS NULL OR closed_until > :now) AS closed,
    closed_until, closed_by, closed_reason, :now AS now
FROM rate WHERE :keys IS NULL OR key IN (SELECT value FROM json_each(:keys)) ORDER BY key;

-- name: move_rates
-- From now on if the key was idle: what was not used is lost but for the burst.
UPDATE rate SET next_at = max(next_at, :now) + CAST(round(json_extract(t.value, '$.jobs') * spacing * 1e6) AS INTEGER)
FROM json_each(:taken) AS t WHERE rate.key = json_extract(t.value, '$.key');

-- name: list_slot_holders
-- Who uses a slot, oldest run first.
SELECT w.job_id, sum(w.units) AS units, w.kind, w.owner FROM (
    SELECT j.id AS job_id, n.value AS units, j.kind, j.lease_owner AS owner, j.started_at
    FROM gate AS g CROSS JOIN json_each(g.slots) AS n CROSS JOIN job AS j INDEXED BY job_limited
    WHERE n.key = :name AND j.gate = g.id AND j.limited AND j.state = 'running'
    UNION ALL
    SELECT j.id, h.units, j.kind, j.lease_owner, j.started_at FROM slot_hold AS h CROSS JOIN job AS j
    WHERE h.name = :name AND j.id = h.job_id AND j.attempt = h.attempt AND j.state = 'running') AS w
GROUP BY w.job_id, w.kind, w.owner, w.started_at ORDER BY w.started_at, w.job_id LIMIT :limit;

-- name: set_slot
INSERT INTO slot (name, lim) VALUES (:name, :lim) ON CONFLICT (name) DO UPDATE SET lim = excluded.lim;

-- name: set_rate
-- A new limit counts at once: the old one's spacing must not hold the key longer than the new one would.
INSERT INTO rate (key, lim, spacing, burst, next_at) VALUES (:key, :lim, :spacing, :burst, :now)
ON CONFLICT (key) DO UPDATE SET lim = excluded.lim, spacing = excluded.spacing, burst = excluded.burst,
    next_at = min(rate.next_at, excluded.next_at + CAST(round(excluded.burst * excluded.spacing * 1e6) AS INTEGER));

-- name: make_slots
-- Limits that tasks bring along: an operator's own stays.
INSERT INTO slot (name, lim)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.lim') FROM json_each(:slots) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: make_rates
INSERT INTO rate (key, lim, spacing, burst, next_at)
SELECT json_extract(r.value, '$.key'), json_extract(r.value, '$.lim'), json_extract(r.value, '$.spacing'),
    json_extract(r.value, '$.burst'), :now
FROM json_each(:rates) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: close_rate
UPDATE rate SET closed = 1, closed_until = coalesce(:until, :now + CAST(round(:seconds * 1e6) AS INTEGER)),
    closed_by = :actor, closed_reason = :reason
WHERE key = :key RETURNING key;

-- name: open_rate
UPDATE rate SET closed = 0, closed_until = NULL, closed_by = NULL, closed_reason = NULL WHERE key = :key RETURNING key;

-- name: hold_slot
-- Only the holder of the lease may; more of the same slot adds up.
INSERT INTO slot_hold (name, job_id, attempt, units)
SELECT :name, j.id, j.attempt, :units FROM job AS j WHERE j.id = :id AND j.lease_token = :token AND j.state = 'running'
ON CONFLICT (name, job_id, attempt) DO UPDATE SET units = units + excluded.units
RETURNING units;

-- name: release_slot
DELETE FROM slot_hold WHERE name = :name AND job_id = :id AND attempt = :attempt RETURNING units;

-- name: sweep_holds
-- Of runs that have ended. They do not count; they only lie about.
DELETE FROM slot_hold WHERE name = :name AND NOT EXISTS (
    SELECT 1 FROM job AS j
    WHERE j.id = slot_hold.job_id AND j.attempt = slot_hold.attempt AND j.state = 'running');

-- name: find_slots
SELECT name, lim FROM slot WHERE name IN (SELECT value FROM json_each(:names));

-- name: find_rates
SELECT key, burst FROM rate WHERE key IN (SELECT value FROM json_each(:keys));
