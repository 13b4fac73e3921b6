-- name: identify
SELECT file FROM pragma_database_list WHERE name = 'main';

-- name: find_ended
-- Whether jobs have ended.
SELECT j.id, EXISTS (SELECT 1 FROM leasehold_outcome AS o WHERE o.job = j.seq) AS ended
FROM leasehold_job AS j WHERE j.id IN (SELECT value FROM json_each(:ids));

-- name: insert_by_hand
-- For other languages: printed with everything but id and arguments filled in. The gate is inserted too, so that the
-- text works for every file with this schema; a repeat of an id stores nothing. Three statements, because SQLite writes
-- into one table at a time: `changes()` is whether the previous one has stored the job.
INSERT INTO leasehold_gate (id, queue, task) VALUES (:gate, :queue, :task) ON CONFLICT DO NOTHING;
INSERT INTO leasehold_job (id, gate, created_at, lease_seconds, priority, task, queue, policy, args)
VALUES (lower(:id), :gate, CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER), :lease_seconds, :priority, :task,
    :queue, :policy, json(:args))
ON CONFLICT DO NOTHING;
INSERT INTO leasehold_ready (seq, gate, priority, available_at, lease_seconds, special)
SELECT seq, gate, priority, created_at, lease_seconds, 0 FROM leasehold_job WHERE id = lower(:id) AND changes() > 0;
