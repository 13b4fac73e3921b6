-- name: insert_token
-- Returns nothing if the name is taken.
INSERT INTO leasehold_token (name, hash, scopes, tenants, queues, created_at, expires_at)
VALUES (:name, :hash, :scopes, :tenants, :queues, :now, :now + CAST(round(:seconds * 1e6) AS INTEGER))
ON CONFLICT (name) DO NOTHING RETURNING name, scopes, tenants, queues, created_at, expires_at, revoked_at;

-- name: find_token
-- A token that is valid now.
SELECT name, scopes, tenants, queues, created_at, expires_at, revoked_at FROM leasehold_token
WHERE hash = :hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: list_tokens
SELECT name, scopes, tenants, queues, created_at, expires_at, revoked_at,
    revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) AS live
FROM leasehold_token ORDER BY name;

-- name: revoke_token
UPDATE leasehold_token SET revoked_at = coalesce(revoked_at, :now) WHERE name = :name RETURNING name;
