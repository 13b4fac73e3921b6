-- name: read_gates
-- What jobs behind these gates need, and their queue. A gate never changes, so every process reads it once.
SELECT id, queue, slots, rate_key FROM leasehold_gate WHERE id IN (SELECT value FROM json_each(:ids));

-- name: lock_slots
-- In name order. What is in use is counted by the statement that follows.
SELECT name FROM leasehold_slot WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name;

-- name: lock_rates
SELECT key FROM leasehold_rate WHERE key IN (SELECT value FROM json_each(:keys)) ORDER BY key;

-- name: read_slots
-- Limits, and units in use: of running jobs by their gates, and units taken inside attempts that still run.
SELECT s.name, s.lim,
    coalesce((SELECT sum(n.value * u.jobs)
              FROM (SELECT gate, count(*) AS jobs FROM leasehold_lease_slot GROUP BY gate) AS u
              CROSS JOIN leasehold_gate AS g ON g.id = u.gate CROSS JOIN json_each(g.slots) AS n
              WHERE n.key = s.name), 0)
    + coalesce((SELECT sum(h.units) FROM leasehold_slot_hold AS h WHERE h.name = s.name AND (
        EXISTS (SELECT 1 FROM leasehold_lease AS l WHERE l.job = h.job AND l.attempt = h.attempt)
        OR EXISTS (SELECT 1 FROM leasehold_parked AS o WHERE o.job = h.job AND o.attempt = h.attempt AND o.state = 4))), 0)
    AS used
FROM leasehold_slot AS s WHERE :names IS NULL OR s.name IN (SELECT value FROM json_each(:names)) ORDER BY s.name;

-- name: read_rates
SELECT key, lim, spacing, burst, next_at, closed AND (closed_until IS NULL OR closed_until > :now) AS closed,
    closed_until, closed_by, closed_reason, :now AS now
FROM leasehold_rate WHERE :keys IS NULL OR key IN (SELECT value FROM json_each(:keys)) ORDER BY key;

-- name: move_rates
-- From now on if the key was idle: what was not used is lost, except for the burst.
UPDATE leasehold_rate SET next_at = max(next_at, :now) + CAST(round(json_extract(t.value, '$.jobs') * spacing * 1e6) AS INTEGER)
FROM json_each(:taken) AS t WHERE leasehold_rate.key = json_extract(t.value, '$.key');

-- name: list_slot_holders
-- The jobs that use a slot, oldest attempt first. An orphan has no worker.
SELECT j.id AS job_id, sum(w.units) AS units, j.task, o.name AS worker FROM (
    SELECT u.job, n.value AS units FROM leasehold_lease_slot AS u CROSS JOIN leasehold_gate AS g ON g.id = u.gate
    CROSS JOIN json_each(g.slots) AS n WHERE n.key = :name
    UNION ALL
    SELECT h.job, h.units FROM leasehold_slot_hold AS h WHERE h.name = :name AND (
        EXISTS (SELECT 1 FROM leasehold_lease AS l WHERE l.job = h.job AND l.attempt = h.attempt)
        OR EXISTS (SELECT 1 FROM leasehold_parked AS p WHERE p.job = h.job AND p.attempt = h.attempt AND p.state = 4))) AS w
CROSS JOIN leasehold_job AS j ON j.seq = w.job LEFT JOIN leasehold_lease AS l ON l.job = w.job
LEFT JOIN leasehold_parked AS p ON p.job = w.job LEFT JOIN leasehold_worker_name AS o ON o.number = l.worker
GROUP BY j.id, j.task, o.name ORDER BY coalesce(l.started_at, p.started_at), j.seq LIMIT :limit;

-- name: set_slot
INSERT INTO leasehold_slot (name, lim) VALUES (:name, :lim) ON CONFLICT (name) DO UPDATE SET lim = excluded.lim;

-- name: set_rate
-- A new limit counts at once: the old one's spacing must not hold the key longer than the new one would.
INSERT INTO leasehold_rate (key, lim, spacing, burst, next_at) VALUES (:key, :lim, :spacing, :burst, :now)
ON CONFLICT (key) DO UPDATE SET lim = excluded.lim, spacing = excluded.spacing, burst = excluded.burst,
    next_at = min(leasehold_rate.next_at, excluded.next_at + CAST(round(excluded.burst * excluded.spacing * 1e6) AS INTEGER));

-- name: close_rate
UPDATE leasehold_rate SET closed = 1, closed_until = coalesce(:until, :now + CAST(round(:seconds * 1e6) AS INTEGER)),
    closed_by = :actor, closed_reason = :reason
WHERE key = :key RETURNING key;

-- name: open_rate
UPDATE leasehold_rate SET closed = 0, closed_until = NULL, closed_by = NULL, closed_reason = NULL WHERE key = :key RETURNING key;

-- name: hold_slot
-- Only the holder of the lease may take units; more of the same slot adds up.
INSERT INTO leasehold_slot_hold (name, job, attempt, units)
SELECT :name, l.job, l.attempt, :units FROM leasehold_job AS j CROSS JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token
ON CONFLICT (name, job, attempt) DO UPDATE SET units = units + excluded.units
RETURNING units;

-- name: release_slot
DELETE FROM leasehold_slot_hold
WHERE name = :name AND job = (SELECT seq FROM leasehold_job WHERE id = :id) AND attempt = :attempt RETURNING units;

-- name: sweep_holds
-- Holds of attempts that have ended. They do not count; they only take space.
DELETE FROM leasehold_slot_hold WHERE name = :name
  AND NOT EXISTS (SELECT 1 FROM leasehold_lease AS l
                  WHERE l.job = leasehold_slot_hold.job AND l.attempt = leasehold_slot_hold.attempt)
  AND NOT EXISTS (SELECT 1 FROM leasehold_parked AS o WHERE o.job = leasehold_slot_hold.job
                  AND o.attempt = leasehold_slot_hold.attempt AND o.state = 4);

-- name: insert_gates
INSERT INTO leasehold_gate (id, queue, task, slots, rate_key)
SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.queue'), json_extract(r.value, '$.task'),
    json_extract(r.value, '$.slots'), json_extract(r.value, '$.rate_key')
FROM json_each(:gates) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: make_slots
-- Limits that tasks bring along: a limit set by an operator stays.
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
