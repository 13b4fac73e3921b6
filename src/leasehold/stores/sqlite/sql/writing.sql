-- name: delete_ready
-- The caller counts the rows that leave a place: if there are fewer than moves, nothing is written at all.
DELETE FROM leasehold_ready WHERE (seq, token) IN (
    SELECT json_extract(value, '$.seq'), json_extract(value, '$.token') FROM json_each(:rows)) RETURNING seq;

-- name: delete_leases
DELETE FROM leasehold_lease WHERE (job, token) IN (
    SELECT json_extract(value, '$.seq'), json_extract(value, '$.token') FROM json_each(:rows)) RETURNING job;

-- name: delete_parked
DELETE FROM leasehold_parked WHERE (job, token) IN (
    SELECT json_extract(value, '$.seq'), json_extract(value, '$.token') FROM json_each(:rows)) RETURNING job;

-- name: delete_outcomes
DELETE FROM leasehold_outcome WHERE (job, token) IN (
    SELECT json_extract(value, '$.seq'), json_extract(value, '$.token') FROM json_each(:rows)) RETURNING job;

-- name: delete_lane_places
DELETE FROM leasehold_lane_place WHERE (lane, lane_at, seq, token) IN (
    SELECT json_extract(value, '$.lane'), json_extract(value, '$.lane_at'), json_extract(value, '$.seq'),
        json_extract(value, '$.token') FROM json_each(:rows)) RETURNING seq;

-- name: insert_ready
INSERT INTO leasehold_ready (seq, gate, priority, available_at, token, attempt, lease_seconds, special)
SELECT json_extract(r.value, '$.seq'), json_extract(r.value, '$.gate'), json_extract(r.value, '$.priority'),
    json_extract(r.value, '$.available_at'), json_extract(r.value, '$.token'), json_extract(r.value, '$.attempt'),
    json_extract(r.value, '$.lease_seconds'), json_extract(r.value, '$.special')
FROM json_each(:rows) AS r;

-- name: insert_lane_places
INSERT INTO leasehold_lane_place (seq, lane, lane_at, gate, priority, available_at, token, attempt, lease_seconds, special)
SELECT json_extract(r.value, '$.seq'), json_extract(r.value, '$.lane'), json_extract(r.value, '$.lane_at'),
    json_extract(r.value, '$.gate'), json_extract(r.value, '$.priority'), json_extract(r.value, '$.available_at'),
    json_extract(r.value, '$.token'), json_extract(r.value, '$.attempt'), json_extract(r.value, '$.lease_seconds'),
    json_extract(r.value, '$.special')
FROM json_each(:rows) AS r;

-- name: insert_leases
INSERT INTO leasehold_lease (job, token, expires_at, started_at, attempt, worker, lease_seconds, special, stop)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.token'), json_extract(r.value, '$.expires_at'),
    json_extract(r.value, '$.started_at'), json_extract(r.value, '$.attempt'), (SELECT o.number FROM leasehold_worker_name
    AS o WHERE o.name = json_extract(r.value, '$.worker')), json_extract(r.value, '$.lease_seconds'),
    json_extract(r.value, '$.special'), json_extract(r.value, '$.stop')
FROM json_each(:rows) AS r;

-- name: insert_parked
INSERT INTO leasehold_parked (job, state, token, attempt, special, since, stop, held, unmet, lane_at, started_at, reason)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.state'), json_extract(r.value, '$.token'),
    json_extract(r.value, '$.attempt'), json_extract(r.value, '$.special'), json_extract(r.value, '$.since'),
    json_extract(r.value, '$.stop'), json_extract(r.value, '$.held'), json_extract(r.value, '$.unmet'),
    json_extract(r.value, '$.lane_at'), json_extract(r.value, '$.started_at'), json_extract(r.value, '$.reason')
FROM json_each(:rows) AS r;

-- name: insert_outcomes
INSERT INTO leasehold_outcome (job, token, finished_at, started_at, attempt, worker, state, special, result, result_ref, error, reason)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.token'), json_extract(r.value, '$.finished_at'),
    json_extract(r.value, '$.started_at'), json_extract(r.value, '$.attempt'), (SELECT o.number FROM leasehold_worker_name
    AS o WHERE o.name = json_extract(r.value, '$.worker')), json_extract(r.value, '$.state'), json_extract(r.value,
    '$.special'), json_extract(r.value, '$.result'), json_extract(r.value, '$.result_ref'), json_extract(r.value,
    '$.error'), json_extract(r.value, '$.reason')
FROM json_each(:rows) AS r;

-- name: update_leases
-- A stop flag, or a raised `special`. In place: a renewal that waits for the row must find it.
UPDATE leasehold_lease AS l SET stop = json_extract(r.value, '$.stop'), special = json_extract(r.value, '$.special')
FROM json_each(:rows) AS r WHERE l.job = json_extract(r.value, '$.job') AND l.token = json_extract(r.value, '$.token');

-- name: update_arguments
-- The one column of `job` that ever changes.
UPDATE leasehold_job AS j SET args = json_extract(r.value, '$.args')
FROM json_each(:rows) AS r WHERE j.seq = json_extract(r.value, '$.seq');

-- name: write_failure_states
INSERT INTO leasehold_failure_state (job, failures, crashes, first_started_at, started_at, available_at, error, reason, changed_at)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.failures'), json_extract(r.value, '$.crashes'),
    json_extract(r.value, '$.first_started_at'), json_extract(r.value, '$.started_at'), json_extract(r.value,
    '$.available_at'), json_extract(r.value, '$.error'), json_extract(r.value, '$.reason'), :now
