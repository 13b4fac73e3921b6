-- part: listed_gates
-- The requested gates whose queue and task are not paused. Gates with limits are only listed: whether they are open has
-- to be counted first.
listed AS MATERIALIZED (
    SELECT g.id, g.slots IS NULL AND g.rate_key IS NULL AS plain FROM given, leasehold.gate AS g
    WHERE g.queue = ANY(given.queues) AND (given.tasks IS NULL OR g.task = ANY(given.tasks))
      AND NOT EXISTS (SELECT FROM leasehold.pause AS p
                      WHERE ((p.scope = 'queue' AND p.name = g.queue) OR (p.scope = 'task' AND p.name = g.task))
                        AND (p.until IS NULL OR p.until > :now)))

-- part: ready_groups
-- The first row of every priority in use behind the open gates: a loose index scan, one probe each, so delayed rows of
-- a higher priority are skipped, not walked.
plain AS (
    SELECT o.id AS gate, h.priority, h.available_at, h.seq
    FROM open AS o, LATERAL (SELECT p.priority, p.available_at, p.seq FROM leasehold.ready AS p
        WHERE p.gate = o.id ORDER BY p.priority DESC, p.available_at, p.seq LIMIT 1) AS h
    UNION ALL
    SELECT r.gate, h.priority, h.available_at, h.seq
    FROM plain AS r, LATERAL (SELECT p.priority, p.available_at, p.seq FROM leasehold.ready AS p
        WHERE p.gate = r.gate AND p.priority < r.priority
        ORDER BY p.priority DESC, p.available_at, p.seq LIMIT 1) AS h)

