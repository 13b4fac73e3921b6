-- The job row carries the whole protocol: state, lease, token, counters. Columns that later features need are here
-- from the start, because a hot table is not altered lightly. Times are whole microseconds since 1970, UTC.
CREATE TABLE job (
    seq                  INTEGER PRIMARY KEY,
    id                   TEXT NOT NULL UNIQUE,
    kind                 TEXT NOT NULL,
    queue                TEXT NOT NULL,
    gate                 INTEGER NOT NULL,
    limited              INTEGER NOT NULL DEFAULT 0,
    priority             INTEGER NOT NULL DEFAULT 0,
    state                TEXT NOT NULL,
    reason               TEXT,
    args                 TEXT NOT NULL,
    policy               TEXT,
    created_at           INTEGER NOT NULL,
    available_at         INTEGER NOT NULL,
    lane                 TEXT,
    lane_at              INTEGER,
    halts_lane           INTEGER NOT NULL DEFAULT 0,
    lease_owner          TEXT,
    lease_expires_at     INTEGER,
    lease_seconds        REAL NOT NULL DEFAULT 30,
    lease_token          INTEGER NOT NULL DEFAULT 0,
    attempt              INTEGER NOT NULL DEFAULT 0,
    failures             INTEGER NOT NULL DEFAULT 0,
    crashes              INTEGER NOT NULL DEFAULT 0,
    stop_requested       TEXT,
    execution_site       TEXT,
    execution_name       TEXT,
    execution_started_at INTEGER,
    first_started_at     INTEGER,
    started_at           INTEGER,
    finished_at          INTEGER,
    settled_by           TEXT,
    settled_token        INTEGER,
    result               TEXT,
    result_ref           TEXT,
    error                TEXT,
    unique_key           TEXT,
    unique_for           TEXT NOT NULL DEFAULT 'live',
    group_name           TEXT,
    tags                 TEXT,
    held                 INTEGER NOT NULL DEFAULT 0,
    unmet                INTEGER NOT NULL DEFAULT 0,
    deadline_at          INTEGER,
    start_by             INTEGER,
    retry_of             TEXT,
    trace                TEXT,
    CONSTRAINT job_state_known CHECK (state IN ('pending', 'queued', 'running', 'waiting', 'paused',
                                                'failed', 'timed_out', 'succeeded', 'cancelled')),
    CONSTRAINT job_priority_in_range CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT job_token_not_negative CHECK (lease_token >= 0 AND attempt >= 0 AND unmet >= 0),
    CONSTRAINT job_lease_whole CHECK ((lease_owner IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT job_lease_only_running CHECK (lease_owner IS NULL OR state = 'running'),
    CONSTRAINT job_flag_only_running CHECK (stop_requested IS NULL OR
                                            (state = 'running' AND stop_requested IN ('finish', 'pause', 'cancel'))),
    CONSTRAINT job_hold_only_pending CHECK (NOT held OR state = 'pending'),
    CONSTRAINT job_halt_only_failed CHECK (NOT halts_lane OR (lane IS NOT NULL AND state IN ('failed', 'timed_out'))),
    CONSTRAINT job_lane_has_place CHECK ((lane IS NULL) = (lane_at IS NULL)),
    CONSTRAINT job_unique_for_known CHECK (unique_for IN ('live', 'ever')),
    -- PostgreSQL's json type refuses what is not JSON; so does this.
    CONSTRAINT job_result_is_json CHECK (result IS NULL OR json_valid(result)),
    CONSTRAINT job_args_are_json CHECK (json_valid(args))
);

-- Rows that cannot be claimed are not in it, so a claim never walks past them: finished ones by the state, lane jobs
-- by the lane, paused kinds and queues by their gate, delayed ones by the due time behind the priority.
-- The rowid (seq) ends every index entry by itself and breaks the ties.
CREATE INDEX job_claim ON job (gate, priority DESC, available_at) WHERE lane IS NULL AND state = 'queued';
CREATE INDEX job_lane ON job (lane, lane_at) WHERE lane IS NOT NULL AND state = 'queued';
-- The tripwire: a lane belongs to the job that has started in it, until that job is done or passed over. Two claimers
-- that saw different heads cannot both commit, not even if the first one's job has failed and halts the lane by then.
CREATE UNIQUE INDEX job_lane_held ON job (lane) WHERE lane IS NOT NULL AND lane_at = 0 AND
    (state IN ('queued', 'running', 'waiting', 'paused') OR halts_lane);
CREATE INDEX job_lane_halt ON job (lane) WHERE lane IS NOT NULL AND
    (state IN ('waiting', 'paused') OR (state IN ('failed', 'timed_out') AND halts_lane));
-- By owner, not by expiry: a renewal then touches no indexed column (a HOT update on PostgreSQL), and the sweep reads
-- the live leases, which are few. Not WHERE state = 'running': statistics that never saw a running row would draw
-- other probes to such an index.
CREATE INDEX job_lease ON job (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX job_orphan ON job (execution_site, id)
    WHERE execution_site IS NOT NULL AND lease_owner IS NULL AND state = 'running';
CREATE UNIQUE INDEX job_unique ON job (kind, unique_key) WHERE unique_key IS NOT NULL AND
    (unique_for = 'ever' OR state IN ('pending', 'queued', 'running', 'waiting', 'paused'));
-- What people look for is what did not go well; a job that simply succeeds never enters this one.
CREATE INDEX job_notable ON job (state, id)
    WHERE state IN ('pending', 'waiting', 'paused', 'failed', 'timed_out', 'cancelled');
CREATE INDEX job_deadline ON job (deadline_at)
    WHERE deadline_at IS NOT NULL AND state IN ('pending', 'queued', 'waiting');
CREATE INDEX job_start_by ON job (start_by)
    WHERE start_by IS NOT NULL AND attempt = 0 AND state IN ('pending', 'queued');
-- For the pruner: does anybody of this group still live?
CREATE INDEX job_group_live ON job (group_name)
    WHERE group_name IS NOT NULL AND state IN ('pending', 'queued', 'running', 'waiting', 'paused');
CREATE INDEX job_group_member ON job (group_name, id) WHERE group_name IS NOT NULL;

-- What a job needs besides its turn, interned. The id is a hash of the four values, so that two producers never wait
-- for each other to learn it.
CREATE TABLE gate (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL,
    kind     TEXT NOT NULL,
    slots    TEXT,
    rate_key TEXT
);

-- "Look at this lane from this time on." Gate 0 means that the next head is unknown.
CREATE TABLE ticket (
    gate         INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    lane         TEXT NOT NULL
);
CREATE INDEX ticket_claim ON ticket (gate, priority DESC, available_at);

CREATE TABLE pause (
    scope     TEXT NOT NULL CHECK (scope IN ('queue', 'kind')),
    name      TEXT NOT NULL,
    paused_by TEXT,
    reason    TEXT,
    paused_at INTEGER NOT NULL,
    until     INTEGER,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;

CREATE TABLE job_group (
    name    TEXT PRIMARY KEY,
    state   TEXT NOT NULL DEFAULT 'active',
    reason  TEXT,
    version INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;

CREATE TABLE tag (
    name   TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (name, job_id)
) WITHOUT ROWID;
CREATE INDEX tag_job ON tag (job_id);

CREATE TABLE question (
    job_id    TEXT NOT NULL,
    key       TEXT NOT NULL,
    text      TEXT NOT NULL,
    schema    TEXT,
    answer    TEXT,
    asked_at  INTEGER NOT NULL,
    closed_at INTEGER,
    PRIMARY KEY (job_id, key)
) WITHOUT ROWID;

-- Only what the row itself cannot tell: retries, losses, adoptions, pauses, operators' actions.
CREATE TABLE history (
    id         INTEGER PRIMARY KEY,
    job_id     TEXT NOT NULL,
    at         INTEGER NOT NULL,
    event      TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    token      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    actor      TEXT,
    detail     TEXT
);
CREATE INDEX history_job ON history (job_id, id);

-- Who works here, as each worker last said of itself. Nothing is decided by it: it explains why a job is not running.
CREATE TABLE worker (
    owner       TEXT PRIMARY KEY,
    queues      TEXT NOT NULL,
    kinds       TEXT NOT NULL,
    sites       TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    running     INTEGER NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0,
    version     TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL
) WITHOUT ROWID;
