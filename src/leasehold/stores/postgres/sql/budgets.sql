-- name: lock_spender
-- The budgets of the job and of its group count. The lock only keeps the job from being pruned meanwhile; a transaction
-- that moves the job does not wait.
SELECT id, task, policy, group_name FROM leasehold.job WHERE id = :id FOR KEY SHARE;

-- name: find_spender
SELECT id, task, policy, group_name FROM leasehold.job WHERE id = :id;

-- name: insert_spending
-- A returned row was not there before: a repeat of the same key changes no total.
INSERT INTO leasehold.spending (job_id, key, unit, amount, token, attempt, at)
SELECT :id, r.key, r.unit, r.amount, :token, :attempt, :now
FROM json_to_recordset(:spends::json) AS r(key text, unit text, amount bigint)
ON CONFLICT (job_id, key, unit) DO NOTHING RETURNING unit, amount;

-- name: add_spent
-- Totals are locked in one order: jobs of one group spend at the same time.
INSERT INTO leasehold.budget AS b (scope, name, unit, spent)
SELECT r.scope, r.name, r.unit, r.spent
FROM json_to_recordset(:totals::json) AS r(scope text, name text, unit text, spent bigint)
ORDER BY r.scope, r.name, r.unit
ON CONFLICT (scope, name, unit) DO UPDATE SET spent = b.spent + excluded.spent;

-- name: read_budget
SELECT scope, name, unit, lim, spent FROM leasehold.budget WHERE scope = 'job' AND name = :id::text
UNION ALL
SELECT scope, name, unit, lim, spent FROM leasehold.budget WHERE scope = 'group' AND name = :group::text;

-- name: list_budgets
-- Lists budgets in the order of the key, from a key on, up to a scope.
SELECT b.scope, b.name, b.unit, b.lim, b.spent, j.task, j.queue, j.group_name, j.policy
FROM leasehold.budget AS b LEFT JOIN LATERAL (
    SELECT x.task, x.queue, x.group_name, x.policy FROM leasehold.job AS x
    WHERE x.id = CASE WHEN b.scope = 'job' THEN b.name::uuid END LIMIT 1) AS j ON true
WHERE (b.scope, b.name, b.unit) > (:scope, :name, :unit) AND b.scope <= :last
ORDER BY b.scope, b.name, b.unit LIMIT :limit;

-- name: sum_attempt_spending
-- Sums what one attempt spent, for limits that count each attempt by itself. The ledger of a job is short, and its key
-- starts with the job's id.
SELECT unit, sum(amount) FROM leasehold.spending WHERE job_id = :id AND attempt = :attempt GROUP BY unit;

-- name: set_limits
INSERT INTO leasehold.budget (scope, name, unit, lim)
SELECT :scope, :name, r.unit, r.lim FROM json_to_recordset(:limits::json) AS r(unit text, lim bigint) ORDER BY r.unit
ON CONFLICT (scope, name, unit) DO UPDATE SET lim = excluded.lim;

-- name: list_spending
SELECT key, unit, amount, token, attempt, at FROM leasehold.spending WHERE job_id = :id ORDER BY at, key, unit;
