-- name: lock_rollups
-- Before a pair of queue and task that is new to the totals: two workers that counted the pairs at the same time would
-- both take the last place. Held by the worker with the new pair, for the rest of a short transaction; readers pass.
LOCK TABLE leasehold.rollup IN SHARE ROW EXCLUSIVE MODE;

-- name: list_rollup_labels
SELECT DISTINCT queue, task FROM leasehold.rollup WHERE minute = to_timestamp(0);

-- name: add_rollups
-- To this minute, by the database's clock, and to the totals. In one order, so that workers never wait for each other
-- in a circle.
INSERT INTO leasehold.rollup AS t (
    minute, queue, task, outcome, runs, wait_seconds, run_seconds, wait_buckets, run_buckets)
SELECT m.minute, r.queue, r.task, r.outcome, r.runs, r.wait_seconds, r.run_seconds, r.wait_buckets, r.run_buckets
FROM (VALUES (to_timestamp(0)), (date_trunc('minute', :now::timestamptz))) AS m(minute),
    json_to_recordset(:rollups::json) AS r(queue text, task text, outcome text, runs bigint, wait_seconds float8,
        run_seconds float8, wait_buckets bigint[], run_buckets bigint[])
ORDER BY m.minute, r.queue, r.task, r.outcome
ON CONFLICT (minute, queue, task, outcome) DO UPDATE SET runs = t.runs + excluded.runs,
    wait_seconds = t.wait_seconds + excluded.wait_seconds, run_seconds = t.run_seconds + excluded.run_seconds,
    wait_buckets = ARRAY(SELECT u.a + u.b FROM unnest(t.wait_buckets, excluded.wait_buckets)
        WITH ORDINALITY AS u(a, b, place) ORDER BY u.place),
    run_buckets = ARRAY(SELECT u.a + u.b FROM unnest(t.run_buckets, excluded.run_buckets)
        WITH ORDINALITY AS u(a, b, place) ORDER BY u.place);

-- name: read_totals
SELECT queue, task, outcome, runs, wait_seconds, run_seconds, array_to_json(wait_buckets)::text AS wait_buckets,
    array_to_json(run_buckets)::text AS run_buckets
FROM leasehold.rollup WHERE minute = to_timestamp(0) ORDER BY queue, task, outcome;

-- name: list_rollups
SELECT minute, queue, task, outcome, runs, wait_seconds, run_seconds, array_to_json(wait_buckets)::text AS wait_buckets,
    array_to_json(run_buckets)::text AS run_buckets
FROM leasehold.rollup WHERE minute > :now - :age::double precision * interval '1 second' AND minute > to_timestamp(0)
  AND (:queue::text IS NULL OR queue = :queue) AND (:task::text IS NULL OR task = :task)
ORDER BY minute, queue, task, outcome;

-- name: prune_rollups
-- The totals stay.
DELETE FROM leasehold.rollup
WHERE minute > to_timestamp(0) AND minute < :now - :age::double precision * interval '1 second';

-- name: list_ready_ages
-- The first row of every priority in use behind every gate, as a claim reads it: no other rows are read. Of lanes only
-- those with a ticket.
WITH RECURSIVE open AS MATERIALIZED (SELECT id FROM leasehold.gate),
ticket_gates AS MATERIALIZED (SELECT id FROM open),
-- include: ready_groups
,
-- include: ticket_groups
SELECT g.queue, extract(epoch FROM :now - min(d.available_at))::float8 AS seconds
FROM (SELECT gate, available_at FROM plain UNION ALL SELECT gate, available_at FROM lane) AS d
JOIN leasehold.gate AS g ON g.id = d.gate WHERE d.available_at <= :now GROUP BY g.queue ORDER BY g.queue;

-- name: list_lease_ages
-- Reads the leases, which are few.
SELECT g.queue, g.task, extract(epoch FROM :now - min(l.started_at))::float8 AS oldest,
    extract(epoch FROM min(l.expires_at) - :now)::float8 AS expires_in
FROM leasehold.lease AS l, LATERAL (SELECT q.gate FROM leasehold.job AS q WHERE q.seq = l.job LIMIT 1) AS j
JOIN leasehold.gate AS g ON g.id = j.gate
GROUP BY g.queue, g.task ORDER BY g.queue, g.task;

-- name: count_open_questions
SELECT count(*) FROM (
    SELECT FROM leasehold.question WHERE closed_at IS NULL AND (expires_at IS NULL OR expires_at > :now) LIMIT :cap) AS c;
