-- name: insert_tenant
INSERT INTO leasehold_tenant (name, changed_at, created_at) VALUES (:name, :now, :now) ON CONFLICT (name) DO NOTHING;

-- name: mark_tenant
-- One call alone changes the row: it has created the tenant.
UPDATE leasehold_tenant SET ready = :ready, version = version + 1, changed_at = :now WHERE name = :name AND ready <> :ready
RETURNING name;

-- name: delete_tenant
DELETE FROM leasehold_tenant WHERE name = :name;

-- name: list_tenants
SELECT name, ready, version, changed_at, created_at FROM leasehold_tenant ORDER BY name;

-- name: find_tenant
SELECT name, ready, version, changed_at, created_at FROM leasehold_tenant WHERE name = :name;

-- name: notified_tenants
SELECT name, ready, version, changed_at, created_at FROM leasehold_tenant WHERE changed_at >= :since ORDER BY name;

-- name: notify_tenants
UPDATE leasehold_tenant SET version = version + 1, changed_at = :now WHERE name IN (SELECT value FROM json_each(:names));
