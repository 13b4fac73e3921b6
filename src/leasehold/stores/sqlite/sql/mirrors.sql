-- name: list_mirrors
SELECT m.spec FROM leasehold_mirror AS m ORDER BY m.name;

-- name: list_mirror_objects
SELECT name, sql AS definition FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, 17) = 'leasehold_mirror_';

-- name: list_columns
SELECT name FROM pragma_table_info(:table);
