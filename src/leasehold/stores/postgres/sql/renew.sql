-- name: renew
-- The token alone says "mine"; the expiry is not asked, so a late renewal that nobody has fenced still counts. Whatever
-- somebody has locked is passed over and asked for again by itself: one locked job must not cost the others their
-- leases. A probe a lease, by its key: whatever the statistics say.
WITH mine AS MATERIALIZED (
    SELECT l.tid, j.id FROM unnest(:leases.ids::uuid[], :leases.tokens::bigint[]) AS r(id, token), LATERAL (
        SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j, LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lease AS q WHERE q.job = j.seq AND q.token = r.token
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS l)
UPDATE leasehold.lease AS l SET expires_at = :now + l.lease_seconds * interval '1 second'
FROM mine AS m WHERE l.ctid = ANY(ARRAY(SELECT tid FROM mine)) AND l.ctid = m.tid
RETURNING m.id, l.stop;

-- name: find_leases
-- Held by these tokens, locked or not.
SELECT j.id, l.stop FROM unnest(:leases.ids::uuid[], :leases.tokens::bigint[]) AS r(id, token), LATERAL (
    SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j, LATERAL (
    SELECT q.stop FROM leasehold.lease AS q WHERE q.job = j.seq AND q.token = r.token LIMIT 1) AS l;

-- name: read_flags
-- A probe a lease, by its key.
SELECT l.job, l.stop FROM unnest(:leases.jobs::bigint[], :leases.tokens::bigint[]) AS r(job, token), LATERAL (
    SELECT q.job, q.stop FROM leasehold.lease AS q WHERE q.job = r.job AND q.token = r.token LIMIT 1) AS l
WHERE l.stop <> 0;

-- name: place_execution
-- Stored under the fence before the start: an attempt without a row has no execution anywhere.
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.job, l.attempt FROM anchor, LATERAL (
        SELECT q.job, q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
INSERT INTO leasehold.execution (job, attempt, site, name, placed_at)
SELECT job, attempt, :site, :name, :now FROM mine
ON CONFLICT (job, attempt) DO UPDATE SET site = excluded.site, name = excluded.name, placed_at = excluded.placed_at,
    started_at = NULL
RETURNING job;

-- name: mark_started
WITH anchor AS MATERIALIZED (SELECT seq FROM leasehold.job WHERE id = :id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT l.job, l.attempt FROM anchor, LATERAL (
        SELECT q.job, q.attempt FROM leasehold.lease AS q WHERE q.job = anchor.seq AND q.token = :token
        LIMIT 1 FOR KEY SHARE) AS l)
UPDATE leasehold.execution AS x SET started_at = :now FROM mine
WHERE x.job = mine.job AND x.attempt = mine.attempt RETURNING x.job;
