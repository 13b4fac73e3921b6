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
-- Those whose listener was forgotten: their code is gone.
DELETE FROM leasehold.webhook AS w WHERE w.source = 'code' AND NOT EXISTS (
    SELECT FROM leasehold.listener AS l WHERE l.name = 'webhook:' || w.name);
