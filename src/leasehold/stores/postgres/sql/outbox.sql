-- name: read_listeners
-- Who listens to one of these. In the transaction of a move, and without a lock.
SELECT name, event, task, webhook FROM leasehold.listener
WHERE event = ANY(:events::text[])
  AND (seen_at IS NULL OR seen_at >= :now - :age::double precision * interval '1 second');

-- name: insert_outbox
-- With a hint for those who deliver, which comes through with the commit.
WITH told AS (
    INSERT INTO leasehold.outbox (id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, due_at)
    SELECT r.id, r.listener, r.event, r.job_id, r.task, r.queue, r.attempt, r.group_name, r.detail, r.data::json, :now, :now
    FROM json_to_recordset(:rows::json) AS r(id text, listener text, event text, job_id uuid, task text, queue text,
        attempt integer, group_name text, detail text, data text)
    RETURNING tableoid)
SELECT pg_notify('leasehold_' || n.nspname, 'hooks')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = (SELECT tableoid FROM told LIMIT 1);
