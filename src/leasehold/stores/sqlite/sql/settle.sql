-- name: settle_succeeded
-- A success stays a success under every stop flag, so the token is the whole guard. Jobs that others wait for are left
-- to the settle under the lock, which judges the others in the same transaction. The leases go next, then what the jobs
-- are tied to. Arrays [job, token, result, reference] are parsed faster than objects.
INSERT INTO leasehold_outcome (job, token, finished_at, started_at, attempt, worker, state, special, result, result_ref)
SELECT l.job, l.token, :now, l.started_at, l.attempt, l.worker, 1, l.special, json_extract(r.value, '$[2]'),
    json_extract(r.value, '$[3]')
FROM json_each(:settled) AS r CROSS JOIN leasehold_lease AS l ON l.job = json_extract(r.value, '$[0]')
WHERE l.token = json_extract(r.value, '$[1]') AND l.special < 2
RETURNING job, special, attempt;

-- name: end_leases
DELETE FROM leasehold_lease WHERE job IN (SELECT value FROM json_each(:jobs));

-- name: read_ties
SELECT j.seq AS job, j.id AS job_id, j.lane, j.group_name, j.task, j.unique_key AS key, j.unique_for_ever AS for_ever,
    j.deadline_at, j.start_by, g.slots IS NOT NULL AS limited
FROM leasehold_job AS j JOIN leasehold_gate AS g ON g.id = j.gate WHERE j.seq IN (SELECT value FROM json_each(:jobs));

-- name: read_succeeded
-- For the listeners. The deliveries of webhooks, which are jobs too, are left out.
SELECT j.id AS job_id, j.task, j.queue, o.attempt, j.group_name AS "group"
FROM leasehold_job AS j JOIN leasehold_outcome AS o ON o.job = j.seq
WHERE j.seq IN (SELECT value FROM json_each(:jobs)) AND j.task <> 'leasehold.webhook';

-- name: file_next_tickets
-- One writer at a time: what is read here is still true.
INSERT INTO leasehold_ticket (gate, priority, available_at, lane)
SELECT h.gate, h.priority, max(h.available_at, h.lane_at), h.lane
FROM json_each(:lanes) AS l CROSS JOIN leasehold_lane_place AS h ON (h.lane, h.lane_at, h.seq) = (
    SELECT p.lane, p.lane_at, p.seq FROM leasehold_lane_place AS p WHERE p.lane = l.value
    ORDER BY p.lane_at, p.seq LIMIT 1);

-- name: read_settlements
-- After a lost reply: is the lease still held by this token, and if not, did its holder settle the attempt under it?
SELECT j.id, EXISTS (SELECT 1 FROM leasehold_lease AS l WHERE l.job = j.seq AND l.token = json_extract(r.value, '$[1]'))
    AS held, coalesce(
        (SELECT o.name FROM leasehold_outcome AS p JOIN leasehold_worker_name AS o ON o.number = p.worker
         WHERE p.job = j.seq AND p.token = json_extract(r.value, '$[1]')),
        (SELECT o.name FROM leasehold_attempt AS a JOIN leasehold_worker_name AS o ON o.number = a.worker
         WHERE a.job = j.seq AND a.token = json_extract(r.value, '$[1]') AND a.settled)) AS settled_by
FROM json_each(:leases) AS r CROSS JOIN leasehold_job AS j ON j.id = json_extract(r.value, '$[0]');

-- name: insert_follow_ups
INSERT INTO leasehold_follow_up (parent_id, child_id)
SELECT json_extract(r.value, '$.parent_id'), json_extract(r.value, '$.child_id') FROM json_each(:follow_ups) AS r
WHERE true
ON CONFLICT DO NOTHING;
