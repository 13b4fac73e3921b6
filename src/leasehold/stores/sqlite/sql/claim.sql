-- name: list_unpaused_gates
-- The requested gates whose queue and task are not paused, and which of them have limits.
SELECT g.id, g.slots IS NOT NULL OR g.rate_key IS NOT NULL AS limited FROM leasehold_gate AS g
WHERE g.queue IN (SELECT value FROM json_each(:queues))
  AND (:tasks IS NULL OR g.task IN (SELECT value FROM json_each(:tasks)))
  AND NOT EXISTS (SELECT 1 FROM leasehold_pause AS p
                  WHERE ((p.scope = 'queue' AND p.name = g.queue) OR (p.scope = 'task' AND p.name = g.task))
                    AND (p.until IS NULL OR p.until > :now));

-- name: list_claimable
-- The due jobs that a claim may meet: of each gate the first :limit plain ones, and the heads of lanes. Read only after
-- the database has refused a claim, to find the job whose row it refuses.
WITH listed AS MATERIALIZED (
    SELECT g.id FROM leasehold_gate AS g
    WHERE g.queue IN (SELECT value FROM json_each(:queues))
      AND (:tasks IS NULL OR g.task IN (SELECT value FROM json_each(:tasks)))
      AND NOT EXISTS (SELECT 1 FROM leasehold_pause AS p
                      WHERE ((p.scope = 'queue' AND p.name = g.queue) OR (p.scope = 'task' AND p.name = g.task))
                        AND (p.until IS NULL OR p.until > :now)))
SELECT j.id FROM listed AS o CROSS JOIN leasehold_job AS j ON j.seq IN (
    SELECT q.seq FROM leasehold_ready AS q WHERE q.gate = o.id AND q.available_at <= :now
    ORDER BY q.priority DESC, q.available_at, q.seq LIMIT :limit)
UNION ALL
SELECT j.id FROM (
    SELECT DISTINCT t.lane FROM leasehold_ticket AS t
    WHERE (t.gate = 0 OR t.gate IN (SELECT id FROM listed)) AND t.available_at <= :now) AS l
CROSS JOIN leasehold_lane_place AS h ON (h.lane, h.lane_at, h.seq) = (
    SELECT p.lane, p.lane_at, p.seq FROM leasehold_lane_place AS p WHERE p.lane = l.lane AND p.lane_at <= :now
    ORDER BY p.lane_at, p.seq LIMIT 1)
CROSS JOIN leasehold_job AS j ON j.seq = h.seq
WHERE h.available_at <= :now AND h.gate IN (SELECT id FROM listed)
  AND NOT EXISTS (SELECT 1 FROM leasehold_lane_hold AS b WHERE b.lane = l.lane AND b.job <> h.seq)
  AND NOT EXISTS (SELECT 1 FROM leasehold_lane_stop AS b WHERE b.lane = l.lane);

-- name: check_constraints
-- Nothing is left for the commit: our connections do not enforce foreign keys.
SELECT 1;

-- name: postpone_ready
-- In place: an insert would run the triggers of mirrors, which refuse the job.
UPDATE leasehold_ready SET available_at = :now + CAST(round(:seconds * 1e6) AS INTEGER)
WHERE seq = (SELECT j.seq FROM leasehold_job AS j WHERE j.id = :id)
RETURNING NULL AS lane, gate, priority, available_at, token, attempt;

-- name: postpone_lane_places
-- The job keeps its place, and its lane waits.
UPDATE leasehold_lane_place SET available_at = :now + CAST(round(:seconds * 1e6) AS INTEGER)
WHERE (lane, seq) = (SELECT j.lane, j.seq FROM leasehold_job AS j WHERE j.id = :id)
RETURNING lane, gate, priority, available_at, token, attempt;

-- name: find_ready_groups
-- The first row of every priority in use behind these gates: a loose index scan, one probe each, so delayed rows of a
-- higher priority are skipped, not walked.
WITH RECURSIVE head (gate, priority, due, first) AS (
    SELECT r.gate, r.priority, r.available_at, r.seq FROM json_each(:gates) AS g CROSS JOIN leasehold_ready AS r
    ON (r.gate, r.priority, r.available_at, r.seq) = (
        SELECT q.gate, q.priority, q.available_at, q.seq FROM leasehold_ready AS q WHERE q.gate = g.value
        ORDER BY q.priority DESC, q.available_at, q.seq LIMIT 1)
    UNION ALL
    SELECT r.gate, r.priority, r.available_at, r.seq FROM head AS h CROSS JOIN leasehold_ready AS r
    ON (r.gate, r.priority, r.available_at, r.seq) = (
        SELECT q.gate, q.priority, q.available_at, q.seq FROM leasehold_ready AS q
        WHERE q.gate = h.gate AND q.priority < h.priority
        ORDER BY q.priority DESC, q.available_at, q.seq LIMIT 1))
