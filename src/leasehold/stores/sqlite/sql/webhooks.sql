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
-- Those whose listener was forgotten: their code is gone.
DELETE FROM leasehold_webhook AS w WHERE w.source = 'code' AND NOT EXISTS (
    SELECT 1 FROM leasehold_listener AS l WHERE l.name = 'webhook:' || w.name);
