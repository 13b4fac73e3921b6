-- name: schema_version
SELECT coalesce(max(version), 0) AS version FROM leasehold.migration;

-- name: record_migration
INSERT INTO leasehold.migration (version, applied_at) VALUES (:version, :now);