SELECT gate, priority, due, first FROM head;

-- name: find_ticket_groups
-- The same over tickets.
WITH RECURSIVE head (gate, priority, due) AS (
    SELECT t.gate, t.priority, t.available_at FROM json_each(:gates) AS g CROSS JOIN leasehold_ticket AS t
    ON t.rowid = (
        SELECT q.rowid FROM leasehold_ticket AS q INDEXED BY leasehold_ticket_claim WHERE q.gate = g.value
        ORDER BY q.priority DESC, q.available_at LIMIT 1)
    UNION ALL
    SELECT t.gate, t.priority, t.available_at FROM head AS h CROSS JOIN leasehold_ticket AS t
    ON t.rowid = (
        SELECT q.rowid FROM leasehold_ticket AS q INDEXED BY leasehold_ticket_claim
        WHERE q.gate = h.gate AND q.priority < h.priority ORDER BY q.priority DESC, q.available_at LIMIT 1))
SELECT gate, priority, due FROM head;

-- name: list_due
-- The due rows of one group, in the queue's order.
SELECT seq, available_at FROM leasehold_ready WHERE gate = :gate AND priority = :priority AND available_at <= :now
ORDER BY available_at, seq LIMIT :limit;

-- name: list_tickets
-- The due tickets of one group with what is behind each: the lane's head, and whether the lane is blocked. A job that
-- has started and is queued again holds its lane, and is its head.
SELECT t.rowid AS ticket, t.lane, h.seq, h.lane_at, h.gate, h.priority, h.available_at,
    h.available_at <= :now AS is_due,
    EXISTS (SELECT 1 FROM leasehold_lane_hold AS b WHERE b.lane = t.lane AND b.job <> h.seq)
    OR EXISTS (SELECT 1 FROM leasehold_lane_stop AS b WHERE b.lane = t.lane) AS blocked
FROM (SELECT rowid, lane, priority, available_at FROM leasehold_ticket INDEXED BY leasehold_ticket_claim
      WHERE gate = :gate AND priority = :priority AND available_at <= :now
      ORDER BY available_at, rowid LIMIT :limit) AS t
LEFT JOIN leasehold_lane_place AS h ON (h.lane, h.lane_at, h.seq) = (
    SELECT p.lane, p.lane_at, p.seq FROM leasehold_lane_place AS p WHERE p.lane = t.lane AND p.lane_at <= :now
    ORDER BY p.lane_at, p.seq LIMIT 1);

-- name: drop_tickets
DELETE FROM leasehold_ticket WHERE rowid IN (SELECT value FROM json_each(:tickets));

-- name: insert_leases_of_ready
-- One writer at a time, so what was read in this transaction is still true.
INSERT INTO leasehold_lease (job, token, expires_at, started_at, attempt, worker, lease_seconds, special)
SELECT p.seq, p.token + 1, :now + CAST(round(p.lease_seconds * 1e6) AS INTEGER), :now, p.attempt + 1,
    (SELECT o.number FROM leasehold_worker_name AS o WHERE o.name = :worker), p.lease_seconds, p.special
FROM json_each(:seqs) AS r CROSS JOIN leasehold_ready AS p ON p.seq = r.value;

-- name: drop_ready
DELETE FROM leasehold_ready WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: claim_lane_heads
INSERT INTO leasehold_lease (job, token, expires_at, started_at, attempt, worker, lease_seconds, special)
SELECT p.seq, p.token + 1, :now + CAST(round(p.lease_seconds * 1e6) AS INTEGER), :now, p.attempt + 1,
    (SELECT o.number FROM leasehold_worker_name AS o WHERE o.name = :worker), p.lease_seconds, p.special
FROM json_each(:heads) AS r CROSS JOIN leasehold_lane_place AS p
    ON p.lane = json_extract(r.value, '$.lane') AND p.lane_at = json_extract(r.value, '$.lane_at')
   AND p.seq = json_extract(r.value, '$.seq');

