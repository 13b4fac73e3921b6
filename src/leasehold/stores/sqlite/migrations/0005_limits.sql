-- How many units may be in use at once. How many are is counted from running jobs: nothing is stored that could drift.
CREATE TABLE slot (
    name TEXT PRIMARY KEY,
    lim  INTEGER NOT NULL CONSTRAINT slot_limit_not_negative CHECK (lim >= 0)
) WITHOUT ROWID;

-- `next_at`: when the next job would start if they came evenly. One row and one instant a key.
CREATE TABLE rate (
    key           TEXT PRIMARY KEY,
    lim           TEXT NOT NULL,
    spacing       REAL NOT NULL CONSTRAINT rate_spacing_positive CHECK (spacing > 0),
    burst         INTEGER NOT NULL CONSTRAINT rate_burst_positive CHECK (burst >= 1),
    next_at       INTEGER NOT NULL,
    closed        INTEGER NOT NULL DEFAULT 0,
    closed_until  INTEGER,
    closed_by     TEXT,
    closed_reason TEXT
) WITHOUT ROWID;

-- Units taken inside a run. They count while the job runs in that attempt; what is left of others is swept.
CREATE TABLE slot_hold (
    name    TEXT NOT NULL,
    job_id  TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    units   INTEGER NOT NULL CONSTRAINT slot_hold_units_positive CHECK (units > 0),
    PRIMARY KEY (name, job_id, attempt)
) WITHOUT ROWID;
CREATE INDEX slot_hold_job ON slot_hold (job_id);

-- Who uses slots now.
CREATE INDEX job_limited ON job (gate) WHERE limited AND state = 'running';
