-- name: lock_spender
-- The budgets of the job and of its group count. This connection is the writer: the job is not pruned meanwhile.
SELECT id, task, policy, group_name FROM leasehold_job WHERE id = :id;

-- name: find_spender
SELECT id, task, policy, group_name FROM leasehold_job WHERE id = :id;

-- name: insert_spending
-- A returned row was not there before: a repeat of the same key changes no total.
INSERT INTO leasehold_spending (job_id, key, unit, amount, token, attempt, at)
SELECT :id, json_extract(r.value, '$.key'), json_extract(r.value, '$.unit'), json_extract(r.value, '$.amount'),
    :token, :attempt, :now
FROM json_each(:spends) AS r WHERE true
ON CONFLICT (job_id, key, unit) DO NOTHING RETURNING unit, amount;

-- name: add_spent
INSERT INTO leasehold_budget (scope, name, unit, spent)
SELECT json_extract(r.value, '$.scope'), json_extract(r.value, '$.name'), json_extract(r.value, '$.unit'),
    json_extract(r.value, '$.spent')
FROM json_each(:totals) AS r WHERE true
ON CONFLICT (scope, name, unit) DO UPDATE SET spent = spent + excluded.spent;

-- name: read_budget
SELECT scope, name, unit, lim, spent FROM leasehold_budget WHERE scope = 'job' AND name = :id
UNION ALL
SELECT scope, name, unit, lim, spent FROM leasehold_budget WHERE scope = 'group' AND name = :group;

-- name: list_budgets
-- Lists budgets in the order of the key, from a key on, up to a scope.
SELECT b.scope, b.name, b.unit, b.lim, b.spent, j.task, j.queue, j.group_name, j.policy
FROM leasehold_budget AS b LEFT JOIN leasehold_job AS j ON b.scope = 'job' AND j.id = b.name
WHERE (b.scope, b.name, b.unit) > (:scope, :name, :unit) AND b.scope <= :last
ORDER BY b.scope, b.name, b.unit LIMIT :limit;

-- name: sum_attempt_spending
-- Sums what one attempt spent, for limits that count each attempt by itself. The ledger of a job is short, and its key
-- starts with the job's id.
SELECT unit, sum(amount) FROM leasehold_spending WHERE job_id = :id AND attempt = :attempt GROUP BY unit;

-- name: set_limits
INSERT INTO leasehold_budget (scope, name, unit, lim)
SELECT :scope, :name, json_extract(r.value, '$.unit'), json_extract(r.value, '$.lim')
FROM json_each(:limits) AS r WHERE true
ON CONFLICT (scope, name, unit) DO UPDATE SET lim = excluded.lim;

-- name: list_spending
SELECT key, unit, amount, token, attempt, at FROM leasehold_spending WHERE job_id = :id ORDER BY at, key, unit;
