-- What a job tells while it runs: partial results, its newest progress, stalls. Numbered per job, without gaps, under
-- the lock of the job's row.
CREATE TABLE leasehold.event (
    job_id  uuid NOT NULL,
    seq     bigint NOT NULL,
    kind    text NOT NULL,
    data    json,
    key     text,
    attempt integer NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (job_id, seq)
);
-- Once per key, also after a crash and a retry.
CREATE UNIQUE INDEX event_key ON leasehold.event (job_id, key) WHERE key IS NOT NULL;
-- A forty-minute job leaves one row of progress, not thousands.
CREATE UNIQUE INDEX event_progress ON leasehold.event (job_id) WHERE kind = 'progress';

-- How far a job's numbers have come, and the last note of the last lease that was written: what is sent again after a
-- lost reply is written once. One row per job that ever told something.
CREATE TABLE leasehold.stream (
    job_id   uuid PRIMARY KEY,
    last_seq bigint NOT NULL,
    token    bigint NOT NULL,
    place    bigint NOT NULL
) WITH (fillfactor = 80);

-- The last lines that each attempt has logged; `cut` is how many characters before them were dropped.
CREATE TABLE leasehold.log_tail (
    job_id  uuid NOT NULL,
    attempt integer NOT NULL,
    text    text NOT NULL,
    cut     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, attempt)
);
