-- What a job's steps have returned. A step that stands here is not run again, whichever run of the job comes to it.
CREATE TABLE step (
    job_id   TEXT NOT NULL,
    name     TEXT NOT NULL,
    result   TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    saved_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- Where a job's loop has come to: one state per job, the last one counts.
CREATE TABLE checkpoint (
    job_id   TEXT PRIMARY KEY,
    state    TEXT NOT NULL,
    saved_at INTEGER NOT NULL
);