-- part: ticket_groups
-- The same over tickets, of the gates in `ticket_gates`.
lane AS (
    SELECT o.id AS gate, h.priority, h.available_at
    FROM ticket_gates AS o, LATERAL (SELECT t.priority, t.available_at
        FROM leasehold.ticket AS t WHERE t.gate = o.id ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h
    UNION ALL
    SELECT r.gate, h.priority, h.available_at
    FROM lane AS r, LATERAL (SELECT t.priority, t.available_at FROM leasehold.ticket AS t
        WHERE t.gate = r.gate AND t.priority < r.priority ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h)

-- part: later
-- When the next row that is not due yet will be due, in microseconds from now: an idle worker sleeps until then.
SELECT 'later' AS source, NULL::bigint AS gate, NULL::smallint AS priority, NULL::timestamptz AS available_at,
    (extract(epoch FROM min(d.available_at) - :now) * 1000000)::bigint AS seq
FROM (SELECT available_at FROM plain UNION ALL SELECT available_at FROM lane) AS d WHERE d.available_at > :now

-- part: take_from_groups
-- SKIP LOCKED inside each group, so that claimers spread instead of queueing; the order across groups is the queue's
-- own: priority, due time, seq. A group begins at the head that the first read found: rows claimed before leave dead
-- entries in the index until the next vacuum, and every claim would walk past all of them again.
taken AS (
    DELETE FROM leasehold.ready WHERE ctid = ANY(ARRAY(
        SELECT c.tid FROM share AS g, LATERAL (
            SELECT q.ctid AS tid, q.available_at, q.seq FROM leasehold.ready AS q
            WHERE q.gate = g.gate AND q.priority = g.priority AND (q.available_at, q.seq) >= (g.due, g.first)
              AND q.available_at <= :now
            ORDER BY q.available_at, q.seq LIMIT g.most FOR UPDATE SKIP LOCKED) AS c
        ORDER BY g.priority DESC, c.available_at, c.seq LIMIT (SELECT room FROM given)))
    RETURNING seq, gate, priority, available_at, token + 1 AS token, attempt + 1 AS attempt, lease_seconds, special)

-- part: hold_taken
-- The taken rows become leases of :worker.
held AS (
    INSERT INTO leasehold.lease (job, token, expires_at, started_at, attempt, worker, lease_seconds, special)
    SELECT seq, token, :now + lease_seconds * interval '1 second', :now, attempt,
        (SELECT o.number FROM leasehold.worker_name AS o WHERE o.name = :worker), lease_seconds, special FROM taken)

-- part: grants
-- What the worker needs, in the queue's order. Only a job with an earlier attempt can have counters. A job that was to
-- start sooner and never did has no time left, like one past its deadline. `extract` would go through numeric.
SELECT t.seq, j.id, t.token, t.attempt, j.task, j.queue, j.args, t.lease_seconds, j.policy, j.lane, j.group_name,
    CASE WHEN t.attempt = 1 AND j.start_by <= :now THEN 0 ELSE date_part('epoch', j.deadline_at - :now) END
        AS seconds_left, j.trace, coalesce(r.failures, 0) AS failures, coalesce(r.crashes, 0) AS crashes, t.special,
    date_part('epoch', :now - t.available_at) AS waited
FROM taken AS t CROSS JOIN LATERAL (SELECT * FROM leasehold.job AS q WHERE q.seq = t.seq LIMIT 1) AS j
LEFT JOIN LATERAL (
    SELECT q.failures, q.crashes FROM leasehold.failure_state AS q WHERE t.attempt > 1 AND q.job = t.seq LIMIT 1) AS r ON true
ORDER BY t.priority DESC, t.available_at, t.seq

-- name: find_due_groups
-- Which (source, gate, priority) groups have due work, best first, and which gates are open at all. Rows behind a
-- paused queue or task are not read at all. Sources: 'gate' (an open gate, no work implied), 'limited' (a gate with
-- limits), 'plain', 'lane', and 'later'.
WITH RECURSIVE given AS MATERIALIZED (SELECT :queues::text[] AS queues, :tasks::text[] AS tasks),
-- include: listed_gates
, open AS MATERIALIZED (SELECT id FROM listed WHERE plain),
ticket_gates AS MATERIALIZED (SELECT id FROM open UNION ALL SELECT 0),
-- include: ready_groups
,
-- include: ticket_groups
SELECT CASE WHEN plain THEN 'gate' ELSE 'limited' END AS source, id AS gate, NULL::smallint AS priority,
    NULL::timestamptz AS available_at, NULL::bigint AS seq FROM listed
UNION ALL SELECT 'plain', gate, priority, available_at, seq FROM plain WHERE available_at <= :now
UNION ALL SELECT 'lane', gate, priority, available_at, 0 FROM lane WHERE available_at <= :now
UNION ALL
-- include: later
;

-- name: list_claimable
-- The due jobs that a claim may meet: of each gate the first :limit plain ones, and the heads of lanes. Read only after
-- the database has refused a claim, to find the job whose row it refuses.
WITH given AS MATERIALIZED (SELECT :queues::text[] AS queues, :tasks::text[] AS tasks, :limit::integer AS room),
-- include: listed_gates
, lanes AS MATERIALIZED (
    SELECT DISTINCT k.lane FROM (SELECT id FROM listed UNION ALL SELECT 0) AS o, given, LATERAL (
        SELECT t.lane FROM leasehold.ticket AS t WHERE t.gate = o.id AND t.available_at <= :now
        ORDER BY t.priority DESC, t.available_at LIMIT greatest(given.room, 200)) AS k),
due AS MATERIALIZED (
    SELECT r.seq FROM listed AS o, given, LATERAL (
        SELECT q.seq FROM leasehold.ready AS q WHERE q.gate = o.id AND q.available_at <= :now
        ORDER BY q.priority DESC, q.available_at, q.seq LIMIT given.room) AS r
    UNION ALL
    SELECT h.seq FROM lanes AS l, LATERAL (
        SELECT p.seq, p.gate, p.available_at FROM leasehold.lane_place AS p WHERE p.lane = l.lane AND p.lane_at <= :now
        ORDER BY p.lane_at, p.seq LIMIT 1) AS h
    WHERE h.available_at <= :now AND h.gate IN (SELECT id FROM listed)
      AND NOT EXISTS (SELECT FROM leasehold.lane_hold AS b WHERE b.lane = l.lane AND b.job <> h.seq)
      AND NOT EXISTS (SELECT FROM leasehold.lane_stop AS b WHERE b.lane = l.lane))
SELECT j.id FROM due JOIN leasehold.job AS j ON j.seq = due.seq ORDER BY j.seq;

-- name: check_constraints
-- Checks at once what would only be checked at the commit.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: postpone_ready
-- In place: an insert would run the triggers of mirrors, which refuse the job.
UPDATE leasehold.ready AS p SET available_at = :now + :seconds::double precision * interval '1 second'
WHERE p.seq = (SELECT j.seq FROM leasehold.job AS j WHERE j.id = :id)
RETURNING NULL::text AS lane, p.gate, p.priority, p.available_at, p.token, p.attempt;

-- name: postpone_lane_places
-- The job keeps its place, and its lane waits.
UPDATE leasehold.lane_place AS p SET available_at = :now + :seconds::double precision * interval '1 second'
FROM leasehold.job AS j WHERE j.id = :id AND p.lane = j.lane AND p.seq = j.seq
RETURNING p.lane, p.gate, p.priority, p.available_at, p.token, p.attempt;

-- name: find_limited_groups
-- The same over gates with limits that were found open: groups of due work behind them.
WITH RECURSIVE open AS MATERIALIZED (SELECT id FROM unnest((SELECT :gates::bigint[])) AS g(id)),
ticket_gates AS MATERIALIZED (SELECT id FROM open),
-- include: ready_groups
,
-- include: ticket_groups
SELECT 'plain' AS source, gate, priority, available_at, seq FROM plain WHERE available_at <= :now
UNION ALL SELECT 'lane', gate, priority, available_at, 0 FROM lane WHERE available_at <= :now
UNION ALL
-- include: later
;

-- name: claim_idle
-- Find and take in one statement, for a worker that found nothing a moment ago: what it waits for then starts a round
-- trip earlier. Only plain jobs, and few groups of them: with lanes, or gates with limits, finding whose turn it is
-- takes a read of its own, and many groups need the shares of claim_plain. Then nothing is taken, and a row without an
-- id is returned. Its time left, if there is one, is when the next job will be due.
WITH RECURSIVE given AS MATERIALIZED (SELECT :queues::text[] AS queues, :tasks::text[] AS tasks, :limit::integer AS room),
-- include: listed_gates
, open AS MATERIALIZED (SELECT id FROM listed WHERE plain),
-- include: ready_groups
, due AS MATERIALIZED (SELECT gate, priority, available_at AS due, seq AS first FROM plain WHERE available_at <= :now),
beyond AS MATERIALIZED (
    SELECT (SELECT count(*) FROM due) > 4 OR EXISTS (SELECT FROM listed WHERE NOT plain)
        OR EXISTS (SELECT FROM (SELECT id FROM listed UNION ALL SELECT 0) AS o, LATERAL (
            SELECT FROM leasehold.ticket AS t WHERE t.gate = o.id
            ORDER BY t.priority DESC, t.available_at LIMIT 1) AS h) AS yes),
share AS MATERIALIZED (
    SELECT gate, priority, due, first, given.room AS most FROM due, given WHERE NOT (SELECT yes FROM beyond)),
-- include: take_from_groups
,
-- include: hold_taken
(
-- include: grants
)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    extract(epoch FROM min(p.available_at) - :now)::float8, NULL, NULL, NULL, NULL, NULL
FROM beyond AS b LEFT JOIN plain AS p ON NOT b.yes AND p.available_at > :now
GROUP BY b.yes HAVING b.yes OR count(p.gate) > 0;

-- name: claim_plain
-- No group is queried for more rows than it has among the first ones of all: with :limit each, many groups would lock
-- many times what is taken, and hide it from the other claimers. Twice :limit, so that a group that others are just
-- emptying does not leave the claim short. `given`: a planner that knew the values would find its plan for just these
-- the best, and make a new one for every claim.
WITH given AS MATERIALIZED (
    SELECT :gates::bigint[] AS gates, :priorities::smallint[] AS priorities, :dues::timestamptz[] AS dues,
        :firsts::bigint[] AS firsts, :limit::integer AS room),
share AS MATERIALIZED (
    SELECT g.gate, g.priority, g.due, g.first, given.room AS most
    FROM given, unnest(given.gates, given.priorities, given.dues, given.firsts) AS g(gate, priority, due, first)
    WHERE cardinality(given.gates) <= 4
    UNION ALL
    SELECT f.gate, f.priority, f.due, f.first, count(*) AS most FROM (
        SELECT g.gate, g.priority, g.due, g.first
        FROM given, unnest(given.gates, given.priorities, given.dues, given.firsts) AS g(gate, priority, due, first),
            LATERAL (
                SELECT q.available_at, q.seq FROM leasehold.ready AS q
                WHERE q.gate = g.gate AND q.priority = g.priority AND (q.available_at, q.seq) >= (g.due, g.first)
                  AND q.available_at <= :now
                ORDER BY q.available_at, q.seq LIMIT given.room) AS c
        WHERE cardinality(given.gates) > 4
        ORDER BY g.priority DESC, c.available_at, c.seq LIMIT (SELECT room * 2 FROM given)) AS f
    GROUP BY f.gate, f.priority, f.due, f.first),
-- include: take_from_groups
,
-- include: hold_taken
, used AS ( -- one with a rate alone holds nothing that its end would give back
    INSERT INTO leasehold.lease_slot (job, gate) SELECT t.seq, t.gate FROM taken AS t WHERE :limited::boolean
      AND EXISTS (SELECT 1 FROM leasehold.gate AS g WHERE g.id = t.gate AND g.slots IS NOT NULL))
-- include: grants
;

-- name: claim_shares
-- As claim_plain, from several queues in turn: the first :share of each, in its own order.
WITH given AS MATERIALIZED (
    SELECT :turns::integer[] AS turns, :gates::bigint[] AS gates, :priorities::smallint[] AS priorities,
        :dues::timestamptz[] AS dues, :firsts::bigint[] AS firsts, :share::integer AS share,
        :share::integer * cardinality(:gates::bigint[]) AS room),
share AS MATERIALIZED (
    SELECT f.gate, f.priority, f.due, f.first, count(*) AS most FROM (
        SELECT g.gate, g.priority, g.due, g.first, row_number() OVER (
            PARTITION BY g.turn ORDER BY g.priority DESC, c.available_at, c.seq) AS place
        FROM given, unnest(given.turns, given.gates, given.priorities, given.dues, given.firsts)
            AS g(turn, gate, priority, due, first), LATERAL (
                SELECT q.available_at, q.seq FROM leasehold.ready AS q
                WHERE q.gate = g.gate AND q.priority = g.priority AND (q.available_at, q.seq) >= (g.due, g.first)
                  AND q.available_at <= :now
                ORDER BY q.available_at, q.seq LIMIT given.share) AS c) AS f
    WHERE f.place <= (SELECT given.share FROM given)
    GROUP BY f.gate, f.priority, f.due, f.first),
-- include: take_from_groups
,
-- include: hold_taken
-- include: grants
;

-- name: claim_lanes
-- One statement, one snapshot. A locked ticket is dropped when its lane's head was taken, is blocked, absent or not due
-- (each of these has written, or will write, a ticket of its own), filed anew when the head belongs to another gate or
-- rank, and kept when another transaction has locked the head's row. The head or no job: never the second of the lane.
-- The CTEs are matched by ctid and lane arrays, not by joins: statistics of these tables are always wrong. How many
-- tickets a group is queried for: see claim_plain. Not from the head on, as there: tickets filed anew by a claim of a
-- higher rank, a moment ago, may be older than what the first read found. If nothing was taken, but tickets were
-- dropped, a row without an id is returned.
WITH given AS MATERIALIZED (
    SELECT :gates::bigint[] AS gates, :priorities::smallint[] AS priorities, :open::bigint[] AS open,
        :limit::integer AS room, greatest(:limit::integer, 200) AS most_tickets,
        (SELECT min(p) FROM unnest(:priorities::smallint[]) AS p) AS floor),
share AS MATERIALIZED (
    SELECT g.gate, g.priority, given.most_tickets AS most
    FROM given, unnest(given.gates, given.priorities) AS g(gate, priority)
    WHERE cardinality(given.gates) <= 4
    UNION ALL
    SELECT f.gate, f.priority, count(*) AS most FROM (
        SELECT g.gate, g.priority
        FROM given, unnest(given.gates, given.priorities) AS g(gate, priority), LATERAL (
            SELECT k.available_at FROM leasehold.ticket AS k
            WHERE k.gate = g.gate AND k.priority = g.priority AND k.available_at <= :now
            ORDER BY k.available_at LIMIT given.most_tickets) AS c
        WHERE cardinality(given.gates) > 4
        ORDER BY g.priority DESC, c.available_at LIMIT (SELECT most_tickets * 2 FROM given)) AS f
    GROUP BY f.gate, f.priority),
tickets AS MATERIALIZED (
    SELECT c.tid, c.lane, c.priority
    FROM share AS g, LATERAL (
        SELECT k.ctid AS tid, k.lane, k.priority, k.available_at FROM leasehold.ticket AS k
        WHERE k.gate = g.gate AND k.priority = g.priority AND k.available_at <= :now
        ORDER BY k.available_at LIMIT g.most FOR UPDATE SKIP LOCKED) AS c
    ORDER BY c.priority DESC, c.available_at LIMIT (SELECT most_tickets FROM given)),
lanes AS MATERIALIZED (
    -- A job that has started and is queued again holds its lane, and is its head.
    SELECT t.lane, t.tids, given.floor, h.token, h.gate, h.priority, h.is_due, h.available_at, h.lane_at, h.seq,
        coalesce(b.job <> h.seq, false) OR s.yes IS NOT NULL AS blocked
    FROM given, (SELECT lane, array_agg(tid) AS tids FROM tickets GROUP BY lane) AS t
    LEFT JOIN LATERAL (
        SELECT p.token, p.gate, p.priority, p.available_at <= :now AS is_due, p.available_at, p.lane_at, p.seq
        FROM leasehold.lane_place AS p WHERE p.lane = t.lane AND p.lane_at <= :now
        ORDER BY p.lane_at, p.seq LIMIT 1) AS h ON true
    LEFT JOIN LATERAL (
        SELECT q.job FROM leasehold.lane_hold AS q WHERE h.is_due AND q.lane = t.lane LIMIT 1) AS b ON true
    LEFT JOIN LATERAL (
        SELECT true AS yes FROM leasehold.lane_stop AS q WHERE h.is_due AND q.lane = t.lane LIMIT 1) AS s ON true),
fit AS MATERIALIZED (
    SELECT lane, lane_at, seq, token FROM lanes
    WHERE is_due AND NOT blocked AND gate = ANY((SELECT open FROM given)::bigint[]) AND priority >= floor
    ORDER BY priority DESC, available_at, seq LIMIT (SELECT room FROM given)),
heads AS MATERIALIZED (
    -- Still the row that was read, and still due.
    SELECT p.tid FROM fit AS f, LATERAL (
        SELECT q.ctid AS tid FROM leasehold.lane_place AS q
        WHERE q.lane = f.lane AND q.lane_at = f.lane_at AND q.seq = f.seq AND q.token = f.token AND q.available_at <= :now
        LIMIT 1 FOR UPDATE SKIP LOCKED) AS p),
taken AS (
    DELETE FROM leasehold.lane_place WHERE ctid = ANY(ARRAY(SELECT tid FROM heads))
    RETURNING seq, lane, lane_at, gate, priority, available_at, token + 1 AS token, attempt + 1 AS attempt, lease_seconds,
        special),
-- include: hold_taken
, holds AS ( -- the key refuses a second job of the lane, and the claim is repeated
    INSERT INTO leasehold.lane_hold (lane, job)
    SELECT lane, seq FROM taken WHERE lane_at <> to_timestamp(0) ORDER BY lane),
used AS ( -- one with a rate alone holds nothing that its end would give back
    INSERT INTO leasehold.lease_slot (job, gate) SELECT t.seq, t.gate FROM taken AS t WHERE :limited::boolean
      AND EXISTS (SELECT 1 FROM leasehold.gate AS g WHERE g.id = t.gate AND g.slots IS NOT NULL)),
filed AS (
    INSERT INTO leasehold.ticket (gate, priority, available_at, lane)
    SELECT gate, priority, available_at, lane FROM lanes
    WHERE is_due AND NOT blocked AND NOT (gate = ANY((SELECT open FROM given)::bigint[]) AND priority >= floor)),
dropped AS (
    DELETE FROM leasehold.ticket WHERE ctid = ANY(ARRAY(
        SELECT unnest(tids) FROM lanes
        WHERE is_due IS NOT TRUE OR blocked OR NOT (gate = ANY((SELECT open FROM given)::bigint[]) AND priority >= floor)
           OR lane IN (SELECT lane FROM taken)))
    RETURNING gate)
(
-- include: grants
)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM (SELECT FROM dropped LIMIT 1) AS cleared WHERE NOT EXISTS (SELECT FROM taken);

-- name: find_lane_head
-- For a claim by id: the job that is first in the lane now, and whether anything blocks the lane.
WITH head AS MATERIALIZED (
    SELECT p.seq FROM leasehold.lane_place AS p WHERE p.lane = :lane AND p.lane_at <= :now
    ORDER BY p.lane_at, p.seq LIMIT 1)
SELECT (SELECT j.id FROM leasehold.job AS j WHERE j.seq = (SELECT seq FROM head)) AS head,
    (SELECT j.id FROM leasehold.job AS j WHERE j.seq = coalesce(
        (SELECT h.job FROM leasehold.lane_hold AS h
         WHERE h.lane = :lane AND h.job IS DISTINCT FROM (SELECT seq FROM head)),
        (SELECT min(s.job) FROM leasehold.lane_stop AS s WHERE s.lane = :lane))) AS blocker;

-- name: insert_worker_name
INSERT INTO leasehold.worker_name (name) VALUES (:worker) ON CONFLICT DO NOTHING;

-- name: lock_running_cap
-- FOR UPDATE writes no new version of the row, so that thousands of calls leave nothing to vacuum.
SELECT task FROM leasehold.running_cap WHERE task = :task FOR UPDATE;

-- name: insert_running_cap
INSERT INTO leasehold.running_cap (task) VALUES (:task) ON CONFLICT DO NOTHING;

-- name: list_running_of_task
-- The running jobs of a task, the oldest first: under a lease, live or not, and orphans. Reads all leases and orphans,
-- and no other rows: finished and queued jobs of the task may be millions.
SELECT j.id, o.name AS worker, p.started_at, p.expires_at AS lease_expires_at, :now AS now,
    EXISTS (SELECT FROM leasehold.execution AS x WHERE x.job = p.job AND x.attempt = p.attempt OFFSET 0) AS has_site
FROM (
    SELECT l.job, l.attempt, l.worker, l.started_at, l.expires_at FROM leasehold.lease AS l
    UNION ALL
    SELECT k.job, k.attempt, NULL, k.started_at, NULL FROM leasehold.parked AS k WHERE k.state = 4) AS p, LATERAL (
    SELECT x.id FROM leasehold.job AS x WHERE x.seq = p.job AND x.task = :task LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT x.name FROM leasehold.worker_name AS x WHERE x.number = p.worker LIMIT 1) AS o ON true
ORDER BY p.started_at, p.job;
