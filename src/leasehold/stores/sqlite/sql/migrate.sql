-- name: schema_version
SELECT coalesce(max(version), 0) AS version FROM migration;

-- name: record_migration
INSERT INTO migration (version, applied_at) VALUES (:version, :now);
