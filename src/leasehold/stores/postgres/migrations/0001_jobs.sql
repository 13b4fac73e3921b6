-- The job row carries the whole protocol: state, lease, token, counters. Columns that later features need are here
-- from the start, because a hot table is not altered lightly.
CREATE TABLE leasehold.job (
    id                   uuid PRIMARY KEY,
    seq                  bigint GENERATED ALWAYS AS IDENTITY,
    kind                 text NOT NULL,
    queue                text NOT NULL,
    gate                 bigint NOT NULL,
    limited              boolean NOT NULL DEFAULT false,
    priority             smallint NOT NULL DEFAULT 0,
    state                text NOT NULL,
    reason               text,
    args                 json NOT NULL,
    policy               json,
    created_at           timestamptz NOT NULL,
    available_at         timestamptz NOT NULL,
    lane                 text,
    lane_at              timestamptz,
    halts_lane           boolean NOT NULL DEFAULT false,
    lease_owner          text,
    lease_expires_at     timestamptz,
    lease_seconds        double precision NOT NULL DEFAULT 30,
    lease_token          bigint NOT NULL DEFAULT 0,
    attempt              integer NOT NULL DEFAULT 0,
    failures             integer NOT NULL DEFAULT 0,
    crashes              integer NOT NULL DEFAULT 0,
    stop_requested       text,
    execution_site       text,
    execution_name       text,
    execution_started_at timestamptz,
    first_started_at     timestamptz,
    started_at           timestamptz,
    finished_at          timestamptz,
    settled_by           text,
    settled_token        bigint,
    result               json,
    result_ref           text,
    error                text,
    unique_key           text,
    unique_for           text NOT NULL DEFAULT 'live',
    group_name           text,
    tags                 json,
    held                 boolean NOT NULL DEFAULT false,
    unmet                integer NOT NULL DEFAULT 0,
    deadline_at          timestamptz,
    start_by             timestamptz,
    retry_of             uuid,
    trace                text,
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
    CONSTRAINT job_unique_for_known CHECK (unique_for IN ('live', 'ever'))
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- Rows that cannot be claimed are not in it, so a claim never walks past them: finished ones by the state, lane jobs
-- by the lane, paused kinds and queues by their gate, delayed ones by the due time behind the priority.
CREATE INDEX job_claim ON leasehold.job (gate, priority DESC, available_at, seq) WHERE lane IS NULL AND state = 'queued';
CREATE INDEX job_lane ON leasehold.job (lane, lane_at, seq) WHERE lane IS NOT NULL AND state = 'queued';
-- The tripwire: a lane belongs to the job that has started in it, until that job is done or passed over. Two claimers
-- that saw different heads cannot both commit, not even if the first one's job has failed and halts the lane by then.
CREATE UNIQUE INDEX job_lane_held ON leasehold.job (lane) WHERE lane IS NOT NULL AND lane_at = '1970-01-01 00:00:00+00' AND
    (state IN ('queued', 'running', 'waiting', 'paused') OR halts_lane);
CREATE INDEX job_lane_halt ON leasehold.job (lane) WHERE lane IS NOT NULL AND
    (state IN ('waiting', 'paused') OR (state IN ('failed', 'timed_out') AND halts_lane));
-- By owner, not by expiry: a renewal then touches no indexed column (a HOT update on PostgreSQL), and the sweep reads
-- the live leases, which are few. Not WHERE state = 'running': statistics that never saw a running row would draw
-- other probes to such an index.
CREATE INDEX job_lease ON leasehold.job (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX job_orphan ON leasehold.job (execution_site, id)
    WHERE execution_site IS NOT NULL AND lease_owner IS NULL AND state = 'running';
CREATE UNIQUE INDEX job_unique ON leasehold.job (kind, unique_key) WHERE unique_key IS NOT NULL AND
    (unique_for = 'ever' OR state IN ('pending', 'queued', 'running', 'waiting', 'paused'));
-- What people look for is what did not go well; a job that simply succeeds never enters this one.
CREATE INDEX job_notable ON leasehold.job (state, id)
    WHERE state IN ('pending', 'waiting', 'paused', 'failed', 'timed_out', 'cancelled');
CREATE INDEX job_deadline ON leasehold.job (deadline_at)
    WHERE deadline_at IS NOT NULL AND state IN ('pending', 'queued', 'waiting');
CREATE INDEX job_start_by ON leasehold.job (start_by)
    WHERE start_by IS NOT NULL AND attempt = 0 AND state IN ('pending', 'queued');
-- For the pruner: does anybody of this group still live?
CREATE INDEX job_group_live ON leasehold.job (group_name)
    WHERE group_name IS NOT NULL AND state IN ('pending', 'queued', 'running', 'waiting', 'paused');
CREATE INDEX job_group_member ON leasehold.job (group_name, id) WHERE group_name IS NOT NULL;

-- What a job needs besides its turn, interned. The id is a hash of the four values, so that two producers never wait
-- for each other to learn it.
CREATE TABLE leasehold.gate (
    id       bigint PRIMARY KEY,
    queue    text NOT NULL,
    kind     text NOT NULL,
    slots    json,
    rate_key text
);

-- "Look at this lane from this time on." Addressed by ctid; gate 0 means that the next head is unknown.
CREATE TABLE leasehold.ticket (
    gate         bigint NOT NULL,
    priority     smallint NOT NULL,
    available_at timestamptz NOT NULL,
    lane         text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ticket_claim ON leasehold.ticket (gate, priority DESC, available_at);

CREATE TABLE leasehold.pause (
    scope     text NOT NULL CHECK (scope IN ('queue', 'kind')),
    name      text NOT NULL,
    paused_by text,
    reason    text,
    paused_at timestamptz NOT NULL,
    until     timestamptz,
    PRIMARY KEY (scope, name)
);

CREATE TABLE leasehold.job_group (
    name    text PRIMARY KEY,
    state   text NOT NULL DEFAULT 'active',
    reason  text,
    version bigint NOT NULL DEFAULT 1
);

CREATE TABLE leasehold.tag (
    name   text NOT NULL,
    job_id uuid NOT NULL,
    PRIMARY KEY (name, job_id)
);
CREATE INDEX tag_job ON leasehold.tag (job_id);

CREATE TABLE leasehold.question (
    job_id    uuid NOT NULL,
    key       text NOT NULL,
    text      text NOT NULL,
    schema    json,
    answer    json,
    asked_at  timestamptz NOT NULL,
    closed_at timestamptz,
    PRIMARY KEY (job_id, key)
);

-- Only what the row itself cannot tell: retries, losses, adoptions, pauses, operators' actions.
CREATE TABLE leasehold.history (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     uuid NOT NULL,
    at         timestamptz NOT NULL,
    event      text NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    token      bigint NOT NULL,
    attempt    integer NOT NULL,
    actor      text,
    detail     text
);
CREATE INDEX history_job ON leasehold.history (job_id, id);

-- Who works here, as each worker last said of itself. Nothing is decided by it: it explains why a job is not running.
CREATE TABLE leasehold.worker (
    owner       text PRIMARY KEY,
    queues      json NOT NULL,
    kinds       json NOT NULL,
    sites       json NOT NULL,
    concurrency integer NOT NULL,
    running     integer NOT NULL,
    draining    boolean NOT NULL DEFAULT false,
    version     text NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL
);
