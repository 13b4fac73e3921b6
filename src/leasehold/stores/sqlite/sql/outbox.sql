-- name: read_listeners
-- Who listens to one of these. In the transaction of a move.
SELECT name, event, task, webhook FROM leasehold_listener
WHERE event IN (SELECT value FROM json_each(:events))
  AND (seen_at IS NULL OR seen_at >= :now - CAST(round(:age * 1e6) AS INTEGER));

-- name: insert_outbox
-- Those who deliver see the commit itself.
INSERT INTO leasehold_outbox (id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, due_at)
SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.listener'), json_extract(r.value, '$.event'),
    json_extract(r.value, '$.job_id'), json_extract(r.value, '$.task'), json_extract(r.value, '$.queue'),
    json_extract(r.value, '$.attempt'), json_extract(r.value, '$.group_name'), json_extract(r.value, '$.detail'),
    json_extract(r.value, '$.data'), :now, :now
FROM json_each(:rows) AS r;
