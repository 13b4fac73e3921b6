-- part: error_of_j
CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END

-- name: find_number_at
-- The highest number of a job that was created by then; above the highest, if all were. Jobs are created in the order
-- of their numbers, or nearly so, and no index serves their times: each step looks at one job and halves the rest.
WITH RECURSIVE halves(low, width) AS (
    SELECT 0, 4611686018427387904
    UNION ALL
    SELECT low + CASE WHEN (
            SELECT j.created_at FROM leasehold_job AS j WHERE j.seq > low AND j.seq <= low + width
            ORDER BY j.seq DESC LIMIT 1) > :at THEN 0 ELSE width END, width / 2
    FROM halves WHERE width > 0)
SELECT max(low) AS number FROM halves;

-- name: search_text
-- The jobs of a walk, newest first, and whether each has one of the texts, which are lower case, in its arguments or
-- in its error. What was found in a job with sensitive arguments is in doubt: it may be what nobody may see.
SELECT d.number, j.id,
    (EXISTS (SELECT 1 FROM json_each(:in_args) AS n WHERE instr(lower(j.args), n.value) > 0)
     OR EXISTS (SELECT 1 FROM json_each(:in_error) AS n WHERE instr(lower(
-- include: error_of_j
     ), n.value) > 0)) AS found, instr(j.policy, 'sensitive') > 0 AS doubtful
FROM (

-- name: search_text.page
) AS d CROSS JOIN leasehold_job AS j ON j.seq = d.number
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
ORDER BY d.number DESC LIMIT :limit

-- name: read_texts
-- What is searched of these jobs, and which of their arguments are sensitive.
SELECT j.seq AS number, j.args, j.policy,
-- include: error_of_j
AS error FROM json_each(:numbers) AS n CROSS JOIN leasehold_job AS j ON j.seq = n.value
LEFT JOIN leasehold_outcome AS o ON o.job = j.seq LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq;

-- name: search.numbers
-- Jobs that were found before, in the place of a walk.
SELECT n.value AS number FROM json_each(:numbers) AS n

-- name: list_failures
-- Those of a walk that have failed or timed out, newest first; of their errors the beginning.
SELECT j.id, j.task, o.finished_at, substr(o.error, 1, 2000) AS error FROM (

-- name: list_failures.page
) AS d CROSS JOIN leasehold_job AS j ON j.seq = d.number
CROSS JOIN leasehold_outcome AS o ON o.job = j.seq AND o.state IN (3, 4) ORDER BY d.number DESC LIMIT :limit
