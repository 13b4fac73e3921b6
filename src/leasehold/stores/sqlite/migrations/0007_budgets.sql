-- The ledger: what was spent, under which key and which lease. The key makes a repeat harmless. No fence: money that a
-- run has spent is spent, also after its lease was lost.
CREATE TABLE spending (
    job_id  TEXT NOT NULL,
    key     TEXT NOT NULL,
    unit    TEXT NOT NULL,
    amount  INTEGER NOT NULL CONSTRAINT spending_not_negative CHECK (amount >= 0),
    token   INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job_id, key, unit)
) WITHOUT ROWID;

-- Totals and limits of jobs and groups. A total moves in the transaction that writes its row of the ledger. A job's own
-- limit stands here only once somebody has raised it; before that its policy tells it.
CREATE TABLE budget (
    scope TEXT NOT NULL CONSTRAINT budget_scope_known CHECK (scope IN ('job', 'group')),
    name  TEXT NOT NULL,
    unit  TEXT NOT NULL,
    lim   INTEGER,
    spent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name, unit)
) WITHOUT ROWID;
