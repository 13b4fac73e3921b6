-- name: lock_anchors
-- One writer at a time: nothing is locked here, what is read in this transaction stays true.
SELECT j.*, g.slots IS NOT NULL AS limited, :now AS now FROM leasehold_job AS j JOIN leasehold_gate AS g ON g.id = j.gate
WHERE j.id IN (SELECT value FROM json_each(:ids)) ORDER BY j.seq;

-- name: lock_anchors_skip_locked
SELECT j.*, g.slots IS NOT NULL AS limited, :now AS now FROM leasehold_job AS j JOIN leasehold_gate AS g ON g.id = j.gate
WHERE j.id IN (SELECT value FROM json_each(:ids)) ORDER BY j.seq;

-- name: probe_ready
SELECT * FROM leasehold_ready WHERE seq IN (SELECT value FROM json_each(:seqs)) ORDER BY seq;

-- name: probe_lane_places
-- By lane first: seq alone has no index here.
SELECT p.* FROM leasehold_lane_place AS p
WHERE p.lane IN (SELECT value FROM json_each(:lanes)) AND p.seq IN (SELECT value FROM json_each(:seqs)) ORDER BY p.seq;

-- name: probe_leases
SELECT l.job AS seq, l.token, l.expires_at AS expires_at, l.started_at, l.attempt, o.name AS worker, l.special, l.stop
FROM leasehold_lease AS l LEFT JOIN leasehold_worker_name AS o ON o.number = l.worker
WHERE l.job IN (SELECT value FROM json_each(:seqs)) ORDER BY l.job;

-- name: probe_leases_skip_locked
SELECT l.job AS seq, l.token, l.expires_at AS expires_at, l.started_at, l.attempt, o.name AS worker, l.special, l.stop
FROM leasehold_lease AS l LEFT JOIN leasehold_worker_name AS o ON o.number = l.worker
WHERE l.job IN (SELECT value FROM json_each(:seqs)) ORDER BY l.job;

-- name: probe_parked
SELECT p.job AS seq, p.* FROM leasehold_parked AS p WHERE p.job IN (SELECT value FROM json_each(:seqs)) ORDER BY p.job;

-- name: probe_outcomes
SELECT p.job AS seq, p.token, p.finished_at, p.started_at, p.attempt, o.name AS worker, p.state, p.special, p.result,
    p.result_ref, p.error, p.reason
FROM leasehold_outcome AS p LEFT JOIN leasehold_worker_name AS o ON o.number = p.worker
WHERE p.job IN (SELECT value FROM json_each(:seqs)) ORDER BY p.job;

-- name: read_sides
-- What other tables have of these jobs besides their places; nulls where there is nothing.
SELECT j.seq, t.failures, t.crashes, t.first_started_at, t.started_at, t.available_at, t.error, t.reason, t.changed_at,
    x.attempt AS placed_in, x.site, x.name, x.started_at AS execution_started_at,
    j.lane IS NOT NULL AND EXISTS (SELECT 1 FROM leasehold_lane_hold AS h WHERE h.lane = j.lane AND h.job = j.seq) AS halts,
    (SELECT count(*) FROM leasehold_dependency AS d WHERE d.child_id = j.id AND NOT d.met) AS unmet
FROM leasehold_job AS j LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
LEFT JOIN leasehold_execution AS x
    ON x.job = j.seq AND x.attempt = (SELECT max(m.attempt) FROM leasehold_execution AS m WHERE m.job = j.seq)
WHERE j.seq IN (SELECT value FROM json_each(:seqs));

-- name: find_progress
-- The jobs among these whose attempts have saved something since the last attempt that crashed.
SELECT j.seq FROM leasehold_job AS j
WHERE j.seq IN (SELECT value FROM json_each(:seqs)) AND max(
    coalesce((SELECT max(s.attempt) FROM leasehold_step AS s WHERE s.job_id = j.id), 0),
    coalesce((SELECT c.attempt FROM leasehold_checkpoint AS c WHERE c.job_id = j.id), 0))
    > coalesce((SELECT max(a.number) FROM leasehold_attempt AS a
                WHERE a.job = j.seq AND a.ended IN ('lost', 'crashed')), 0);
