-- name: list_mirrors
SELECT m.spec::text AS spec FROM leasehold.mirror AS m ORDER BY m.name;

-- name: list_mirror_objects
-- Functions with their bodies, and the places on which they are called.
SELECT p.proname AS name, p.prosrc AS definition FROM pg_proc AS p
WHERE p.proname LIKE 'mirror\_%' AND p.pronamespace = (
    SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass)
UNION ALL
SELECT t.tgname || ' on ' || c.relname, CASE WHEN t.tgenabled = 'D' THEN 'off' ELSE 'on' END
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE t.tgname LIKE 'mirror\_%' AND NOT t.tgisinternal AND c.relnamespace = (
    SELECT m.relnamespace FROM pg_class AS m WHERE m.oid = 'leasehold.migration'::regclass);

-- name: list_columns
SELECT a.attname AS name FROM pg_attribute AS a
WHERE a.attrelid = to_regclass(:table::text) AND a.attnum > 0 AND NOT a.attisdropped;