FROM json_each(:rows) AS r WHERE true
ON CONFLICT (job) DO UPDATE SET failures = excluded.failures, crashes = excluded.crashes, first_started_at = excluded.first_started_at,
    started_at = excluded.started_at, available_at = excluded.available_at, error = excluded.error, reason =
    excluded.reason, changed_at = excluded.changed_at;

-- name: insert_attempts
-- An attempt that is stored already (it went back to the queue before the job ended there) stays as it is.
INSERT INTO leasehold_attempt (job, token, number, worker, settled, started_at, ended_at, ended, error)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.token'), json_extract(r.value, '$.number'), (SELECT
    o.number FROM leasehold_worker_name AS o WHERE o.name = json_extract(r.value, '$.worker')), json_extract(r.value,
    '$.settled'), json_extract(r.value, '$.started_at'), json_extract(r.value, '$.ended_at'), json_extract(r.value,
    '$.ended'), json_extract(r.value, '$.error')
FROM json_each(:rows) AS r WHERE true
ON CONFLICT (job, token) DO NOTHING;

-- name: drop_time_limits
DELETE FROM leasehold_time_limit WHERE (job, what) IN (
    SELECT json_extract(value, '$.job'), json_extract(value, '$.what') FROM json_each(:rows));

-- name: insert_time_limits
INSERT INTO leasehold_time_limit (job, what, due_at)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.what'), json_extract(r.value, '$.due_at')
FROM json_each(:rows) AS r WHERE true
ON CONFLICT DO NOTHING;

-- name: drop_lease_slots
DELETE FROM leasehold_lease_slot WHERE job IN (SELECT json_extract(value, '$.job') FROM json_each(:rows));

-- name: insert_lease_slots
INSERT INTO leasehold_lease_slot (job, gate)
SELECT json_extract(r.value, '$.job'), json_extract(r.value, '$.gate')
FROM json_each(:rows) AS r;

-- name: drop_lane_holds
DELETE FROM leasehold_lane_hold WHERE (lane, job) IN (
    SELECT json_extract(value, '$.lane'), json_extract(value, '$.job') FROM json_each(:rows));

-- name: insert_lane_holds
-- In the order of lanes. The key refuses a second job in a lane, and the transaction is repeated.
INSERT INTO leasehold_lane_hold (lane, job)
SELECT json_extract(r.value, '$.lane'), json_extract(r.value, '$.job') FROM json_each(:rows) AS r;

-- name: drop_lane_stops
DELETE FROM leasehold_lane_stop WHERE (lane, job) IN (
    SELECT json_extract(value, '$.lane'), json_extract(value, '$.job') FROM json_each(:rows));

-- name: insert_lane_stops
INSERT INTO leasehold_lane_stop (lane, job)
SELECT json_extract(r.value, '$.lane'), json_extract(r.value, '$.job')
FROM json_each(:rows) AS r;

-- name: drop_keys
DELETE FROM leasehold_unique_key WHERE (task, key, job_id) IN (
    SELECT json_extract(value, '$.task'), json_extract(value, '$.key'), json_extract(value, '$.job_id') FROM json_each(:rows));

-- name: insert_history
INSERT INTO leasehold_history (job_id, at, event, from_state, to_state, token, attempt, actor, detail)
SELECT json_extract(r.value, '$.job_id'), :now, json_extract(r.value, '$.event'), json_extract(r.value, '$.from_state'),
    json_extract(r.value, '$.to_state'), json_extract(r.value, '$.token'), json_extract(r.value, '$.attempt'),
    json_extract(r.value, '$.actor'), json_extract(r.value, '$.detail')
FROM json_each(:entries) AS r;

-- name: insert_tickets
-- A ticket of gate 0 is for a head that is not known for sure; its rank is that of the job that seems to be next: under
-- the rank of the job that left, a higher head would be checked too late.
INSERT INTO leasehold_ticket (gate, priority, available_at, lane)
SELECT json_extract(r.value, '$.gate'),
    coalesce((SELECT p.priority FROM leasehold_lane_place AS p
              WHERE json_extract(r.value, '$.gate') = 0 AND p.lane = json_extract(r.value, '$.lane') AND p.lane_at <= :now
              ORDER BY p.lane_at, p.seq LIMIT 1), json_extract(r.value, '$.priority')),
    json_extract(r.value, '$.available_at'), json_extract(r.value, '$.lane')
FROM json_each(:tickets) AS r;

-- name: bump_groups
-- In the order of names, and after everything else. An INSERT that always meets the row that is there: with statistics
-- SQLite may reverse the join of an UPDATE, and go through all groups.
INSERT INTO leasehold_job_group (name, live)
SELECT g.name, json_extract(r.value, '$.live')
FROM json_each(:groups) AS r CROSS JOIN leasehold_job_group AS g ON g.name = json_extract(r.value, '$.name') WHERE true
ON CONFLICT (name) DO UPDATE SET version = version + 1, live = live + excluded.live
RETURNING name, live, version;

-- name: read_listeners
-- The listeners to these events. In the transaction of a move.
SELECT name, event, task, webhook FROM leasehold_listener
WHERE event IN (SELECT value FROM json_each(:events))
  AND (seen_at IS NULL OR seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER));

-- name: insert_outbox
-- The hook dispatchers see the commit itself.
INSERT INTO leasehold_outbox (id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, due_at)
SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.listener'), json_extract(r.value, '$.event'),
    json_extract(r.value, '$.job_id'), json_extract(r.value, '$.task'), json_extract(r.value, '$.queue'),
    json_extract(r.value, '$.attempt'), json_extract(r.value, '$.group_name'), json_extract(r.value, '$.detail'),
    json_extract(r.value, '$.data'), :now, :now
FROM json_each(:rows) AS r;
