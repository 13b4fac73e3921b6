-- name: look
-- Which (source, gate, priority) groups have due work, best first, and which gates are open at all. A loose index
-- scan: one probe per priority in use, so delayed rows of a higher priority are skipped, not walked, and rows behind
-- a paused queue or kind are not read at all. Gates with limits are only listed: whether they are open has to be
-- counted first. Sources: 'gate' (an open gate, no work implied), 'limited' (a gate with limits), 'plain', 'lane'.
WITH RECURSIVE given AS MATERIALIZED (SELECT :queues::text[] AS queues, :kinds::text[] AS kinds),
listed AS MATERIALIZED (
    SELECT g.id, g.slots IS NULL AND g.rate_key IS NULL AS plain FROM given, leasehold.gate AS g
    WHERE g.queue = ANY(given.queues) AND (given.kinds IS NULL OR g.kind = ANY(given.kinds))
      AND NOT EXISTS (SELECT FROM leasehold.pause AS p
                      WHERE ((p.scope = 'queue' AND p.name = g.queue) OR (p.scope = 'kind' AND p.name = g.kind))
                        AND (p.until IS NULL OR p.until > :now))),
open AS MATERIALIZED (SELECT id FROM listed WHERE plain),
plain AS (
    SELECT o.id AS gate, h.priority, h.available_at
    FROM open AS o, LATERAL (SELECT j.priority, j.available_at FROM leasehold.job AS j
        WHERE j.gate = o.id AND j.lane IS NULL AND j.state = 'queued'
        ORDER BY j.priority DESC, j.available_at LIMIT 1) AS h
    UNION ALL
    SELECT r.gate, h.priority, h.available_at
    FROM plain AS r, LATERAL (SELECT j.priority, j.available_at FROM leasehold.job AS j
        WHERE j.gate = r.gate AND j.lane IS NULL AND j.state = 'queued' AND j.priority < r.priority
        ORDER BY j.priority DESC, j.available_at LIMIT 1) AS h),
