-- name: lock_anchors
-- The meeting point of all careful verbs: anchors in the order of seq. NO KEY: those who only keep a job from being
-- pruned, because they spend, pass.
SELECT j.*, g.slots IS NOT NULL AS limited, :now AS now FROM leasehold.job AS j JOIN leasehold.gate AS g ON g.id = j.gate
WHERE j.id = ANY(:ids::uuid[]) ORDER BY j.seq FOR NO KEY UPDATE OF j;

-- name: lock_free_anchors
SELECT j.*, g.slots IS NOT NULL AS limited, :now AS now FROM leasehold.job AS j JOIN leasehold.gate AS g ON g.id = j.gate
WHERE j.id = ANY(:ids::uuid[]) ORDER BY j.seq FOR NO KEY UPDATE OF j SKIP LOCKED;

-- name: probe_ready
-- Under the anchors. Claims take these rows without them, so they are locked too.
SELECT * FROM leasehold.ready WHERE seq = ANY(:seqs::bigint[]) ORDER BY seq FOR UPDATE;

-- name: probe_lane_places
-- By lane first: seq alone has no index here.
SELECT p.* FROM leasehold.lane_place AS p
WHERE p.lane = ANY(:lanes::text[]) AND p.seq = ANY(:seqs::bigint[]) ORDER BY p.seq FOR UPDATE;

-- name: probe_leases
SELECT l.job AS seq, l.token, l.expires_at, l.started_at, l.attempt, o.name AS owner, l.special, l.stop
FROM leasehold.lease AS l LEFT JOIN leasehold.owner AS o ON o.number = l.owner
WHERE l.job = ANY(:seqs::bigint[]) ORDER BY l.job FOR UPDATE OF l;

-- name: probe_free_leases
SELECT l.job AS seq, l.token, l.expires_at, l.started_at, l.attempt, o.name AS owner, l.special, l.stop
FROM leasehold.lease AS l LEFT JOIN leasehold.owner AS o ON o.number = l.owner
WHERE l.job = ANY(:seqs::bigint[]) ORDER BY l.job FOR UPDATE OF l SKIP LOCKED;

-- name: probe_parked
-- Into this place and out of it only under the anchor: nothing to lock.
SELECT p.job AS seq, p.* FROM leasehold.parked AS p WHERE p.job = ANY(:seqs::bigint[]) ORDER BY p.job;

-- name: probe_outcomes
-- Out of this place only under the anchor.
SELECT p.job AS seq, p.token, p.finished_at, p.started_at, p.attempt, o.name AS owner, p.state, p.special, p.result,
    p.result_ref, p.error, p.reason
FROM leasehold.outcome AS p LEFT JOIN leasehold.owner AS o ON o.number = p.owner
WHERE p.job = ANY(:seqs::bigint[]) ORDER BY p.job;

-- name: read_sides
-- What stands beside the places of these jobs; nulls where there is nothing.
SELECT j.seq, t.failures, t.crashes, t.first_started_at, t.started_at, t.available_at, t.error, t.reason,
    x.attempt AS placed_in, x.site, x.name, x.started_at AS execution_started_at,
    j.lane IS NOT NULL AND EXISTS (SELECT 1 FROM leasehold.lane_hold AS h WHERE h.lane = j.lane AND h.job = j.seq) AS halts,
    (SELECT count(*) FROM leasehold.dependency AS d WHERE d.child_id = j.id AND NOT d.met)::integer AS unmet
FROM leasehold.job AS j
LEFT JOIN LATERAL (SELECT * FROM leasehold.trouble AS s WHERE s.job = j.seq LIMIT 1) AS t ON true
LEFT JOIN LATERAL (
    SELECT * FROM leasehold.execution AS m WHERE m.job = j.seq ORDER BY m.attempt DESC LIMIT 1) AS x ON true
WHERE j.seq = ANY(:seqs::bigint[]);
