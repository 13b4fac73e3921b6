-- name: insert_listeners
INSERT INTO leasehold_listener (name, event, task, webhook, since, seen_at)
SELECT json_extract(r.value, '$.name'), json_extract(r.value, '$.event'), json_extract(r.value, '$.task'),
    json_extract(r.value, '$.webhook'), :now, CASE WHEN json_extract(r.value, '$.kept') THEN NULL ELSE :now END
FROM json_each(:rows) AS r WHERE true
ON CONFLICT (event, name, task) DO UPDATE SET seen_at = excluded.seen_at, webhook = excluded.webhook;

-- name: drop_other_listeners
-- Deletes the listeners of these names that their code no longer registers.
DELETE FROM leasehold_listener WHERE name IN (SELECT value FROM json_each(:names)) AND (name, event, task) NOT IN (
    SELECT json_extract(value, '$.name'), json_extract(value, '$.event'), json_extract(value, '$.task')
    FROM json_each(:rows));

-- name: touch_listeners
UPDATE leasehold_listener SET seen_at = :now
WHERE name IN (SELECT value FROM json_each(:names)) AND seen_at IS NOT NULL;

-- name: drop_listener
DELETE FROM leasehold_listener WHERE name = :name RETURNING event;

-- name: drop_outbox_of
DELETE FROM leasehold_outbox WHERE listener = :name;

-- name: list_listeners
SELECT l.name, l.event, l.task, l.webhook, l.since, l.seen_at,
    (SELECT count(*) FROM leasehold_outbox AS o
     WHERE o.listener = l.name AND o.event = l.event AND o.due_at IS NOT NULL) AS waiting,
    (SELECT count(*) FROM leasehold_outbox AS o
     WHERE o.listener = l.name AND o.event = l.event AND o.due_at IS NULL) AS given_up,
    (SELECT o.error FROM leasehold_outbox AS o WHERE o.listener = l.name AND o.event = l.event AND o.error IS NOT NULL
     ORDER BY o.at DESC LIMIT 1) AS last_error
FROM leasehold_listener AS l ORDER BY l.name, l.event, l.task;

-- name: find_due_listeners
SELECT r.value FROM json_each(:names) AS r
WHERE EXISTS (SELECT 1 FROM leasehold_outbox AS o WHERE o.listener = r.value AND o.due_at <= :now);

-- name: take_outbox
-- The taker has :seconds for the rows; then they are due again.
UPDATE leasehold_outbox SET tries = tries + 1, due_at = :now + CAST(round(:seconds * 1e6) AS INTEGER)
WHERE id IN (
    SELECT o.id FROM leasehold_outbox AS o WHERE o.listener = :listener AND o.due_at <= :now
    ORDER BY o.due_at LIMIT :limit)
RETURNING id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, tries;

-- name: drop_outbox
DELETE FROM leasehold_outbox WHERE id IN (SELECT value FROM json_each(:ids));

-- name: give_back_outbox
-- Gives back rows that were taken and not tried.
UPDATE leasehold_outbox SET tries = tries - 1, due_at = :now WHERE id IN (SELECT value FROM json_each(:ids));

-- name: retry_outbox
UPDATE leasehold_outbox SET error = :error, due_at = :now + CAST(round(:seconds * 1e6) AS INTEGER) WHERE id = :id;

-- name: forget_listeners
DELETE FROM leasehold_listener WHERE seen_at < :now - CAST(round(:age * 1e6) AS INTEGER);

-- name: forget_outbox
-- Deletes rows that could not be delivered for so long, and those of listeners that are gone.
DELETE FROM leasehold_outbox WHERE at < :now - CAST(round(:age * 1e6) AS INTEGER)
    OR listener NOT IN (SELECT l.name FROM leasehold_listener AS l);

-- name: set_webhook
INSERT INTO leasehold_webhook (name, url, signing_key, allow_private, source, changed_at)
VALUES (:name, :url, :signing_key, :allow_private, :source, :now)
ON CONFLICT (name) DO UPDATE SET url = excluded.url, signing_key = excluded.signing_key, allow_private = excluded.allow_private,
    source = excluded.source, changed_at = excluded.changed_at;

-- name: list_webhooks
SELECT name, url, signing_key, allow_private, source, changed_at FROM leasehold_webhook ORDER BY name;

-- name: drop_webhook
DELETE FROM leasehold_webhook WHERE name = :name RETURNING name;

-- name: drop_lonely_webhooks
-- Deletes webhooks whose listener was forgotten: their code is gone.
DELETE FROM leasehold_webhook AS w WHERE w.source = 'code' AND NOT EXISTS (
    SELECT 1 FROM leasehold_listener AS l WHERE l.name = 'webhook:' || w.name);