lane AS (
    SELECT o.id AS gate, h.priority, h.available_at
    FROM (SELECT id FROM open UNION ALL SELECT 0) AS o, LATERAL (SELECT t.priority, t.available_at
        FROM leasehold.ticket AS t WHERE t.gate = o.id ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h
    UNION ALL
    SELECT r.gate, h.priority, h.available_at
    FROM lane AS r, LATERAL (SELECT t.priority, t.available_at FROM leasehold.ticket AS t
        WHERE t.gate = r.gate AND t.priority < r.priority ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h)
SELECT CASE WHEN plain THEN 'gate' ELSE 'limited' END AS source, id AS gate, NULL::smallint AS priority,
    NULL::timestamptz AS available_at FROM listed
UNION ALL SELECT 'plain', gate, priority, available_at FROM plain WHERE available_at <= :now
UNION ALL SELECT 'lane', gate, priority, available_at FROM lane WHERE available_at <= :now;

-- name: look_limited
-- The same over gates with limits that were found open: groups of due work behind them.
WITH RECURSIVE open AS MATERIALIZED (SELECT id FROM unnest((SELECT :gates::bigint[])) AS g(id)),
plain AS (
    SELECT o.id AS gate, h.priority, h.available_at
    FROM open AS o, LATERAL (SELECT j.priority, j.available_at FROM leasehold.job AS j
        WHERE j.gate = o.id AND j.lane IS NULL AND j.state = 'queued'
        ORDER BY j.priority DESC, j.available_at LIMIT 1) AS h
    UNION ALL
    SELECT r.gate, h.priority, h.available_at
    FROM plain AS r, LATERAL (SELECT j.priority, j.available_at FROM leasehold.job AS j
        WHERE j.gate = r.gate AND j.lane IS NULL AND j.state = 'queued' AND j.priority < r.priority
        ORDER BY j.priority DESC, j.available_at LIMIT 1) AS h),
lane AS (
    SELECT o.id AS gate, h.priority, h.available_at
    FROM open AS o, LATERAL (SELECT t.priority, t.available_at
        FROM leasehold.ticket AS t WHERE t.gate = o.id ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h
    UNION ALL
    SELECT r.gate, h.priority, h.available_at
    FROM lane AS r, LATERAL (SELECT t.priority, t.available_at FROM leasehold.ticket AS t
        WHERE t.gate = r.gate AND t.priority < r.priority ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h)
SELECT 'plain' AS source, gate, priority, available_at FROM plain WHERE available_at <= :now
UNION ALL SELECT 'lane', gate, priority, available_at FROM lane WHERE available_at <= :now;

-- name: claim_idle
-- Look and take in one statement, for a worker that has found nothing a moment ago: what it waits for then starts a round
-- trip earlier. Only plain jobs, and few groups of them: beside lanes, or gates with limits, whose turn it is takes a look
-- of its own, and for many groups the shares of claim_plain. Then nothing is taken, and the row without an id says so.
WITH RECURSIVE given AS MATERIALIZED (SELECT :queues::text[] AS queues, :kinds::text[] AS kinds, :limit::integer AS room),
listed AS MATERIALIZED (
    SELECT g.id, g.slots IS NULL AND g.rate_key IS NULL AS plain FROM given, leasehold.gate AS g
    WHERE g.queue = ANY(given.queues) AND (given.kinds IS NULL OR g.kind = ANY(given.kinds))
      AND NOT EXISTS (SELECT FROM leasehold.pause AS p
                      WHERE ((p.scope = 'queue' AND p.name = g.queue) OR (p.scope = 'kind' AND p.name = g.kind))
                        AND (p.until IS NULL OR p.until > :now))),
found AS (
    SELECT o.id AS gate, h.priority, h.available_at
    FROM listed AS o, LATERAL (SELECT j.priority, j.available_at FROM leasehold.job AS j
        WHERE j.gate = o.id AND j.lane IS NULL AND j.state = 'queued'
        ORDER BY j.priority DESC, j.available_at LIMIT 1) AS h
    WHERE o.plain
    UNION ALL
    SELECT r.gate, h.priority, h.available_at
    FROM found AS r, LATERAL (SELECT j.priority, j.available_at FROM leasehold.job AS j
        WHERE j.gate = r.gate AND j.lane IS NULL AND j.state = 'queued' AND j.priority < r.priority
        ORDER BY j.priority DESC, j.available_at LIMIT 1) AS h),
due AS MATERIALIZED (SELECT gate, priority, available_at AS due FROM found WHERE available_at <= :now),
beyond AS MATERIALIZED (
    SELECT (SELECT count(*) FROM due) > 4 OR EXISTS (SELECT FROM listed WHERE NOT plain)
        OR EXISTS (SELECT FROM (SELECT id FROM listed UNION ALL SELECT 0) AS o, LATERAL (
            SELECT FROM leasehold.ticket AS t WHERE t.gate = o.id LIMIT 1) AS h) AS yes),
taken AS (
    UPDATE leasehold.job AS j SET state = 'running', reason = NULL, lease_owner = :owner,
        lease_token = j.lease_token + 1, attempt = j.attempt + 1,
        lease_expires_at = :now + j.lease_seconds * interval '1 second',
        started_at = :now, first_started_at = coalesce(j.first_started_at, :now)
    WHERE j.ctid = ANY(ARRAY(
        SELECT c.ctid FROM due AS g, LATERAL (
            SELECT q.ctid, q.available_at, q.seq FROM leasehold.job AS q
            WHERE q.gate = g.gate AND q.priority = g.priority AND q.lane IS NULL AND q.state = 'queued'
              AND q.available_at BETWEEN g.due AND :now
            ORDER BY q.available_at, q.seq LIMIT (SELECT room FROM given) FOR UPDATE SKIP LOCKED) AS c
        WHERE NOT (SELECT yes FROM beyond)
        ORDER BY g.priority DESC, c.available_at, c.seq LIMIT (SELECT room FROM given)))
    RETURNING j.id, j.lease_token, j.attempt, j.kind, j.queue, j.args, j.lease_seconds, j.policy, j.lane, j.group_name,
        j.failures, j.crashes, j.stop_requested, j.deadline_at, j.trace, j.execution_site, j.execution_name,
        j.execution_started_at, j.priority, j.available_at, j.seq)
(SELECT id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at
FROM taken ORDER BY priority DESC, available_at, seq)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM beyond WHERE yes;

-- name: claim_plain
-- SKIP LOCKED inside each group, so that claimers spread instead of queueing; the order across groups is the queue's
-- own: priority, due time, seq. A group is asked for no more rows than it has among the first ones of all: asked for
-- :limit each, many groups would lock many times what is taken, and hide it from the other claimers. Twice :limit,
-- so that a group that others are just emptying does not leave the claim short. A group begins where the look has found
-- its head: what was claimed before leaves dead entries in the index until the next vacuum, and every claim would walk
-- past all of them again. claim_idle takes in the same way: who changes one changes both.
-- `given`: a planner that knew the values would find its plan for just these the best, and make a new one for every claim.
WITH given AS MATERIALIZED (
    SELECT :gates::bigint[] AS gates, :priorities::smallint[] AS priorities, :dues::timestamptz[] AS dues, :limit::integer AS room),
share AS MATERIALIZED (
    SELECT g.gate, g.priority, g.due, given.room AS most
    FROM given, unnest(given.gates, given.priorities, given.dues) AS g(gate, priority, due)
    WHERE cardinality(given.gates) <= 4
    UNION ALL
    SELECT f.gate, f.priority, f.due, count(*) AS most FROM (
        SELECT g.gate, g.priority, g.due
        FROM given, unnest(given.gates, given.priorities, given.dues) AS g(gate, priority, due), LATERAL (
            SELECT q.available_at, q.seq FROM leasehold.job AS q
            WHERE q.gate = g.gate AND q.priority = g.priority AND q.lane IS NULL AND q.state = 'queued'
              AND q.available_at BETWEEN g.due AND :now
            ORDER BY q.available_at, q.seq LIMIT given.room) AS c
        WHERE cardinality(given.gates) > 4
        ORDER BY g.priority DESC, c.available_at, c.seq LIMIT (SELECT room * 2 FROM given)) AS f
    GROUP BY f.gate, f.priority, f.due),
taken AS (
    UPDATE leasehold.job AS j SET state = 'running', reason = NULL, lease_owner = :owner,
        lease_token = j.lease_token + 1, attempt = j.attempt + 1,
        lease_expires_at = :now + j.lease_seconds * interval '1 second',
        started_at = :now, first_started_at = coalesce(j.first_started_at, :now)
    WHERE j.ctid = ANY(ARRAY(
        SELECT c.ctid FROM share AS g, LATERAL (
            SELECT q.ctid, q.available_at, q.seq FROM leasehold.job AS q
            WHERE q.gate = g.gate AND q.priority = g.priority AND q.lane IS NULL AND q.state = 'queued'
              AND q.available_at BETWEEN g.due AND :now
            ORDER BY q.available_at, q.seq LIMIT g.most FOR UPDATE SKIP LOCKED) AS c
        ORDER BY g.priority DESC, c.available_at, c.seq LIMIT (SELECT room FROM given)))
    RETURNING j.id, j.lease_token, j.attempt, j.kind, j.queue, j.args, j.lease_seconds, j.policy, j.lane, j.group_name,
        j.failures, j.crashes, j.stop_requested, j.deadline_at, j.trace, j.execution_site, j.execution_name,
        j.execution_started_at, j.priority, j.available_at, j.seq)
SELECT id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at
FROM taken ORDER BY priority DESC, available_at, seq;

-- name: claim_lanes
-- One statement, one snapshot. A ticket that was locked is dropped when its lane's head was taken, is blocked, absent
-- or not due (each of these has written, or will write, a ticket of its own), filed anew when the head belongs to
-- another gate or rank, and kept when the head's row is locked by somebody else. The head or nobody: never the second
-- of the lane. The CTEs meet by ctid and lane arrays, not by joins: statistics of `ticket` are always wrong. How many
-- tickets a group is asked for: see claim_plain. Not from the head on, as there: tickets that are filed anew by a claim of a
-- higher rank, a moment ago, may be older than what the look has seen.
WITH given AS MATERIALIZED (
    SELECT :gates::bigint[] AS gates, :priorities::smallint[] AS priorities, :open::bigint[] AS open, :limit::integer AS room,
        greatest(:limit::integer, 200) AS asked, (SELECT min(p) FROM unnest(:priorities::smallint[]) AS p) AS floor),
share AS MATERIALIZED (
    SELECT g.gate, g.priority, given.asked AS most
    FROM given, unnest(given.gates, given.priorities) AS g(gate, priority)
    WHERE cardinality(given.gates) <= 4
    UNION ALL
    SELECT f.gate, f.priority, count(*) AS most FROM (
        SELECT g.gate, g.priority
        FROM given, unnest(given.gates, given.priorities) AS g(gate, priority), LATERAL (
            SELECT k.available_at FROM leasehold.ticket AS k
            WHERE k.gate = g.gate AND k.priority = g.priority AND k.available_at <= :now
            ORDER BY k.available_at LIMIT given.asked) AS c
        WHERE cardinality(given.gates) > 4
        ORDER BY g.priority DESC, c.available_at LIMIT (SELECT asked * 2 FROM given)) AS f
    GROUP BY f.gate, f.priority),
t AS MATERIALIZED (
    SELECT c.tid, c.lane, c.priority
    FROM share AS g, LATERAL (
        SELECT k.ctid AS tid, k.lane, k.priority, k.available_at FROM leasehold.ticket AS k
        WHERE k.gate = g.gate AND k.priority = g.priority AND k.available_at <= :now
        ORDER BY k.available_at LIMIT g.most FOR UPDATE SKIP LOCKED) AS c
    ORDER BY c.priority DESC, c.available_at LIMIT (SELECT asked FROM given)),
l AS MATERIALIZED (
    SELECT t.lane, t.tids, given.floor,
        h.jid, h.token, h.gate, h.priority, h.due, h.available_at, h.seq, coalesce(b1.yes, b2.yes, false) AS blocked
    FROM given, (SELECT lane, array_agg(tid) AS tids FROM t GROUP BY lane) AS t
    LEFT JOIN LATERAL (
        SELECT j.ctid AS jid, j.lease_token AS token, j.gate, j.priority, j.available_at <= :now AS due,
            j.available_at, j.seq
        FROM leasehold.job AS j WHERE j.lane = t.lane AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
        ORDER BY j.lane_at, j.seq LIMIT 1) AS h ON true
    LEFT JOIN LATERAL (
        SELECT true AS yes FROM leasehold.job AS b
        WHERE h.due AND b.lane = t.lane AND b.lane IS NOT NULL AND b.lane_at = to_timestamp(0) AND b.state = 'running' LIMIT 1) AS b1 ON true
    LEFT JOIN LATERAL (
        SELECT true AS yes FROM leasehold.job AS b WHERE h.due AND b.lane = t.lane AND b.lane IS NOT NULL
          AND (b.state IN ('waiting', 'paused') OR (b.state IN ('failed', 'timed_out') AND b.halts_lane))
        LIMIT 1) AS b2 ON true),
fit AS MATERIALIZED (
    SELECT lane, jid, token FROM l
    WHERE due AND NOT blocked AND gate = ANY((SELECT open FROM given)::bigint[]) AND priority >= floor
    ORDER BY priority DESC, available_at, seq LIMIT (SELECT room FROM given)),
k AS MATERIALIZED (
    -- Still the row that was seen: claimed, halted, resolved and resumed meanwhile, it would be queued again, but no
    -- longer first.
    SELECT q.ctid AS jid FROM fit AS f JOIN leasehold.job AS q ON q.ctid = f.jid
    WHERE q.lease_token = f.token AND q.state = 'queued' AND q.available_at <= :now
    FOR UPDATE OF q SKIP LOCKED),
u AS (
    UPDATE leasehold.job AS j SET state = 'running', reason = NULL, lease_owner = :owner,
        lease_token = j.lease_token + 1, attempt = j.attempt + 1,
        lease_expires_at = :now + j.lease_seconds * interval '1 second',
        started_at = :now, first_started_at = coalesce(j.first_started_at, :now), lane_at = to_timestamp(0)
    WHERE j.ctid = ANY(ARRAY(SELECT jid FROM k))
    RETURNING j.id, j.lease_token, j.attempt, j.kind, j.queue, j.args, j.lease_seconds, j.policy, j.lane, j.group_name,
        j.failures, j.crashes, j.stop_requested, j.deadline_at, j.trace, j.execution_site, j.execution_name,
        j.execution_started_at, j.priority, j.available_at, j.seq),
filed AS (
    INSERT INTO leasehold.ticket (gate, priority, available_at, lane)
    SELECT gate, priority, available_at, lane FROM l
    WHERE due AND NOT blocked AND NOT (gate = ANY((SELECT open FROM given)::bigint[]) AND priority >= floor)),
dropped AS (
    DELETE FROM leasehold.ticket AS k USING unnest(ARRAY(
        SELECT unnest(tids) FROM l
        WHERE due IS NOT TRUE OR blocked OR NOT (gate = ANY((SELECT open FROM given)::bigint[]) AND priority >= floor)
           OR lane IN (SELECT lane FROM u))) AS done(tid)
    WHERE k.ctid = done.tid)
SELECT id, lease_token, attempt, kind, queue, args, lease_seconds, policy, lane, group_name, failures, crashes,
    stop_requested, deadline_at, trace, execution_site, execution_name, execution_started_at
FROM u ORDER BY priority DESC, available_at, seq;

-- name: find_lane_head
-- For a claim by id: the job that is first in the lane now, and whether anything blocks the lane.
SELECT (SELECT j.id FROM leasehold.job AS j
        WHERE j.lane = :lane AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
        ORDER BY j.lane_at, j.seq LIMIT 1) AS head,
    coalesce(
        (SELECT b.id FROM leasehold.job AS b
            WHERE b.lane = :lane AND b.lane IS NOT NULL AND b.lane_at = to_timestamp(0) AND b.state = 'running' LIMIT 1),
        (SELECT b.id FROM leasehold.job AS b WHERE b.lane = :lane AND b.lane IS NOT NULL
            AND (b.state IN ('waiting', 'paused') OR (b.state IN ('failed', 'timed_out') AND b.halts_lane))
            LIMIT 1)) AS blocker;
