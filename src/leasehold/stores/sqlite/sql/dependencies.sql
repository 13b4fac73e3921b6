-- name: lock_parents
-- In id order, and without their payloads: a fan-in may have thousands.
SELECT j.id, j.kind, j.state, j.reason, :now AS now FROM job AS j WHERE j.id IN (SELECT value FROM json_each(:ids)) ORDER BY j.id;

-- name: mark_awaited
-- Under the parents' locks: whoever ends one of them from now on judges its children too.
UPDATE job SET awaited = 1 WHERE id IN (SELECT value FROM json_each(:ids)) AND awaited = 0;

-- name: insert_dependencies
INSERT INTO dependency (child_id, parent_id, position, on_failure)
SELECT json_extract(r.value, '$.child_id'), json_extract(r.value, '$.parent_id'), json_extract(r.value, '$.position'),
    json_extract(r.value, '$.on_failure')
FROM json_each(:dependencies) AS r;

-- name: hold_for_parents
-- New children were inserted as held, so that no claim could see them meanwhile; this tells what really holds them.
UPDATE job SET unmet = json_extract(v.value, '$.unmet'), held = json_extract(v.value, '$.held')
FROM json_each(:children) AS v WHERE job.id = json_extract(v.value, '$.id');

-- name: find_dependents
-- Whoever still waits for these jobs.
SELECT d.child_id, d.parent_id, d.on_failure FROM dependency AS d
WHERE d.parent_id IN (SELECT value FROM json_each(:ids)) AND NOT d.met ORDER BY d.child_id, d.position;

-- name: meet_dependencies
UPDATE dependency SET met = 1 FROM json_each(:met) AS v
WHERE child_id = json_extract(v.value, '$.child_id') AND parent_id = json_extract(v.value, '$.parent_id');

-- name: read_parent_results
-- In the order of `after=`. Those without success have none.
SELECT d.parent_id AS id, p.kind, p.result FROM dependency AS d CROSS JOIN job AS p ON p.id = d.parent_id
WHERE d.child_id = :id AND p.state = 'succeeded' ORDER BY d.position;

-- name: list_parents
-- Those that are still there, in the order of `after=`.
SELECT d.parent_id, d.on_failure FROM dependency AS d CROSS JOIN job AS p ON p.id = d.parent_id
WHERE d.child_id = :id ORDER BY d.position;

-- name: list_relatives
-- What a job waits for (the unmet ones first), who waits for it, whose follow-up it is, and which follow-ups it has.
SELECT r.relation, j.id, j.kind, j.state, r.on_failure, r.met FROM (
    SELECT 1 AS rank, 'waits_for' AS relation, parent_id AS id, on_failure, met, position FROM dependency
        WHERE child_id = :id
    UNION ALL
    SELECT 2, 'awaited_by', child_id, on_failure, met, 0 FROM dependency WHERE parent_id = :id
    UNION ALL
    SELECT 3, 'follow_up_of', parent_id, NULL, NULL, 0 FROM follow_up WHERE child_id = :id
    UNION ALL
    SELECT 4, 'follow_up', child_id, NULL, NULL, 0 FROM follow_up WHERE parent_id = :id) AS r CROSS JOIN job AS j ON j.id = r.id
ORDER BY r.rank, r.met, r.position, j.id LIMIT :limit;

-- name: insert_follow_ups
INSERT INTO follow_up (parent_id, child_id)
SELECT json_extract(r.value, '$.parent_id'), json_extract(r.value, '$.child_id') FROM json_each(:follow_ups) AS r
WHERE true
ON CONFLICT DO NOTHING;
