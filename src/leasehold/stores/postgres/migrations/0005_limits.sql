-- How many units may be in use at once. How many are is counted from running jobs: nothing is stored that could drift.
CREATE TABLE leasehold.slot (
    name text PRIMARY KEY,
    lim  integer NOT NULL CONSTRAINT slot_limit_not_negative CHECK (lim >= 0)
);

-- `next_at`: when the next job would start if they came evenly. One row and one instant a key.
CREATE TABLE leasehold.rate (
    key           text PRIMARY KEY,
    lim           text NOT NULL,
    spacing       double precision NOT NULL CONSTRAINT rate_spacing_positive CHECK (spacing > 0),
    burst         integer NOT NULL CONSTRAINT rate_burst_positive CHECK (burst >= 1),
    next_at       timestamptz NOT NULL,
    closed        boolean NOT NULL DEFAULT false,
    closed_until  timestamptz,
    closed_by     text,
    closed_reason text
) WITH (fillfactor = 50);

-- Units taken inside a run. They count while the job runs in that attempt; what is left of others is swept.
CREATE TABLE leasehold.slot_hold (
    name    text NOT NULL,
    job_id  uuid NOT NULL,
    attempt integer NOT NULL,
    units   integer NOT NULL CONSTRAINT slot_hold_units_positive CHECK (units > 0),
    PRIMARY KEY (name, job_id, attempt)
);
CREATE INDEX slot_hold_job ON leasehold.slot_hold (job_id);

-- Who uses slots now.
CREATE INDEX job_limited ON leasehold.job (gate) WHERE limited AND state = 'running';
