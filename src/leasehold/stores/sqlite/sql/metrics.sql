-- name: lock_rollups
-- Nothing to lock: one writer at a time.
SELECT 1;

-- name: list_rollup_labels
SELECT DISTINCT queue, task FROM leasehold_rollup WHERE minute = 0;

-- name: add_rollups
-- To this minute, by the database's clock, and to the totals.
INSERT INTO leasehold_rollup AS t (
    minute, queue, task, outcome, runs, wait_seconds, run_seconds, wait_buckets, run_buckets)
SELECT m.minute, json_extract(r.value, '$.queue'), json_extract(r.value, '$.task'), json_extract(r.value, '$.outcome'),
    json_extract(r.value, '$.runs'), json_extract(r.value, '$.wait_seconds'), json_extract(r.value, '$.run_seconds'),
    json_extract(r.value, '$.wait_buckets'), json_extract(r.value, '$.run_buckets')
FROM (SELECT 0 AS minute UNION ALL SELECT :now - :now % 60000000) AS m CROSS JOIN json_each(:rollups) AS r
WHERE true
ON CONFLICT (minute, queue, task, outcome) DO UPDATE SET runs = t.runs + excluded.runs,
    wait_seconds = t.wait_seconds + excluded.wait_seconds, run_seconds = t.run_seconds + excluded.run_seconds,
    wait_buckets = (
        SELECT json_group_array(a.value + b.value) FROM json_each(t.wait_buckets) AS a
        CROSS JOIN json_each(excluded.wait_buckets) AS b ON b.key = a.key),
    run_buckets = (
        SELECT json_group_array(a.value + b.value) FROM json_each(t.run_buckets) AS a
        CROSS JOIN json_each(excluded.run_buckets) AS b ON b.key = a.key);

-- name: read_totals
SELECT queue, task, outcome, runs, wait_seconds, run_seconds, wait_buckets, run_buckets
FROM leasehold_rollup WHERE minute = 0 ORDER BY queue, task, outcome;

-- name: list_rollups
SELECT minute, queue, task, outcome, runs, wait_seconds, run_seconds, wait_buckets, run_buckets
FROM leasehold_rollup WHERE minute > max(0, :now - CAST(round(:age * 1e6) AS INTEGER))
  AND (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
ORDER BY minute, queue, task, outcome;

-- name: prune_rollups
-- Deletes old minutes; the totals stay.
DELETE FROM leasehold_rollup WHERE minute > 0 AND minute < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: list_ready_ages
-- The first row of every priority in use behind every gate, as a claim reads it: no other rows are read. Of lanes only
-- those with a ticket.
WITH RECURSIVE plain (gate, priority, due) AS (
    SELECT r.gate, r.priority, r.available_at FROM leasehold_gate AS g CROSS JOIN leasehold_ready AS r
    ON (r.gate, r.priority, r.available_at, r.seq) = (
        SELECT q.gate, q.priority, q.available_at, q.seq FROM leasehold_ready AS q WHERE q.gate = g.id
        ORDER BY q.priority DESC, q.available_at, q.seq LIMIT 1)
    UNION ALL
    SELECT r.gate, r.priority, r.available_at FROM plain AS h CROSS JOIN leasehold_ready AS r
    ON (r.gate, r.priority, r.available_at, r.seq) = (
        SELECT q.gate, q.priority, q.available_at, q.seq FROM leasehold_ready AS q
        WHERE q.gate = h.gate AND q.priority < h.priority
        ORDER BY q.priority DESC, q.available_at, q.seq LIMIT 1)),
lane (gate, priority, due) AS (
    SELECT t.gate, t.priority, t.available_at FROM leasehold_gate AS g CROSS JOIN leasehold_ticket AS t
    ON t.rowid = (
        SELECT q.rowid FROM leasehold_ticket AS q INDEXED BY leasehold_ticket_claim WHERE q.gate = g.id
        ORDER BY q.priority DESC, q.available_at LIMIT 1)
    UNION ALL
    SELECT t.gate, t.priority, t.available_at FROM lane AS h CROSS JOIN leasehold_ticket AS t
    ON t.rowid = (
        SELECT q.rowid FROM leasehold_ticket AS q INDEXED BY leasehold_ticket_claim
        WHERE q.gate = h.gate AND q.priority < h.priority ORDER BY q.priority DESC, q.available_at LIMIT 1))
SELECT g.queue, (:now - min(d.due)) / 1e6 AS seconds
FROM (SELECT gate, due FROM plain UNION ALL SELECT gate, due FROM lane) AS d
CROSS JOIN leasehold_gate AS g ON g.id = d.gate WHERE d.due <= :now GROUP BY g.queue ORDER BY g.queue;

-- name: list_lease_ages
-- Reads the leases, which are few.
SELECT g.queue, g.task, (:now - min(l.started_at)) / 1e6 AS oldest, (min(l.expires_at) - :now) / 1e6 AS expires_in
FROM leasehold_lease AS l CROSS JOIN leasehold_job AS j ON j.seq = l.job CROSS JOIN leasehold_gate AS g ON g.id = j.gate
GROUP BY g.queue, g.task ORDER BY g.queue, g.task;

-- name: count_open_questions
SELECT count(*) FROM (
    SELECT 1 FROM leasehold_question INDEXED BY leasehold_question_open
    WHERE closed_at IS NULL AND (expires_at IS NULL OR expires_at > :now) LIMIT :cap) AS c;
