-- name: insert_schedules
-- Stores the new schedules. A transaction that declares the same ones at the same time waits here and finds them.
INSERT INTO leasehold.schedule
    (name, task, args, every, cron, tz, missed, overlap, at_start, source, next_at, changed_at)
SELECT r.name, r.task, r.args::json, r.every, r.cron, r.tz, r.missed, r.overlap, r.at_start, r.source, r.next_at, :now
FROM json_to_recordset(:schedules::json) AS r(name text, task text, args text, every double precision, cron text, tz text,
    missed text, overlap text, at_start boolean, source text, next_at timestamptz)
ORDER BY r.name ON CONFLICT (name) DO NOTHING;

-- name: lock_schedules
-- Locks the schedules in the order of their names, before any job.
SELECT s.*, :now AS now FROM leasehold.schedule AS s WHERE s.name = ANY(:names::text[]) ORDER BY s.name FOR UPDATE;

-- name: list_schedules
-- Lists the schedules with the number of live workers that declare each. A worker that has just started may have no row
-- of its own yet.
SELECT s.*, :now AS now, (
    SELECT count(*) FROM leasehold.schedule_host AS h LEFT JOIN leasehold.worker AS w ON w.worker = h.worker
    WHERE h.schedule = s.name
      AND coalesce(w.seen_at, h.since) >= :now - :age::double precision * interval '1 second')::integer AS hosts
FROM leasehold.schedule AS s ORDER BY s.name;

-- name: find_schedule_hosts
-- Finds the schedules that other live workers declare as well.
SELECT DISTINCT h.schedule FROM leasehold.schedule_host AS h LEFT JOIN leasehold.worker AS w ON w.worker = h.worker
WHERE h.schedule = ANY(:names::text[]) AND h.worker <> :worker AND NOT coalesce(w.draining, false)
  AND coalesce(w.seen_at, h.since) >= :now - :age::double precision * interval '1 second';

-- name: join_schedules
INSERT INTO leasehold.schedule_host (schedule, worker, since) SELECT n, :worker, :now FROM unnest(:names::text[]) AS n
ON CONFLICT (schedule, worker) DO NOTHING;

-- name: leave_schedules
DELETE FROM leasehold.schedule_host WHERE worker = :worker;

-- name: forget_schedule_hosts
-- Deletes the declarations of workers that ended without leave_schedules.
DELETE FROM leasehold.schedule_host AS h WHERE h.since < :now - :age::double precision * interval '1 second'
  AND NOT EXISTS (SELECT FROM leasehold.worker AS w WHERE w.worker = h.worker
                  AND w.seen_at >= :now - :age::double precision * interval '1 second');

-- name: change_schedule
UPDATE leasehold.schedule SET task = :task, args = :args::json, every = :every, cron = :cron, tz = :tz, missed = :missed,
    overlap = :overlap, at_start = :at_start, source = :source, next_at = :next_at, changed_at = :now
WHERE name = :name;

-- name: move_schedule
-- Moves a locked schedule on: the ticks before next_at have been handled.
UPDATE leasehold.schedule SET next_at = :next_at, last_at = coalesce(:last_at, last_at),
    last_job = coalesce(:last_job::uuid, last_job), passed = passed + :passed
WHERE name = :name;

-- name: pause_schedule
UPDATE leasehold.schedule SET paused = true, paused_by = :actor, reason = :reason, changed_at = :now
WHERE name = :name RETURNING name;

-- name: resume_schedule
UPDATE leasehold.schedule SET paused = false, paused_by = NULL, reason = NULL, next_at = :next_at, changed_at = :now
WHERE name = :name AND paused RETURNING name;

-- name: delete_schedule
DELETE FROM leasehold.schedule WHERE name = :name RETURNING name;
