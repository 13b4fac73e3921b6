-- name: insert_listeners
INSERT INTO leasehold.listener (name, event, task, webhook, since, seen_at)
SELECT r.name, r.event, r.task, r.webhook, :now, CASE WHEN r.kept THEN NULL ELSE :now END
FROM json_to_recordset(:rows::json) AS r(name text, event text, task text, webhook boolean, kept boolean)
ORDER BY r.event, r.name, r.task
ON CONFLICT (event, name, task) DO UPDATE SET seen_at = excluded.seen_at, webhook = excluded.webhook;

-- name: drop_other_listeners
-- Deletes the listeners of these names that their code no longer registers.
DELETE FROM leasehold.listener AS l WHERE l.name = ANY(:names::text[]) AND NOT EXISTS (
    SELECT FROM json_to_recordset(:rows::json) AS r(name text, event text, task text)
    WHERE r.name = l.name AND r.event = l.event AND r.task = l.task);

-- name: touch_listeners
UPDATE leasehold.listener SET seen_at = :now WHERE name = ANY(:names::text[]) AND seen_at IS NOT NULL;

-- name: drop_listener
DELETE FROM leasehold.listener WHERE name = :name RETURNING event;

-- name: drop_outbox_of
DELETE FROM leasehold.outbox WHERE listener = :name;

-- name: list_listeners
SELECT l.name, l.event, l.task, l.webhook, l.since, l.seen_at,
    (SELECT count(*) FROM leasehold.outbox AS o
     WHERE o.listener = l.name AND o.event = l.event AND o.due_at IS NOT NULL) AS waiting,
    (SELECT count(*) FROM leasehold.outbox AS o
     WHERE o.listener = l.name AND o.event = l.event AND o.due_at IS NULL) AS given_up,
    (SELECT o.error FROM leasehold.outbox AS o WHERE o.listener = l.name AND o.event = l.event AND o.error IS NOT NULL
     ORDER BY o.at DESC LIMIT 1) AS last_error
FROM leasehold.listener AS l ORDER BY l.name, l.event, l.task;

-- name: find_due_listeners
SELECT r.name FROM unnest(:names::text[]) AS r(name)
WHERE EXISTS (SELECT FROM leasehold.outbox AS o WHERE o.listener = r.name AND o.due_at <= :now);

-- name: take_outbox
-- The taker has :seconds for the rows; then they are due again. Rows that another process is taking are skipped.
UPDATE leasehold.outbox SET tries = tries + 1, due_at = :now + :seconds::double precision * interval '1 second'
WHERE id = ANY(ARRAY(
    SELECT o.id FROM leasehold.outbox AS o WHERE o.listener = :listener AND o.due_at <= :now
    ORDER BY o.due_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING id, listener, event, job_id, task, queue, attempt, group_name, detail, data, at, tries;

-- name: drop_outbox
DELETE FROM leasehold.outbox WHERE id = ANY(:ids::text[]);

-- name: give_back_outbox
-- Gives back rows that were taken and not tried.
UPDATE leasehold.outbox SET tries = tries - 1, due_at = :now WHERE id = ANY(:ids::text[]);

-- name: retry_outbox
UPDATE leasehold.outbox SET error = :error, due_at = :now + :seconds::double precision * interval '1 second' WHERE id = :id;

-- name: forget_listeners
DELETE FROM leasehold.listener WHERE seen_at < :now - :age::double precision * interval '1 second';

-- name: forget_outbox
-- Deletes rows that could not be delivered for so long, and those of listeners that are gone.
DELETE FROM leasehold.outbox AS o WHERE o.at < :now - :age::double precision * interval '1 second'
    OR NOT EXISTS (SELECT FROM leasehold.listener AS l WHERE l.name = o.listener);

-- name: set_webhook
INSERT INTO leasehold.webhook (name, url, signing_key, allow_private, source, changed_at)
VALUES (:name, :url, :signing_key, :allow_private, :source, :now)
ON CONFLICT (name) DO UPDATE SET url = excluded.url, signing_key = excluded.signing_key, allow_private = excluded.allow_private,
    source = excluded.source, changed_at = excluded.changed_at;

-- name: list_webhooks
SELECT name, url, signing_key, allow_private, source, changed_at FROM leasehold.webhook ORDER BY name;

-- name: drop_webhook
DELETE FROM leasehold.webhook WHERE name = :name RETURNING name;

-- name: drop_lonely_webhooks
-- Deletes webhooks whose listener was forgotten: their code is gone.
DELETE FROM leasehold.webhook AS w WHERE w.source = 'code' AND NOT EXISTS (
    SELECT FROM leasehold.listener AS l WHERE l.name = 'webhook:' || w.name);
