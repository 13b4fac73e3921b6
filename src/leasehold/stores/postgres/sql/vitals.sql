-- name: store_now
SELECT :now AS now;

-- name: count_by_queue
-- What is not over yet, or wants somebody's attention. Each part is capped and reads an index of its own.
SELECT queue, kind, state, count(*) AS jobs FROM (
    (SELECT queue, kind, state FROM leasehold.job WHERE lane IS NULL AND state = 'queued' LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE lane IS NOT NULL AND state = 'queued' LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE lease_owner IS NOT NULL LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE state = 'pending' LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE state = 'waiting' LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE state = 'paused' LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE state = 'failed' LIMIT :cap)
    UNION ALL (SELECT queue, kind, state FROM leasehold.job WHERE state = 'timed_out' LIMIT :cap)) AS capped
GROUP BY queue, kind, state ORDER BY queue, kind, state;

-- name: list_stuck_lanes
-- A lane that nothing blocks, whose head is due, and that no ticket speaks for. There must never be one.
SELECT h.lane, h.id FROM (
    SELECT j.lane, j.id, j.available_at, row_number() OVER (PARTITION BY j.lane ORDER BY j.lane_at, j.seq) AS place
    FROM leasehold.job AS j WHERE j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now) AS h
WHERE h.place = 1 AND h.available_at <= :now
  AND NOT EXISTS (SELECT 1 FROM leasehold.job AS b WHERE b.lane = h.lane AND b.lane IS NOT NULL AND b.lane_at = to_timestamp(0) AND b.state = 'running')
  AND NOT EXISTS (SELECT 1 FROM leasehold.job AS b WHERE b.lane = h.lane AND b.lane IS NOT NULL
        AND (b.state IN ('waiting', 'paused') OR (b.state IN ('failed', 'timed_out') AND b.halts_lane)))
  AND h.lane NOT IN (SELECT t.lane FROM leasehold.ticket AS t WHERE t.available_at <= :now)
ORDER BY h.lane LIMIT :limit;

-- name: list_stuck_children
-- Pending without a hold, and nobody whom it waits for can still end. There must never be one.
SELECT j.id FROM leasehold.job AS j WHERE j.state = 'pending' AND NOT j.held AND NOT EXISTS (
    SELECT 1 FROM leasehold.dependency AS d JOIN leasehold.job AS p ON p.id = d.parent_id
    WHERE d.child_id = j.id AND NOT d.met AND p.state IN ('pending', 'queued', 'running', 'waiting', 'paused'))
ORDER BY j.id LIMIT :limit;

-- name: list_long_expired
-- Leases that ran out so long ago that somebody should have taken the job over.
SELECT id, lease_owner FROM leasehold.job
WHERE lease_owner IS NOT NULL AND lease_expires_at < :now - :age::double precision * interval '1 second' LIMIT :limit;

-- name: list_definitions
-- Every table, index and constraint that is there, as text that names them. An index that failed to build is not.
SELECT 'CREATE TABLE ' || c.relname AS definition FROM pg_class AS c
WHERE c.relkind = 'r' AND c.relnamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass)
UNION ALL
SELECT 'CREATE INDEX ' || c.relname FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE i.indisvalid AND c.relnamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass)
UNION ALL
SELECT 'CONSTRAINT ' || k.conname FROM pg_constraint AS k
WHERE k.connamespace = (SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass);
