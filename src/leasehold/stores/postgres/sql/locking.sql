-- name: lock_anchors
-- The common lock of all careful verbs: anchors in the order of seq. NO KEY: transactions that only keep a job from
-- being pruned, because they spend, pass. One probe per job, here and below: the planner looks up a list of keys by
-- what it assumes of the table, and it may assume that a table with a million rows is empty.
WITH found AS MATERIALIZED (
    SELECT j.seq FROM unnest(:ids::uuid[]) AS r(id), LATERAL (
        SELECT q.seq FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j ORDER BY j.seq)
SELECT j.*, (SELECT g.slots IS NOT NULL FROM leasehold.gate AS g WHERE g.id = j.gate) AS limited, :now AS now
FROM found, LATERAL (
    SELECT q.* FROM leasehold.job AS q WHERE q.seq = found.seq LIMIT 1 FOR NO KEY UPDATE) AS j;

-- name: lock_anchors_skip_locked
WITH found AS MATERIALIZED (
    SELECT j.seq FROM unnest(:ids::uuid[]) AS r(id), LATERAL (
        SELECT q.seq FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j ORDER BY j.seq)
SELECT j.*, (SELECT g.slots IS NOT NULL FROM leasehold.gate AS g WHERE g.id = j.gate) AS limited, :now AS now
FROM found, LATERAL (
    SELECT q.* FROM leasehold.job AS q WHERE q.seq = found.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS j;

-- name: probe_ready
-- Under the anchors. Claims take these rows without anchors, so the rows are locked too. All at once: a planner that
-- assumes an empty table rates the index of claims as good as the key, and would read the whole of it for every single
-- probe.
SELECT * FROM leasehold.ready WHERE seq = ANY(:seqs::bigint[]) ORDER BY seq FOR UPDATE;

-- name: probe_lane_places
-- By lane first: seq alone has no index here. All at once: a query per job would read the lane again each time.
SELECT p.* FROM leasehold.lane_place AS p
WHERE p.lane = ANY(:lanes::text[]) AND p.seq = ANY(:seqs::bigint[]) ORDER BY p.seq FOR UPDATE;

-- name: probe_leases
SELECT l.job AS seq, l.token, l.expires_at, l.started_at, l.attempt,
    (SELECT o.name FROM leasehold.worker_name AS o WHERE o.number = l.worker) AS worker, l.special, l.stop
FROM (SELECT n.seq FROM unnest(:seqs::bigint[]) AS n(seq) ORDER BY n.seq) AS r, LATERAL (
    SELECT q.* FROM leasehold.lease AS q WHERE q.job = r.seq LIMIT 1 FOR UPDATE) AS l;

-- name: probe_leases_skip_locked
SELECT l.job AS seq, l.token, l.expires_at, l.started_at, l.attempt,
    (SELECT o.name FROM leasehold.worker_name AS o WHERE o.number = l.worker) AS worker, l.special, l.stop
FROM unnest(:seqs::bigint[]) AS r(seq), LATERAL (
    SELECT q.* FROM leasehold.lease AS q WHERE q.job = r.seq LIMIT 1 FOR UPDATE SKIP LOCKED) AS l;

-- name: probe_parked
-- Rows enter and leave this place only under the anchor: nothing to lock. All at once, as for `ready`.
SELECT p.job AS seq, p.* FROM leasehold.parked AS p WHERE p.job = ANY(:seqs::bigint[]);

-- name: probe_outcomes
-- Rows leave this place only under the anchor.
SELECT p.job AS seq, p.token, p.finished_at, p.started_at, p.attempt,
    (SELECT o.name FROM leasehold.worker_name AS o WHERE o.number = p.worker) AS worker, p.state, p.special, p.result,
    p.result_ref, p.error, p.reason
FROM unnest(:seqs::bigint[]) AS r(seq), LATERAL (
    SELECT q.* FROM leasehold.outcome AS q WHERE q.job = r.seq LIMIT 1) AS p;

-- name: read_sides
-- What other tables have of these jobs besides their places; nulls where there is nothing.
SELECT j.seq, t.failures, t.crashes, t.first_started_at, t.started_at, t.available_at, t.error, t.reason, t.changed_at,
    x.attempt AS placed_in, x.site, x.name, x.started_at AS execution_started_at,
    j.lane IS NOT NULL AND EXISTS (SELECT 1 FROM leasehold.lane_hold AS h WHERE h.lane = j.lane AND h.job = j.seq) AS halts,
    (SELECT count(*) FROM leasehold.dependency AS d WHERE d.child_id = j.id AND NOT d.met)::integer AS unmet
FROM leasehold.job AS j
LEFT JOIN LATERAL (SELECT * FROM leasehold.failure_state AS s WHERE s.job = j.seq LIMIT 1) AS t ON true
LEFT JOIN LATERAL (
    SELECT * FROM leasehold.execution AS m WHERE m.job = j.seq ORDER BY m.attempt DESC LIMIT 1) AS x ON true
WHERE j.seq = ANY(:seqs::bigint[]);

-- name: find_progress
-- The jobs among these whose attempts have saved something since the last attempt that crashed.
SELECT j.seq FROM unnest(:seqs::bigint[]) AS given(seq),
    LATERAL (SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.seq = given.seq LIMIT 1) AS j
WHERE greatest(
    coalesce((SELECT max(s.attempt) FROM leasehold.step AS s WHERE s.job_id = j.id), 0),
    coalesce((SELECT c.attempt FROM leasehold.checkpoint AS c WHERE c.job_id = j.id), 0))
    > coalesce((SELECT max(a.number) FROM leasehold.attempt AS a
                WHERE a.job = j.seq AND a.ended IN ('lost', 'crashed')), 0);
