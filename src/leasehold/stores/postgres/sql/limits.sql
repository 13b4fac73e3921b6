-- name: read_gates
-- What jobs behind these gates need. A gate never changes, so every process asks once.
SELECT id, slots, rate_key FROM leasehold.gate WHERE id = ANY(:ids::bigint[]);

-- name: lock_slots
-- In name order. What is in use is counted by the statement that follows: counted here, it would be counted with a
-- snapshot that is older than the lock, and two claimers could both see the last unit free.
SELECT name FROM leasehold.slot WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE;

-- name: lock_rates
SELECT key FROM leasehold.rate WHERE key = ANY(:keys::text[]) ORDER BY key FOR UPDATE;

-- name: read_slots
-- Limits, and units in use: of running jobs by their gates, and those taken inside runs that still run. LATERAL, so
-- that holds are looked up by name and jobs by id whatever the statistics say.
WITH running AS MATERIALIZED (
    SELECT j.gate, count(*) AS jobs FROM leasehold.job AS j WHERE j.limited AND j.state = 'running' GROUP BY j.gate),
by_gate AS MATERIALIZED (
    SELECT n.key AS name, sum(n.value::integer * r.jobs) AS units
    FROM running AS r JOIN leasehold.gate AS g ON g.id = r.gate, LATERAL json_each_text(g.slots) AS n
    GROUP BY n.key)
SELECT s.name, s.lim, (coalesce(u.units, 0) + coalesce(h.units, 0))::bigint AS used
FROM leasehold.slot AS s LEFT JOIN by_gate AS u ON u.name = s.name
LEFT JOIN LATERAL (
    SELECT sum(o.units * live.yes) AS units FROM leasehold.slot_hold AS o, LATERAL (
        SELECT 1 AS yes FROM leasehold.job AS j
        WHERE j.id = o.job_id AND j.attempt = o.attempt AND j.state = 'running' LIMIT 1) AS live
    WHERE o.name = s.name) AS h ON true
WHERE :names::text[] IS NULL OR s.name = ANY(:names::text[])
ORDER BY s.name;

-- name: read_rates
SELECT key, lim, spacing, burst, next_at, closed AND (closed_until IS NULL OR closed_until > :now) AS closed,
    closed_until, closed_by, closed_reason, :now AS now
FROM leasehold.rate WHERE :keys::text[] IS NULL OR key = ANY(:keys::text[]) ORDER BY key;

-- name: move_rates
-- From now on if the key was idle: what was not used is lost but for the burst.
UPDATE leasehold.rate AS r SET next_at = greatest(r.next_at, :now) + t.jobs * r.spacing * interval '1 second'
FROM json_to_recordset(:taken::json) AS t(key text, jobs integer) WHERE r.key = t.key;

-- name: list_slot_holders
-- Who uses a slot, oldest run first.
SELECT w.job_id, sum(w.units)::bigint AS units, w.kind, w.owner FROM (
    SELECT j.id AS job_id, n.value::integer AS units, j.kind, j.lease_owner AS owner, j.started_at
    FROM leasehold.gate AS g, LATERAL json_each_text(g.slots) AS n, LATERAL (
        SELECT q.id, q.kind, q.lease_owner, q.started_at FROM leasehold.job AS q
        WHERE q.gate = g.id AND q.limited AND q.state = 'running' OFFSET 0) AS j
    WHERE n.key = :name
    UNION ALL
    SELECT j.id, h.units, j.kind, j.lease_owner, j.started_at FROM leasehold.slot_hold AS h, LATERAL (
        SELECT q.id, q.kind, q.lease_owner, q.started_at FROM leasehold.job AS q
        WHERE q.id = h.job_id AND q.attempt = h.attempt AND q.state = 'running' OFFSET 0) AS j
    WHERE h.name = :name) AS w
GROUP BY w.job_id, w.kind, w.owner, w.started_at ORDER BY w.started_at, w.job_id LIMIT :limit;

-- name: set_slot
INSERT INTO leasehold.slot (name, lim) VALUES (:name, :lim) ON CONFLICT (name) DO UPDATE SET lim = excluded.lim;

-- name: set_rate
-- A new limit counts at once: the old one's spacing must not hold the key longer than the new one would.
INSERT INTO leasehold.rate AS r (key, lim, spacing, burst, next_at) VALUES (:key, :lim, :spacing, :burst, :now)
ON CONFLICT (key) DO UPDATE SET lim = excluded.lim, spacing = excluded.spacing, burst = excluded.burst,
    next_at = least(r.next_at, excluded.next_at + excluded.burst * excluded.spacing * interval '1 second');

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

-- name: close_rate
UPDATE leasehold.rate SET closed = true,
    closed_until = coalesce(:until::timestamptz, :now + :seconds::double precision * interval '1 second'),
    closed_by = :actor, closed_reason = :reason
WHERE key = :key RETURNING key;

-- name: open_rate
UPDATE leasehold.rate SET closed = false, closed_until = NULL, closed_by = NULL, closed_reason = NULL
WHERE key = :key RETURNING key;

-- name: hold_slot
-- Only the holder of the lease may; more of the same slot adds up.
INSERT INTO leasehold.slot_hold AS h (name, job_id, attempt, units)
SELECT :name::text, j.id, j.attempt, :units::integer FROM leasehold.job AS j
WHERE j.id = :id AND j.lease_token = :token AND j.state = 'running'
ON CONFLICT (name, job_id, attempt) DO UPDATE SET units = h.units + excluded.units
RETURNING units;

-- name: release_slot
DELETE FROM leasehold.slot_hold WHERE name = :name AND job_id = :id AND attempt = :attempt RETURNING units;

-- name: sweep_holds
-- Of runs that have ended. They do not count; they only lie about. What is locked is just being removed by the pruner, and
-- waiting for it, in whatever order rows come, could be a deadlock.
DELETE FROM leasehold.slot_hold WHERE ctid = ANY(ARRAY(
    SELECT h.ctid FROM leasehold.slot_hold AS h WHERE h.name = :name AND NOT EXISTS (
        SELECT FROM leasehold.job AS j WHERE j.id = h.job_id AND j.attempt = h.attempt AND j.state = 'running')
    FOR UPDATE OF h SKIP LOCKED));

-- name: find_slots
SELECT name, lim FROM leasehold.slot WHERE name = ANY(:names::text[]);

-- name: find_rates
SELECT key, burst FROM leasehold.rate WHERE key = ANY(:keys::text[]);
