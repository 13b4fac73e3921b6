-- The ledger: what was spent, under which key and which lease. The key makes a repeat harmless. No fence: money that a
-- run has spent is spent, also after its lease was lost.
CREATE TABLE leasehold.spending (
    job_id  uuid NOT NULL,
    key     text NOT NULL,
    unit    text NOT NULL,
    amount  bigint NOT NULL CONSTRAINT spending_not_negative CHECK (amount >= 0),
    token   bigint NOT NULL,
    attempt integer NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (job_id, key, unit)
);

-- Totals and limits of jobs and groups. A total moves in the transaction that writes its row of the ledger. A job's own
-- limit stands here only once somebody has raised it; before that its policy tells it.
CREATE TABLE leasehold.budget (
    scope text NOT NULL CONSTRAINT budget_scope_known CHECK (scope IN ('job', 'group')),
    name  text NOT NULL,
    unit  text NOT NULL,
    lim   bigint,
    spent bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name, unit)
) WITH (fillfactor = 80);
