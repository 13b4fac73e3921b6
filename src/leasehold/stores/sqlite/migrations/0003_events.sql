-- What a job tells while it runs: partial results, its newest progress, stalls. Numbered per job, without gaps, under
-- the lock of the job's row.
CREATE TABLE event (
    job_id  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    data    TEXT,
    key     TEXT,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job_id, seq),
    CONSTRAINT event_data_is_json CHECK (data IS NULL OR json_valid(data))
) WITHOUT ROWID;
-- Once per key, also after a crash and a retry.
CREATE UNIQUE INDEX event_key ON event (job_id, key) WHERE key IS NOT NULL;
-- A forty-minute job leaves one row of progress, not thousands.
CREATE UNIQUE INDEX event_progress ON event (job_id) WHERE kind = 'progress';

-- How far a job's numbers have come, and the last note of the last lease that was written: what is sent again after a
-- lost reply is written once. One row per job that ever told something.
CREATE TABLE stream (
    job_id   TEXT PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    token    INTEGER NOT NULL,
    place    INTEGER NOT NULL
) WITHOUT ROWID;

-- The last lines that each attempt has logged; `cut` is how many characters before them were dropped.
CREATE TABLE log_tail (
    job_id  TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    text    TEXT NOT NULL,
    cut     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, attempt)
);
