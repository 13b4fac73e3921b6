-- name: insert_schedules
-- Stores the new schedules. A transaction that declares the same ones at the same time waits here and finds them.
INSERT INTO leasehold_schedule
    (name, task, args, every, cron, tz, missed, overlap, at_start, source, next_at, changed_at)
SELECT json_extract(value, '$.name'), json_extract(value, '$.task'), json_extract(value, '$.args'),
    json_extract(value, '$.every'), json_extract(value, '$.cron'), json_extract(value, '$.tz'),
    json_extract(value, '$.missed'), json_extract(value, '$.overlap'), json_extract(value, '$.at_start'),
    json_extract(value, '$.source'), json_extract(value, '$.next_at'), :now
FROM json_each(:schedules) WHERE true
ORDER BY json_extract(value, '$.name') ON CONFLICT (name) DO NOTHING;

-- name: lock_schedules
-- Locks the schedules in the order of their names, before any job.
SELECT s.*, :now AS now FROM leasehold_schedule AS s WHERE s.name IN (SELECT value FROM json_each(:names)) ORDER BY s.name;

-- name: list_schedules
-- Lists the schedules with the number of live workers that declare each. A worker that has just started may have no row
-- of its own yet.
SELECT s.*, :now AS now, (
    SELECT count(*) FROM leasehold_schedule_host AS h LEFT JOIN leasehold_worker AS w ON w.worker = h.worker
    WHERE h.schedule = s.name
      AND coalesce(w.seen_at, h.since) >= :now - CAST(round(:age * 1e6) AS INTEGER)) AS hosts
FROM leasehold_schedule AS s ORDER BY s.name;

-- name: find_schedule_hosts
-- Finds the schedules that other live workers declare as well.
SELECT DISTINCT h.schedule FROM leasehold_schedule_host AS h LEFT JOIN leasehold_worker AS w ON w.worker = h.worker
WHERE h.schedule IN (SELECT value FROM json_each(:names)) AND h.worker <> :worker AND NOT coalesce(w.draining, 0)
  AND coalesce(w.seen_at, h.since) >= :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: join_schedules
INSERT INTO leasehold_schedule_host (schedule, worker, since)
SELECT value, :worker, :now FROM json_each(:names) WHERE true ON CONFLICT (schedule, worker) DO NOTHING;

-- name: leave_schedules
DELETE FROM leasehold_schedule_host WHERE worker = :worker;

-- name: forget_schedule_hosts
-- Deletes the declarations of workers that ended without leave_schedules.
DELETE FROM leasehold_schedule_host WHERE since < :now - CAST(round(:age * 1e6) AS INTEGER)
  AND NOT EXISTS (SELECT 1 FROM leasehold_worker AS w WHERE w.worker = leasehold_schedule_host.worker
                  AND w.seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER));

-- name: change_schedule
UPDATE leasehold_schedule SET task = :task, args = :args, every = :every, cron = :cron, tz = :tz, missed = :missed,
    overlap = :overlap, at_start = :at_start, source = :source, next_at = :next_at, changed_at = :now
WHERE name = :name;

-- name: move_schedule
-- Moves a locked schedule on: the ticks before next_at have been handled.
UPDATE leasehold_schedule SET next_at = :next_at, last_at = coalesce(:last_at, last_at),
    last_job = coalesce(:last_job, last_job), passed = passed + :passed
WHERE name = :name;

-- name: pause_schedule
UPDATE leasehold_schedule SET paused = 1, paused_by = :actor, reason = :reason, changed_at = :now
WHERE name = :name RETURNING name;

-- name: resume_schedule
UPDATE leasehold_schedule SET paused = 0, paused_by = NULL, reason = NULL, next_at = :next_at, changed_at = :now
WHERE name = :name AND paused RETURNING name;

-- name: delete_schedule
DELETE FROM leasehold_schedule WHERE name = :name RETURNING name;
