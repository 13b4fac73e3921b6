-- name: list_open_gates
-- Gates of the queues and kinds asked for whose queue and kind are not paused, and which of them have limits besides.
SELECT g.id, g.slots IS NOT NULL OR g.rate_key IS NOT NULL AS limited FROM gate AS g
WHERE g.queue IN (SELECT value FROM json_each(:queues))
  AND (:kinds IS NULL OR g.kind IN (SELECT value FROM json_each(:kinds)))
  AND NOT EXISTS (SELECT 1 FROM pause AS p
                  WHERE ((p.scope = 'queue' AND p.name = g.queue) OR (p.scope = 'kind' AND p.name = g.kind))
                    AND (p.until IS NULL OR p.until > :now));

-- name: read_now
SELECT :now AS now;

-- name: first_plain
-- One probe of the loose index scan: the best priority below a given one in a gate, and its earliest due time.
SELECT priority, available_at FROM job INDEXED BY job_claim
WHERE gate = :gate AND priority < :below AND lane IS NULL AND state = 'queued'
ORDER BY priority DESC, available_at LIMIT 1;

-- name: first_ticket
SELECT priority, available_at FROM ticket INDEXED BY ticket_claim
WHERE gate = :gate AND priority < :below ORDER BY priority DESC, available_at LIMIT 1;

-- name: list_due
-- The due rows of one group, in the queue's order.
SELECT seq, available_at FROM job INDEXED BY job_claim
WHERE gate = :gate AND priority = :priority AND lane IS NULL AND state = 'queued' AND available_at <= :now
ORDER BY available_at, seq LIMIT :limit;

-- name: list_tickets
-- The due tickets of one group with what stands behind each: the lane's head, and whether the lane is blocked.
SELECT t.rowid AS ticket, t.lane,
    h.seq, h.gate, h.priority, h.available_at, h.available_at <= :now AS due,
    EXISTS (SELECT 1 FROM job AS b INDEXED BY job_lane_held
            WHERE b.lane = t.lane AND b.lane IS NOT NULL AND b.lane_at = 0
            AND (b.state IN ('queued', 'running', 'waiting', 'paused') OR b.halts_lane) AND b.state = 'running')
    OR EXISTS (SELECT 1 FROM job AS b INDEXED BY job_lane_halt WHERE b.lane = t.lane AND b.lane IS NOT NULL
            AND (b.state IN ('waiting', 'paused') OR (b.state IN ('failed', 'timed_out') AND b.halts_lane))) AS blocked
FROM (SELECT rowid, lane, priority, available_at FROM ticket INDEXED BY ticket_claim
      WHERE gate = :gate AND priority = :priority AND available_at <= :now
      ORDER BY available_at, rowid LIMIT :limit) AS t
LEFT JOIN job AS h ON h.seq = (
    SELECT j.seq FROM job AS j INDEXED BY job_lane
    WHERE j.lane = t.lane AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
    ORDER BY j.lane_at, j.seq LIMIT 1);

-- name: drop_tickets
DELETE FROM ticket WHERE rowid IN (SELECT value FROM json_each(:tickets));

-- name: take
-- One writer at a time, so what was read in this transaction still stands.
UPDATE job SET state = 'running', reason = NULL, lease_owner = :owner, lease_token = lease_token + 1,
    attempt = attempt + 1, lease_expires_at = :now + CAST(round(lease_seconds * 1e6) AS INTEGER),
    started_at = :now, first_started_at = coalesce(first_started_at, :now),
    lane_at = CASE WHEN lane IS NOT NULL THEN 0 END
WHERE seq IN (SELECT value FROM json_each(:rows))
RETURNING seq, id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at;

-- name: find_lane_head
-- For a claim by id: the job that is first in the lane now, and whether anything blocks the lane.
SELECT (SELECT j.id FROM job AS j
        WHERE j.lane = :lane AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
        ORDER BY j.lane_at, j.seq LIMIT 1) AS head,
    coalesce(
        (SELECT b.id FROM job AS b INDEXED BY job_lane_held
            WHERE b.lane = :lane AND b.lane IS NOT NULL AND b.lane_at = 0
            AND (b.state IN ('queued', 'running', 'waiting', 'paused') OR b.halts_lane) AND b.state = 'running' LIMIT 1),
        (SELECT b.id FROM job AS b INDEXED BY job_lane_halt WHERE b.lane = :lane AND b.lane IS NOT NULL
            AND (b.state IN ('waiting', 'paused') OR (b.state IN ('failed', 'timed_out') AND b.halts_lane))
            LIMIT 1)) AS blocker;
