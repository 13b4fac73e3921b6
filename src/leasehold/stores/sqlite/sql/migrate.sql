-- name: schema_version
SELECT coalesce(max(version), 0) AS version FROM leasehold_migration;

-- name: record_migration
INSERT INTO leasehold_migration (version, applied_at) VALUES (:version, :now);
