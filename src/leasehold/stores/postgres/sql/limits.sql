-- part: runs_of_o
-- The attempt that the hold o belongs to, if it still runs: under a lease, or as an orphan.
        SELECT l.worker, l.started_at FROM leasehold.lease AS l WHERE l.job = o.job AND l.attempt = o.attempt
        UNION ALL
        SELECT NULL, p.started_at FROM leasehold.parked AS p
        WHERE p.job = o.job AND p.attempt = o.attempt AND p.state = 4
        LIMIT 1

-- name: read_gates
-- What jobs behind these gates need, and their queue. A gate never changes, so every process reads it once.
SELECT id, queue, slots, rate_key FROM leasehold.gate WHERE id = ANY(:ids::bigint[]);

-- name: lock_slots
-- In name order. What is in use is counted by the statement that follows: counted here, it would be counted with a
-- snapshot that is older than the lock, and two claimers could both see the last unit free.
SELECT name FROM leasehold.slot WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE;

-- name: lock_rates
SELECT key FROM leasehold.rate WHERE key = ANY(:keys::text[]) ORDER BY key FOR UPDATE;

-- name: read_slots
-- Limits, and units in use: of running jobs by their gates, and units taken inside attempts that still run. LATERAL, so
-- that holds are looked up by name and places by job, whatever the statistics are.
WITH running AS MATERIALIZED (SELECT gate, count(*) AS jobs FROM leasehold.lease_slot GROUP BY gate),
by_gate AS MATERIALIZED (
    SELECT n.key AS name, sum(n.value::integer * r.jobs) AS units
    FROM running AS r JOIN leasehold.gate AS g ON g.id = r.gate, LATERAL json_each_text(g.slots) AS n
    GROUP BY n.key)
SELECT s.name, s.lim, (coalesce(u.units, 0) + coalesce(h.units, 0))::bigint AS used
FROM leasehold.slot AS s LEFT JOIN by_gate AS u ON u.name = s.name
LEFT JOIN LATERAL (
    SELECT sum(o.units) AS units FROM leasehold.slot_hold AS o, LATERAL (
-- include: runs_of_o
    ) AS live WHERE o.name = s.name) AS h ON true
WHERE :names::text[] IS NULL OR s.name = ANY(:names::text[])
ORDER BY s.name;

-- name: read_rates
SELECT key, lim, spacing, burst, next_at, closed AND (closed_until IS NULL OR closed_until > :now) AS closed,
    closed_until, closed_by, closed_reason, :now AS now
FROM leasehold.rate WHERE :keys::text[] IS NULL OR key = ANY(:keys::text[]) ORDER BY key;

-- name: move_rates
-- From now on if the key was idle: what was not used is lost, except for the burst.
UPDATE leasehold.rate AS r SET next_at = greatest(r.next_at, :now) + t.jobs * r.spacing * interval '1 second'
FROM json_to_recordset(:taken::json) AS t(key text, jobs integer) WHERE r.key = t.key;

-- name: list_slot_holders
-- The jobs that use a slot, oldest attempt first. An orphan has no worker.
SELECT j.id AS job_id, sum(w.units)::bigint AS units, j.task, n.name AS worker FROM (
    SELECT u.job, v.value::integer AS units, live.worker, live.started_at
    FROM leasehold.gate AS g, LATERAL json_each_text(g.slots) AS v, LATERAL (
        SELECT q.job FROM leasehold.lease_slot AS q WHERE q.gate = g.id OFFSET 0) AS u, LATERAL (
        SELECT l.worker, l.started_at FROM leasehold.lease AS l WHERE l.job = u.job
        UNION ALL
        SELECT NULL, p.started_at FROM leasehold.parked AS p WHERE p.job = u.job AND p.state = 4
        LIMIT 1) AS live
    WHERE v.key = :name
    UNION ALL
    SELECT o.job, o.units, live.worker, live.started_at FROM leasehold.slot_hold AS o, LATERAL (
-- include: runs_of_o
    ) AS live WHERE o.name = :name) AS w
CROSS JOIN LATERAL (SELECT q.id, q.task FROM leasehold.job AS q WHERE q.seq = w.job LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT q.name FROM leasehold.worker_name AS q WHERE q.number = w.worker LIMIT 1) AS n ON true
GROUP BY w.job, j.id, j.task, n.name, w.started_at ORDER BY w.started_at, w.job LIMIT :limit;

-- name: set_slot
INSERT INTO leasehold.slot (name, lim) VALUES (:name, :lim) ON CONFLICT (name) DO UPDATE SET lim = excluded.lim;

-- name: set_rate
-- A new limit counts at once: the old one's spacing must not hold the key longer than the new one would.
INSERT INTO leasehold.rate AS r (key, lim, spacing, burst, next_at) VALUES (:key, :lim, :spacing, :burst, :now)
ON CONFLICT (key) DO UPDATE SET lim = excluded.lim, spacing = excluded.spacing, burst = excluded.burst,
    next_at = least(r.next_at, excluded.next_at + excluded.burst * excluded.spacing * interval '1 second');

-- name: close_rate
UPDATE leasehold.rate SET closed = true,
    closed_until = coalesce(:until::timestamptz, :now + :seconds::double precision * interval '1 second'),
    closed_by = :actor, closed_reason = :reason
WHERE key = :key RETURNING key;

-- name: open_rate
UPDATE leasehold.rate SET closed = false, closed_until = NULL, closed_by = NULL, closed_reason = NULL
WHERE key = :key RETURNING key;

-- name: hold_slot
-- Only the holder of the lease may take units; more of the same slot adds up. The lease cannot end meanwhile.
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.job, l.attempt FROM anchor, LATERAL (
        SELECT q.job, q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
INSERT INTO leasehold.slot_hold AS h (name, job, attempt, units)
SELECT :name::text, job, attempt, :units::integer FROM mine
ON CONFLICT (name, job, attempt) DO UPDATE SET units = h.units + excluded.units
RETURNING units;

-- name: release_slot
DELETE FROM leasehold.slot_hold
WHERE name = :name AND job = (SELECT seq FROM leasehold.job WHERE id = :id) AND attempt = :attempt RETURNING units;

-- name: sweep_holds
-- Holds of attempts that have ended. They do not count; they only take space. A locked row is just being removed by the
-- pruner, and waiting for it, in whatever order rows come, could be a deadlock. Scalar probes: an EXISTS may be turned
-- into a join with all leases.
DELETE FROM leasehold.slot_hold WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM leasehold.slot_hold AS o WHERE o.name = :name AND coalesce(
        (SELECT 1 FROM leasehold.lease AS l WHERE l.job = o.job AND l.attempt = o.attempt),
        (SELECT 1 FROM leasehold.parked AS p WHERE p.job = o.job AND p.attempt = o.attempt AND p.state = 4)) IS NULL
    FOR UPDATE OF o SKIP LOCKED));

-- name: insert_gates
INSERT INTO leasehold.gate (id, queue, task, slots, rate_key)
SELECT r.id, r.queue, r.task, r.slots::json, r.rate_key
FROM json_to_recordset(:gates::json) AS r(id bigint, queue text, task text, slots text, rate_key text)
ON CONFLICT DO NOTHING;

-- name: make_slots
-- Limits that tasks bring along: a limit set by an operator stays.
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
