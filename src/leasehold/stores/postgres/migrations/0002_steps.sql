-- What a job's steps have returned. A step that stands here is not run again, whichever run of the job comes to it.
CREATE TABLE leasehold.step (
    job_id   uuid NOT NULL,
    name     text NOT NULL,
    result   json NOT NULL,
    attempt  integer NOT NULL,
    saved_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- Where a job's loop has come to: one state per job, the last one counts.
CREATE TABLE leasehold.checkpoint (
    job_id   uuid PRIMARY KEY,
    state    json NOT NULL,
    saved_at timestamptz NOT NULL
);