-- name: hold_lanes
-- The key refuses a second job of a lane. A job that has started before (its lane_at is 0) holds it already.
INSERT INTO leasehold_lane_hold (lane, job)
SELECT json_extract(r.value, '$.lane'), json_extract(r.value, '$.seq') FROM json_each(:heads) AS r
WHERE json_extract(r.value, '$.lane_at') <> 0;

-- name: leave_lanes
DELETE FROM leasehold_lane_place WHERE (lane, lane_at, seq) IN (
    SELECT json_extract(value, '$.lane'), json_extract(value, '$.lane_at'), json_extract(value, '$.seq')
    FROM json_each(:heads));

-- name: use_slots
-- Only of jobs whose gate has slots: one with a rate alone holds nothing that its end would give back.
INSERT INTO leasehold_lease_slot (job, gate)
SELECT j.seq, j.gate FROM json_each(:seqs) AS r CROSS JOIN leasehold_job AS j ON j.seq = r.value
CROSS JOIN leasehold_gate AS g ON g.id = j.gate AND g.slots IS NOT NULL;

-- name: read_grants
-- What the worker needs. Only a job with an earlier attempt can have counters. A job that was to start sooner and never
-- did has no time left, like one past its deadline.
SELECT l.job AS seq, j.id, l.token, l.attempt, j.task, j.queue, j.args, l.lease_seconds, j.policy, j.lane, j.group_name,
    CASE WHEN l.attempt = 1 AND j.start_by <= :now THEN 0.0 ELSE (j.deadline_at - :now) / 1e6 END AS seconds_left, j.trace, coalesce(t.failures, 0) AS failures, coalesce(t.crashes, 0) AS crashes, l.special
FROM json_each(:seqs) AS r CROSS JOIN leasehold_lease AS l ON l.job = r.value CROSS JOIN leasehold_job AS j ON j.seq = l.job
LEFT JOIN leasehold_failure_state AS t ON l.attempt > 1 AND t.job = l.job
ORDER BY r.key;

-- name: find_lane_head
-- For a claim by id: the job that is first in the lane now, and whether anything blocks the lane.
WITH head AS MATERIALIZED (
    SELECT p.seq FROM leasehold_lane_place AS p WHERE p.lane = :lane AND p.lane_at <= :now
    ORDER BY p.lane_at, p.seq LIMIT 1)
SELECT (SELECT j.id FROM leasehold_job AS j WHERE j.seq = (SELECT seq FROM head)) AS head,
    (SELECT j.id FROM leasehold_job AS j WHERE j.seq = coalesce(
        (SELECT h.job FROM leasehold_lane_hold AS h WHERE h.lane = :lane AND h.job IS NOT (SELECT seq FROM head)),
        (SELECT min(s.job) FROM leasehold_lane_stop AS s WHERE s.lane = :lane))) AS blocker;

-- name: insert_worker_name
INSERT INTO leasehold_worker_name (name) VALUES (:worker) ON CONFLICT DO NOTHING;

-- name: lock_running_cap
-- Nothing to lock: one writer at a time.
SELECT task FROM leasehold_running_cap WHERE task = :task;

-- name: insert_running_cap
INSERT INTO leasehold_running_cap (task) VALUES (:task) ON CONFLICT DO NOTHING;

-- name: list_running_of_task
-- The running jobs of a task, the oldest first: under a lease, live or not, and orphans. Reads all leases and orphans,
-- and no other rows: finished and queued jobs of the task may be millions.
SELECT j.id, o.name AS worker, p.started_at, p.expires_at AS lease_expires_at, :now AS now,
    EXISTS (SELECT 1 FROM leasehold_execution AS x WHERE x.job = p.job AND x.attempt = p.attempt) AS has_site FROM (
    SELECT l.job, l.attempt, l.worker, l.started_at, l.expires_at FROM leasehold_lease AS l
    UNION ALL
    SELECT k.job, k.attempt, NULL, k.started_at, NULL FROM leasehold_parked AS k WHERE k.state = 4) AS p
CROSS JOIN leasehold_job AS j ON j.seq = p.job AND j.task = :task LEFT JOIN leasehold_worker_name AS o ON o.number = p.worker
ORDER BY p.started_at, p.job;
