-- name: insert_tenant
INSERT INTO leasehold.tenant (name, changed_at, created_at) VALUES (:name, :now, :now) ON CONFLICT (name) DO NOTHING;

-- name: mark_tenant
-- One call alone changes the row: it has created the tenant.
UPDATE leasehold.tenant SET ready = :ready, version = version + 1, changed_at = :now WHERE name = :name AND ready <> :ready
RETURNING name;

-- name: delete_tenant
DELETE FROM leasehold.tenant WHERE name = :name;

-- name: list_tenants
SELECT name, ready, version, changed_at, created_at FROM leasehold.tenant ORDER BY name;

-- name: find_tenant
SELECT name, ready, version, changed_at, created_at FROM leasehold.tenant WHERE name = :name;

-- name: notified_tenants
SELECT name, ready, version, changed_at, created_at FROM leasehold.tenant WHERE changed_at >= :since ORDER BY name;

-- name: notify_tenants
-- In the order of names: two transactions that notify the same tenants must not wait for each other.
UPDATE leasehold.tenant SET version = version + 1, changed_at = :now WHERE name IN (
    SELECT name FROM leasehold.tenant WHERE name = ANY(:names::text[]) ORDER BY name FOR UPDATE);
