-- part: error_of_j
CASE WHEN o.state = 1 THEN NULL ELSE coalesce(o.error, t.error) END

-- part: endings_of_j
LEFT JOIN LATERAL (SELECT x.state, x.error FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT x.error FROM leasehold.failure_state AS x WHERE x.job = j.seq LIMIT 1) AS t ON true

-- name: find_number_at
-- The highest number of a job that was created by then; above the highest, if all were. Jobs are created in the order
-- of their numbers, or nearly so, and no index serves their times: each step looks at one job and halves the rest.
WITH RECURSIVE halves(low, width) AS (
    SELECT 0::bigint, 4611686018427387904
    UNION ALL
    SELECT low + CASE WHEN (
            SELECT j.created_at FROM leasehold.job AS j WHERE j.seq > low AND j.seq <= low + width
            ORDER BY j.seq DESC LIMIT 1) > :at::timestamptz THEN 0 ELSE width END, width / 2
    FROM halves WHERE width > 0)
SELECT max(low) AS number FROM halves;

-- name: search_text
-- The jobs of a walk, newest first, and whether each has one of the texts, which are lower case, in its arguments or
-- in its error. What was found in a job with sensitive arguments is in doubt: it may be what nobody may see.
SELECT d.number, j.id,
    (EXISTS (SELECT FROM unnest(:in_args::text[]) AS n(needle) WHERE strpos(lower(j.args::text), n.needle) > 0)
     OR EXISTS (SELECT FROM unnest(:in_error::text[]) AS n(needle) WHERE strpos(lower(
-- include: error_of_j
     ), n.needle) > 0)) AS found, strpos(j.policy::text, 'sensitive') > 0 AS doubtful
FROM (

-- name: search_text.page
) AS d, LATERAL (SELECT x.* FROM leasehold.job AS x WHERE x.seq = d.number LIMIT 1) AS j
-- include: endings_of_j
ORDER BY d.number DESC LIMIT :limit

-- name: read_texts
-- What is searched of these jobs, and which of their arguments are sensitive.
SELECT j.seq AS number, j.args, j.policy,
-- include: error_of_j
AS error FROM unnest(:numbers::bigint[]) AS n(number),
    LATERAL (SELECT x.* FROM leasehold.job AS x WHERE x.seq = n.number LIMIT 1) AS j
-- include: endings_of_j
;

-- name: search.numbers
-- Jobs that were found before, in the place of a walk.
SELECT n.number FROM unnest(:numbers::bigint[]) AS n(number)

-- name: list_failures
-- Those of a walk that have failed or timed out, newest first; of their errors the beginning.
SELECT j.id, j.task, o.finished_at, left(o.error, 2000) AS error FROM (

-- name: list_failures.page
) AS d, LATERAL (SELECT x.seq, x.id, x.task FROM leasehold.job AS x WHERE x.seq = d.number LIMIT 1) AS j,
    LATERAL (SELECT x.finished_at, x.error FROM leasehold.outcome AS x
             WHERE x.job = j.seq AND x.state IN (3, 4) LIMIT 1) AS o
ORDER BY d.number DESC LIMIT :limit
