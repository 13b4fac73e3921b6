-- name: lock_parents
-- In id order, and without their payloads: a fan-in may have thousands. A parent that just spends is passed: its group's
-- total may be ours already, inside `complete`, and then each would wait for the other.
SELECT j.id, j.kind, j.state, j.reason, :now AS now FROM leasehold.job AS j
WHERE j.id = ANY(:ids::uuid[]) ORDER BY j.id FOR NO KEY UPDATE;

-- name: mark_awaited
-- Under the parents' locks: whoever ends one of them from now on judges its children too.
UPDATE leasehold.job SET awaited = true WHERE id = ANY(:ids::uuid[]) AND NOT awaited;

-- name: insert_dependencies
INSERT INTO leasehold.dependency (child_id, parent_id, position, on_failure)
SELECT r.child_id, r.parent_id, r.position, r.on_failure
FROM json_to_recordset(:dependencies::json) AS r(child_id uuid, parent_id uuid, position integer, on_failure text);

-- name: hold_for_parents
-- New children were inserted as held, so that no claim could see them meanwhile; this tells what really holds them.
WITH v AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:children::json) AS r(id uuid, unmet integer, held boolean))
UPDATE leasehold.job AS j SET unmet = v.unmet, held = v.held
FROM v WHERE j.id = ANY(ARRAY(SELECT id FROM v)) AND j.id = v.id;

-- name: find_dependents
-- Whoever still waits for these jobs.
SELECT d.child_id, d.parent_id, d.on_failure FROM leasehold.dependency AS d
WHERE d.parent_id = ANY(:ids::uuid[]) AND NOT d.met ORDER BY d.child_id, d.position;

-- name: meet_dependencies
UPDATE leasehold.dependency AS d SET met = true
FROM json_to_recordset(:met::json) AS v(child_id uuid, parent_id uuid)
WHERE d.child_id = v.child_id AND d.parent_id = v.parent_id;

-- name: read_parent_results
-- In the order of `after=`. Those without success have none.
SELECT d.parent_id AS id, p.kind, p.result FROM leasehold.dependency AS d JOIN leasehold.job AS p ON p.id = d.parent_id
WHERE d.child_id = :id AND p.state = 'succeeded' ORDER BY d.position;

-- name: list_parents
-- Those that are still there, in the order of `after=`.
SELECT d.parent_id, d.on_failure FROM leasehold.dependency AS d JOIN leasehold.job AS p ON p.id = d.parent_id
WHERE d.child_id = :id ORDER BY d.position;

-- name: list_relatives
-- What a job waits for (the unmet ones first), who waits for it, whose follow-up it is, and which follow-ups it has.
SELECT r.relation, j.id, j.kind, j.state, r.on_failure, r.met FROM (
    SELECT 1 AS rank, 'waits_for' AS relation, parent_id AS id, on_failure, met, position FROM leasehold.dependency
        WHERE child_id = :id
    UNION ALL
    SELECT 2, 'awaited_by', child_id, on_failure, met, 0 FROM leasehold.dependency WHERE parent_id = :id
    UNION ALL
    SELECT 3, 'follow_up_of', parent_id, NULL, NULL, 0 FROM leasehold.follow_up WHERE child_id = :id
    UNION ALL
    SELECT 4, 'follow_up', child_id, NULL, NULL, 0 FROM leasehold.follow_up WHERE parent_id = :id) AS r
JOIN leasehold.job AS j ON j.id = r.id
ORDER BY r.rank, r.met, r.position, j.id LIMIT :limit;

-- name: insert_follow_ups
INSERT INTO leasehold.follow_up (parent_id, child_id)
SELECT r.parent_id, r.child_id FROM json_to_recordset(:follow_ups::json) AS r(parent_id uuid, child_id uuid)
ON CONFLICT DO NOTHING;
