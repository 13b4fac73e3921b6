-- name: store_now
SELECT :now AS now;

-- name: count_by_queue
-- What is not over yet, or wants somebody's attention. Each part is capped and reads an index of its own.
SELECT queue, kind, state, count(*) AS jobs FROM (
    SELECT * FROM (SELECT queue, kind, state FROM job WHERE lane IS NULL AND state = 'queued' LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE lane IS NOT NULL AND state = 'queued' LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE lease_owner IS NOT NULL LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE state = 'pending' LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE state = 'waiting' LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE state = 'paused' LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE state = 'failed' LIMIT :cap)
    UNION ALL SELECT * FROM (SELECT queue, kind, state FROM job WHERE state = 'timed_out' LIMIT :cap)) AS capped
GROUP BY queue, kind, state ORDER BY queue, kind, state;

-- name: list_stuck_lanes
-- A lane that nothing blocks, whose head is due, and that no ticket speaks for. There must never be one.
SELECT h.lane, h.id FROM (
    SELECT j.lane, j.id, j.available_at, row_number() OVER (PARTITION BY j.lane ORDER BY j.lane_at, j.seq) AS place
    FROM job AS j WHERE j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now) AS h
WHERE h.place = 1 AND h.available_at <= :now
  AND NOT EXISTS (SELECT 1 FROM job AS b WHERE b.lane = h.lane AND b.lane IS NOT NULL AND b.lane_at = 0
            AND (b.state IN ('queued', 'running', 'waiting', 'paused') OR b.halts_lane) AND b.state = 'running')
  AND NOT EXISTS (SELECT 1 FROM job AS b WHERE b.lane = h.lane AND b.lane IS NOT NULL
        AND (b.state IN ('waiting', 'paused') OR (b.state IN ('failed', 'timed_out') AND b.halts_lane)))
  AND h.lane NOT IN (SELECT t.lane FROM ticket AS t WHERE t.available_at <= :now)
ORDER BY h.lane LIMIT :limit;

-- name: list_stuck_children
-- Pending without a hold, and nobody whom it waits for can still end. There must never be one.
SELECT j.id FROM job AS j WHERE j.state = 'pending' AND NOT j.held AND NOT EXISTS (
    SELECT 1 FROM dependency AS d JOIN job AS p ON p.id = d.parent_id
    WHERE d.child_id = j.id AND NOT d.met AND p.state IN ('pending', 'queued', 'running', 'waiting', 'paused'))
ORDER BY j.id LIMIT :limit;

-- name: list_long_expired
-- Leases that ran out so long ago that somebody should have taken the job over.
SELECT id, lease_owner FROM job
WHERE lease_owner IS NOT NULL AND lease_expires_at < :now - CAST(round(:age * 1e6) AS INTEGER) LIMIT :limit;

-- name: list_definitions
-- Every table, index and constraint that is there, as text that names them.
SELECT sql AS definition FROM sqlite_master WHERE sql IS NOT NULL;
