-- A job is a row that stays and a row that moves. The request is a row of `job`, inserted once. The job's position is a
-- row in exactly one *place*: ready | lane_place → lease → parked → outcome. The place is the state. What few jobs have
-- is a table of its own, so that a plain job pays nothing for it. docs/decisions/0021 has the reasons. The tables are
-- in the user's own file, so every name has a prefix. Times are whole microseconds since 1970, UTC.

-- The request. Its row is also the anchor: every careful verb locks it before it moves the job; claim, renew and plain
-- settle never do. `seq` is the inner key and order of arrival, never given twice, `id` the only public name. A fact of
-- few calls is a nullable column without index or check: null costs nothing. Only resume(args=…) updates rows.
CREATE TABLE leasehold_job (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL CONSTRAINT job_id UNIQUE,
    gate            INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    lease_seconds   REAL NOT NULL DEFAULT 30,
    priority        INTEGER NOT NULL DEFAULT 0 CONSTRAINT job_priority_in_range CHECK (priority BETWEEN -100 AND 100),
    task            TEXT NOT NULL,
    queue           TEXT NOT NULL,
    policy          TEXT,
    args            TEXT NOT NULL,
    available_at    INTEGER,
    lane            TEXT,
    group_name      TEXT,
    unique_key      TEXT,
    unique_for_ever INTEGER,
    tags            TEXT,
    deadline_at     INTEGER,
    start_by        INTEGER,
    retry_of        TEXT,
    trace           TEXT,
    -- PostgreSQL's json type refuses what is not JSON; so does this.
    CONSTRAINT job_args_are_json CHECK (json_valid(args))
);

-- `special` is in every place and only rises. 0: plain. 1: tied, its end changes rows of other tables. 2: awaited, its
-- end is judged in Python for the jobs that wait for it.

-- Can be claimed from `available_at` on. Stored in the order of claims: a claim is one range at the head.
CREATE TABLE leasehold_ready (
    seq           INTEGER NOT NULL UNIQUE,
    gate          INTEGER NOT NULL,
    priority      INTEGER NOT NULL DEFAULT 0,
    available_at  INTEGER NOT NULL,
    token         INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 0,
    lease_seconds REAL NOT NULL DEFAULT 30,
    special       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (gate, priority DESC, available_at, seq)
) WITHOUT ROWID;

-- Queued in a lane, in the lane's order. `lane_at` is the epoch once the job has started: it stays first.
CREATE TABLE leasehold_lane_place (
    seq           INTEGER NOT NULL,
    lane          TEXT NOT NULL,
    lane_at       INTEGER NOT NULL,
    gate          INTEGER NOT NULL,
    priority      INTEGER NOT NULL,
    available_at  INTEGER NOT NULL,
    token         INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 0,
    lease_seconds REAL NOT NULL,
    special       INTEGER NOT NULL,
    PRIMARY KEY (lane, lane_at, seq)
) WITHOUT ROWID;

-- A worker runs it. No second index: the sweep reads the whole table, which is small. `stop` is the flag (1 finish, 2
-- pause, 3 cancel): it is in the row that every ending deletes.
CREATE TABLE leasehold_lease (
    job           INTEGER PRIMARY KEY,
    token         INTEGER NOT NULL CONSTRAINT lease_token_positive CHECK (token > 0),
    expires_at    INTEGER NOT NULL,
    started_at    INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    worker        INTEGER NOT NULL,
    lease_seconds REAL NOT NULL,
    special       INTEGER NOT NULL DEFAULT 0,
    stop          INTEGER NOT NULL DEFAULT 0 CONSTRAINT lease_stop_known CHECK (stop BETWEEN 0 AND 3)
);

-- Must not be claimed. state: 1 pending, 2 waiting, 3 paused, 4 orphan (it may still run, but no worker holds it).
CREATE TABLE leasehold_parked (
    job        INTEGER PRIMARY KEY,
    state      INTEGER NOT NULL CONSTRAINT parked_state_known CHECK (state BETWEEN 1 AND 4),
    token      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    special    INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    stop       INTEGER NOT NULL DEFAULT 0,
    held       INTEGER NOT NULL DEFAULT 0,
    unmet      INTEGER NOT NULL DEFAULT 0 CONSTRAINT parked_unmet_not_negative CHECK (unmet >= 0),
    lane_at    INTEGER,
    started_at INTEGER,
    reason     TEXT,
    CONSTRAINT parked_stop_only_orphan CHECK (stop = 0 OR (state = 4 AND stop BETWEEN 1 AND 3)),
    CONSTRAINT parked_hold_only_pending CHECK (NOT held OR state = 1)
);
CREATE INDEX leasehold_parked_state ON leasehold_parked (state, job);

-- How it ended. state: 1 succeeded, 2 cancelled, 3 failed, 4 timed out. started_at: its last attempt, if there was one.
-- worker is null if the job was not ended by the holder of a lease.
CREATE TABLE leasehold_outcome (
    job         INTEGER PRIMARY KEY,
    token       INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    started_at  INTEGER,
    attempt     INTEGER NOT NULL,
    worker      INTEGER,
    state       INTEGER NOT NULL CONSTRAINT outcome_state_known CHECK (state BETWEEN 1 AND 4),
    special     INTEGER NOT NULL DEFAULT 0,
    result      TEXT,
    result_ref  TEXT,
    error       TEXT,
    reason      TEXT,
    CONSTRAINT outcome_result_is_json CHECK (result IS NULL OR json_valid(result))
);
-- People search for what did not go well; a plain success never enters this index.
CREATE INDEX leasehold_outcome_notable ON leasehold_outcome (state, job) WHERE state <> 1;

-- Results that are too large for their row and not in a file: `result_ref` names token and number of such a result. An
-- attempt may write several, of which its success names one.
CREATE TABLE leasehold_result_piece (
    job    INTEGER NOT NULL,
    token  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    piece  INTEGER NOT NULL,
    text   TEXT NOT NULL,
    PRIMARY KEY (job, token, number, piece)
);

-- What an attempt leaves for the next one, and what the place does not have: counters, when it first and last started,
-- its due time once that was postponed, the last error, and why it waits or is to stop.
CREATE TABLE leasehold_failure_state (
    job              INTEGER PRIMARY KEY,
    failures         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    first_started_at INTEGER,
    started_at       INTEGER,
    available_at     INTEGER,
    error            TEXT,
    reason           TEXT,
    changed_at       INTEGER NOT NULL
);

-- Every grant's end has one record: the outcome, if that attempt ended the job, else a row here.
CREATE TABLE leasehold_attempt (
    job        INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    worker     INTEGER,
    settled    INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    ended      TEXT NOT NULL,
    error      TEXT,
    PRIMARY KEY (job, token)
) WITHOUT ROWID;

-- The workers that hold leases, by a number that is never used again.
CREATE TABLE leasehold_worker_name (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL CONSTRAINT worker_name_unique UNIQUE
);

-- The job that has a key now. The primary key is the guard.
CREATE TABLE leasehold_unique_key (
    task     TEXT NOT NULL,
    key      TEXT NOT NULL,
    job_id   TEXT NOT NULL,
    for_ever INTEGER NOT NULL,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

-- The job that has started in a lane, or halts it. The primary key is the guard: two claimers that saw different heads
-- cannot both commit.
CREATE TABLE leasehold_lane_hold (
    lane TEXT PRIMARY KEY,
    job  INTEGER NOT NULL
) WITHOUT ROWID;

-- Jobs that have not started and block the lane all the same: paused while they were queued.
CREATE TABLE leasehold_lane_stop (
    lane TEXT NOT NULL,
    job  INTEGER NOT NULL,
    PRIMARY KEY (lane, job)
) WITHOUT ROWID;

-- A lane to check from `available_at` on. Addressed by rowid; gate 0 means that the next head is unknown.
CREATE TABLE leasehold_ticket (
    gate         INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    lane         TEXT NOT NULL
);
CREATE INDEX leasehold_ticket_claim ON leasehold_ticket (gate, priority DESC, available_at);

-- What a job needs besides its turn, stored once for all jobs alike. The id is a hash of the four values, so that two
-- producers never wait for each other to learn it.
CREATE TABLE leasehold_gate (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL,
    task     TEXT NOT NULL,
    slots    TEXT,
    rate_key TEXT
);

CREATE TABLE leasehold_pause (
    scope     TEXT NOT NULL CONSTRAINT pause_scope_known CHECK (scope IN ('queue', 'task')),
    name      TEXT NOT NULL,
    paused_by TEXT,
    reason    TEXT,
    paused_at INTEGER NOT NULL,
    until     INTEGER,
    PRIMARY KEY (scope, name)
);

-- How many units may be in use at once. Use is counted from lease_slot and slot_hold: no total that could drift.
CREATE TABLE leasehold_slot (
    name TEXT PRIMARY KEY,
    lim  INTEGER NOT NULL CONSTRAINT slot_limit_not_negative CHECK (lim >= 0)
);

-- Attempts that use slots by their gate; an orphan keeps its row.
CREATE TABLE leasehold_lease_slot (
    job  INTEGER PRIMARY KEY,
    gate INTEGER NOT NULL
);

-- Units taken inside an attempt. They count while the job runs in that attempt; what is left of others is swept.
CREATE TABLE leasehold_slot_hold (
    name    TEXT NOT NULL,
    job     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    units   INTEGER NOT NULL CONSTRAINT slot_hold_units_positive CHECK (units > 0),
    PRIMARY KEY (name, job, attempt)
) WITHOUT ROWID;
CREATE INDEX leasehold_slot_hold_job ON leasehold_slot_hold (job);

-- `next_at`: when the next job would start if they came evenly. One row and one instant per key.
CREATE TABLE leasehold_rate (
    key           TEXT PRIMARY KEY,
    lim           TEXT NOT NULL,
    spacing       REAL NOT NULL CONSTRAINT rate_spacing_positive CHECK (spacing > 0),
    burst         INTEGER NOT NULL CONSTRAINT rate_burst_positive CHECK (burst >= 1),
    next_at       INTEGER NOT NULL,
    closed        INTEGER NOT NULL DEFAULT 0,
    closed_until  INTEGER,
    closed_by     TEXT,
    closed_reason TEXT
);

-- One row per task that was ever run immediately: such calls lock it, so that they decide one after the other.
CREATE TABLE leasehold_running_cap (
    task TEXT PRIMARY KEY
);

-- `live`: its jobs that have not ended; it changes with the version. `stop_…`: the last stop of the group, of the whole
-- of it or of a part, whatever its state has become since. `stopping_until`: a stop of the group is at work, and
-- follow-ups in its scope are stored as cancelled; a stop that was killed ends then.
CREATE TABLE leasehold_job_group (
    name        TEXT PRIMARY KEY,
    state       TEXT NOT NULL DEFAULT 'active',
    reason      TEXT,
    version     INTEGER NOT NULL DEFAULT 1,
    live        INTEGER NOT NULL DEFAULT 0,
    changed_by  TEXT,
    changed_at  INTEGER,
    stop_scope  TEXT,
    stop_mode   TEXT,
    stop_reason TEXT,
    stopped_by  TEXT,
    stopped_at  INTEGER,
    stopping_until INTEGER
);

-- For lists of groups in one state.
CREATE INDEX leasehold_job_group_state ON leasehold_job_group (state, name);

CREATE TABLE leasehold_member (
    group_name TEXT NOT NULL,
    job        INTEGER NOT NULL,
    PRIMARY KEY (group_name, job)
) WITHOUT ROWID;

-- what: 1 deadline of the whole job, 2 the time by which it must start.
CREATE TABLE leasehold_time_limit (
    job    INTEGER NOT NULL,
    what   INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    PRIMARY KEY (job, what)
) WITHOUT ROWID;
CREATE INDEX leasehold_time_limit_due ON leasehold_time_limit (due_at);

-- Where an execution runs: one per attempt, kept. Stored before the start; `started_at` is set after it. `origin` is the
-- identity of the database that has placed it: a copy of the database leaves it alone.
CREATE TABLE leasehold_execution (
    job        INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    site       TEXT NOT NULL,
    name       TEXT NOT NULL,
    origin     TEXT NOT NULL,
    placed_at  INTEGER NOT NULL,
    started_at INTEGER,
    PRIMARY KEY (job, attempt)
) WITHOUT ROWID;

CREATE TABLE leasehold_tag (
    name   TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (name, job_id)
) WITHOUT ROWID;
CREATE INDEX leasehold_tag_job ON leasehold_tag (job_id);

-- A child waits for its parents. `met` is set once the parent has ended in a way that lets the child run.
CREATE TABLE leasehold_dependency (
    child_id   TEXT NOT NULL,
    parent_id  TEXT NOT NULL,
    position   INTEGER NOT NULL,
    on_failure TEXT NOT NULL CONSTRAINT dependency_on_failure_known CHECK (on_failure IN ('cancel', 'run')),
    met        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (child_id, parent_id)
) WITHOUT ROWID;
CREATE INDEX leasehold_dependency_parent ON leasehold_dependency (parent_id);

-- Which job's handler has enqueued which job.
CREATE TABLE leasehold_follow_up (
    parent_id TEXT NOT NULL,
    child_id  TEXT NOT NULL,
    PRIMARY KEY (parent_id, child_id)
) WITHOUT ROWID;
CREATE INDEX leasehold_follow_up_child ON leasehold_follow_up (child_id);

-- A secret answer is shown to the job alone, and is deleted when the job has ended for good; `answered` outlives it.
CREATE TABLE leasehold_question (
    job_id     TEXT NOT NULL,
    key        TEXT NOT NULL,
    text       TEXT NOT NULL,
    schema     TEXT,
    answer     TEXT,
    asked_at   INTEGER NOT NULL,
    closed_at  INTEGER,
    secret     INTEGER NOT NULL DEFAULT 0,
    answered   INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    expired    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, key)
);
-- Open ones only, which are few: those that expire, and the inbox in the order of asked_at.
CREATE INDEX leasehold_question_expiry ON leasehold_question (expires_at) WHERE closed_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX leasehold_question_open ON leasehold_question (asked_at) WHERE closed_at IS NULL;

-- What a job's steps have returned. A step that is stored here does not run again, whichever attempt comes to it.
CREATE TABLE leasehold_step (
    job_id   TEXT NOT NULL,
    name     TEXT NOT NULL,
    result   TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    saved_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- How far a job's loop has come: one state per job, the last one counts.
CREATE TABLE leasehold_checkpoint (
    job_id   TEXT PRIMARY KEY,
    state    TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    saved_at INTEGER NOT NULL
);

-- What a job reports while it runs: partial results, its newest progress, stalls. Numbered per job, without gaps, while
-- its lease is locked.
CREATE TABLE leasehold_job_update (
    job_id  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    data    TEXT,
    key     TEXT,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job_id, seq),
    CONSTRAINT job_update_data_is_json CHECK (data IS NULL OR json_valid(data))
);
-- Once per key, also after a crash and a retry.
CREATE UNIQUE INDEX leasehold_job_update_key ON leasehold_job_update (job_id, key) WHERE key IS NOT NULL;
-- A forty-minute job leaves one row of progress, not thousands.
CREATE UNIQUE INDEX leasehold_job_update_progress ON leasehold_job_update (job_id) WHERE kind = 'progress';

-- How far a job's numbers have come, and the last note of the last lease that was written: what is sent again after a
-- lost reply is written once. One row per job that ever reported something.
CREATE TABLE leasehold_stream (
    job_id    TEXT PRIMARY KEY,
    last_seq  INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    last_note INTEGER NOT NULL
);

-- The last lines that each attempt has logged; `cut` is how many characters before them were dropped. `read_to` is how
-- far the output of its execution was read, as JSON: the worker that adopts the execution reads on from there.
CREATE TABLE leasehold_log_tail (
    job_id  TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    text    TEXT NOT NULL,
    cut     INTEGER NOT NULL DEFAULT 0,
    read_to TEXT,
    PRIMARY KEY (job_id, attempt)
);

-- The ledger: what was spent, under which key and which lease. The key makes a repeat harmless. No fence: money that an
-- attempt has spent is spent, also after its lease was lost.
CREATE TABLE leasehold_spending (
    job_id  TEXT NOT NULL,
    key     TEXT NOT NULL,
    unit    TEXT NOT NULL,
    amount  INTEGER NOT NULL CONSTRAINT spending_not_negative CHECK (amount >= 0),
    token   INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job_id, key, unit)
);

-- Totals and limits of jobs and groups. A total changes in the transaction that writes its row of the ledger. A job's
-- own limit is here only once it was raised; before that it is in the job's policy.
CREATE TABLE leasehold_budget (
    scope TEXT NOT NULL CONSTRAINT budget_scope_known CHECK (scope IN ('job', 'group')),
    name  TEXT NOT NULL,
    unit  TEXT NOT NULL,
    lim   INTEGER,
    spent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name, unit)
);

-- A running job that a stop has flagged, and the scope of that stop: follow-ups of the job that fall under the same
-- scope are created cancelled.
CREATE TABLE leasehold_stop_mark (
    job_id TEXT NOT NULL,
    scope  TEXT NOT NULL,
    reason TEXT,
    actor  TEXT,
    at     INTEGER NOT NULL,
    PRIMARY KEY (job_id, scope)
);

-- Only what the rows themselves do not show: retries, losses, adoptions, pauses, operators' actions.
CREATE TABLE leasehold_history (
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
CREATE INDEX leasehold_history_job ON leasehold_history (job_id, id);

-- The workers, as each last reported itself. Nothing is decided by these rows: they explain why a job is not running.
CREATE TABLE leasehold_worker (
    worker      TEXT PRIMARY KEY,
    queues      TEXT NOT NULL,
    tasks       TEXT NOT NULL,
    sites       TEXT NOT NULL,
    tenants     TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    running     INTEGER NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0,
    version     TEXT NOT NULL,
    problems    TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL
);

-- Names made from arguments that were too long for an index: as they are stored, and in full, for readers. They stay:
-- another job may have the same name tomorrow.
CREATE TABLE leasehold_long_name (
    name  TEXT PRIMARY KEY,
    whole TEXT NOT NULL
) WITHOUT ROWID;

-- When tasks are due by themselves. `next_at` is the first tick that was not handled yet: the transaction that makes
-- its jobs also moves it on, so a tick is handled once however many workers check. source: 'code' or 'set'.
CREATE TABLE leasehold_schedule (
    name       TEXT PRIMARY KEY,
    task       TEXT NOT NULL,
    args       TEXT NOT NULL,
    every      REAL CONSTRAINT schedule_every_positive CHECK (every > 0),
    cron       TEXT,
    tz         TEXT NOT NULL,
    missed     TEXT NOT NULL,
    overlap    TEXT NOT NULL,
    at_start   INTEGER NOT NULL,
    source     TEXT NOT NULL,
    next_at    INTEGER NOT NULL,
    last_at    INTEGER,
    last_job   TEXT,
    passed     INTEGER NOT NULL DEFAULT 0,
    paused     INTEGER NOT NULL DEFAULT 0,
    paused_by  TEXT,
    reason     TEXT,
    changed_at INTEGER NOT NULL,
    CONSTRAINT schedule_one_when CHECK ((every IS NULL) <> (cron IS NULL))
) WITHOUT ROWID;

-- Which workers declare a schedule in their code.
CREATE TABLE leasehold_schedule_host (
    schedule TEXT NOT NULL,
    worker   TEXT NOT NULL,
    since    INTEGER NOT NULL,
    PRIMARY KEY (schedule, worker)
) WITHOUT ROWID;

-- Tables of the user's own that triggers keep in step with the jobs of a task. `spec` describes how: a migration that
-- makes a place anew makes the triggers again from it.
CREATE TABLE leasehold_mirror (
    name TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    spec TEXT NOT NULL
) WITHOUT ROWID;

-- How long the jobs of a task that ended in a state are kept, as its code sets it: registered by workers when they
-- start, so that a pruner without that code knows. state as in `outcome`; seconds null: for ever.
CREATE TABLE leasehold_retention (
    task    TEXT NOT NULL,
    state   INTEGER NOT NULL,
    seconds REAL,
    PRIMARY KEY (task, state)
) WITHOUT ROWID;

-- Which listener is notified of what. `task`: of jobs of this task alone; empty: of all. `seen_at` is when a process
-- last had its code; NULL: it was made by hand, and stays.
CREATE TABLE leasehold_listener (
    name    TEXT NOT NULL,
    event   TEXT NOT NULL,
    task    TEXT NOT NULL DEFAULT '',
    webhook INTEGER NOT NULL DEFAULT 0,
    since   INTEGER NOT NULL,
    seen_at INTEGER,
    PRIMARY KEY (event, name, task)
);

-- Events that were not delivered yet, one row per listener. The taker moves `due_at` on; NULL: it is not tried again.
CREATE TABLE leasehold_outbox (
    id         TEXT PRIMARY KEY,
    listener   TEXT NOT NULL,
    event      TEXT NOT NULL,
    job_id     TEXT,
    task       TEXT NOT NULL,
    queue      TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    group_name TEXT,
    detail     TEXT NOT NULL,
    data       TEXT NOT NULL,
    at         INTEGER NOT NULL,
    tries      INTEGER NOT NULL DEFAULT 0,
    due_at     INTEGER,
    error      TEXT
);
CREATE INDEX leasehold_outbox_due ON leasehold_outbox (listener, due_at);

-- Where a listener's events are posted to.
CREATE TABLE leasehold_webhook (
    name          TEXT PRIMARY KEY,
    url           TEXT NOT NULL,
    signing_key   TEXT NOT NULL,
    allow_private INTEGER NOT NULL,
    source        TEXT NOT NULL,
    changed_at    INTEGER NOT NULL
);

-- Other stores beside this one, each with jobs of its own: a file each. `version` rises after the commit that may have
-- made work in it, and shows workers which stores to check. A row that is not ready is being made, or dropped.
CREATE TABLE leasehold_tenant (
    name       TEXT PRIMARY KEY,
    ready      INTEGER NOT NULL DEFAULT 0,
    version       INTEGER NOT NULL DEFAULT 0,
    changed_at    INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX leasehold_tenant_changed ON leasehold_tenant (changed_at);

-- Callers over HTTP, and what each may do. The token itself is not stored: `hash` is its SHA-256.
CREATE TABLE leasehold_token (
    name       TEXT PRIMARY KEY,
    hash       TEXT NOT NULL CONSTRAINT token_hash UNIQUE,
    scopes     TEXT NOT NULL,
    tenants    TEXT NOT NULL,
    queues     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

-- What operators have done, written in the transaction of the verb itself; and what was refused.
CREATE TABLE leasehold_audit (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT,
    verb    TEXT NOT NULL,
    target  TEXT,
    detail  TEXT NOT NULL,
    outcome TEXT NOT NULL CONSTRAINT audit_outcome_known CHECK (outcome IN ('done', 'refused')),
    error   TEXT,
    CONSTRAINT audit_error_of_refusals CHECK ((error IS NOT NULL) = (outcome = 'refused'))
);
CREATE INDEX leasehold_audit_actor ON leasehold_audit (actor, seq);
CREATE INDEX leasehold_audit_verb ON leasehold_audit (verb, seq);
CREATE INDEX leasehold_audit_target ON leasehold_audit (target, seq);

-- Requests to enqueue that may be repeated: the request, and its result. Written with the jobs; only requests with an
-- Idempotency-Key have one.
CREATE TABLE leasehold_idempotency_key (
    key         TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    answer      TEXT NOT NULL,
    at          INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX leasehold_idempotency_key_at ON leasehold_idempotency_key (at);

-- How attempts have ended, how long their jobs had waited and how long they took: by the minute, and since ever under
-- minute 0. Workers add to it with their beats. Buckets: a JSON array, by place the bounds of domain/metrics.py.
CREATE TABLE leasehold_rollup (
    minute       INTEGER NOT NULL,
    queue        TEXT NOT NULL,
    task         TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    runs         INTEGER NOT NULL,
    wait_seconds REAL NOT NULL,
    run_seconds  REAL NOT NULL,
    wait_buckets TEXT NOT NULL,
    run_buckets  TEXT NOT NULL,
    PRIMARY KEY (minute, queue, task, outcome)
) WITHOUT ROWID;

-- One row per job. Each branch is a state: it joins the job with one place and passes `j.*` on, so a column of `job` is
-- named once, at the top. Other tables are joined once, below. LEFT JOIN for the gate, which every job has: with JOIN,
-- SQLite (3.40) collects all rows before LIMIT counts. Statements that read a whole job read this one.
CREATE VIEW leasehold_job_row AS
SELECT j.seq, j.id, j.task, j.queue, j.gate, g.slots IS NOT NULL AS limited, j.priority, j.state,
    CASE WHEN j.own_reason THEN j.reason WHEN j.stop IS NULL OR j.stop <> 0 THEN t.reason END AS reason, j.args, j.policy,
    j.created_at, coalesce(j.due_at, t.available_at, j.available_at, j.created_at) AS available_at, j.lane,
    CASE WHEN h.lane IS NOT NULL OR (j.place = 'lease' AND j.lane IS NOT NULL) THEN 0 ELSE j.lane_at END AS lane_at,
    h.lane IS NOT NULL AS halts_lane, CASE WHEN j.place = 'lease' THEN o.name END AS worker,
    j.expires_at AS lease_expires_at, j.lease_seconds, j.token AS lease_token, j.attempt, coalesce(t.failures, 0) AS failures,
    coalesce(t.crashes, 0) AS crashes, CASE j.stop WHEN 1 THEN 'finish' WHEN 2 THEN 'pause' WHEN 3 THEN 'cancel' END AS stop_requested,
    x.site AS execution_site, x.name AS execution_name, x.started_at AS execution_started_at,
    coalesce(t.first_started_at, j.first_at) AS first_started_at,
    CASE WHEN j.place = 'parked' THEN j.started_at ELSE coalesce(j.started_at, t.started_at) END AS started_at, j.finished_at,
    CASE WHEN j.place = 'outcome' THEN o.name END AS settled_by,
    CASE WHEN j.place = 'outcome' AND j.worker IS NOT NULL THEN j.token END AS settled_token, j.result, j.result_ref,
    CASE WHEN j.state <> 'succeeded' THEN coalesce(j.error, t.error) END AS error, j.unique_key,
    CASE WHEN j.unique_for_ever THEN 'ever' ELSE 'live' END AS unique_for, j.group_name, j.tags, j.held,
    CASE WHEN j.state = 'timed_out' THEN (SELECT count(*) FROM leasehold_dependency AS d WHERE d.child_id = j.id AND NOT d.met)
        ELSE j.unmet END AS unmet,
    j.special, j.deadline_at, j.start_by, j.retry_of, j.trace, coalesce(j.changed_at, t.changed_at, j.created_at) AS updated_at
FROM (
    SELECT j.*, p.token, p.attempt, p.special, 'ready' AS place, 'queued' AS state, p.available_at AS due_at,
        NULL AS lane_at, NULL AS expires_at, NULL AS started_at, NULL AS first_at, NULL AS finished_at,
        NULL AS changed_at, NULL AS worker, NULL AS stop, 0 AS own_reason, NULL AS reason, NULL AS error,
        NULL AS result, NULL AS result_ref, 0 AS held, 0 AS unmet
    FROM leasehold_ready AS p JOIN leasehold_job AS j ON j.seq = p.seq
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'lane', 'queued', p.available_at, p.lane_at, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, 0
    FROM leasehold_lane_place AS p JOIN leasehold_job AS j ON j.seq = p.seq AND j.lane = p.lane
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'lease', 'running', NULL, NULL, p.expires_at, p.started_at,
        p.started_at, NULL, p.started_at, p.worker, p.stop, 0, NULL, NULL, NULL, NULL, 0, 0
    FROM leasehold_lease AS p JOIN leasehold_job AS j ON j.seq = p.job
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'parked', 'running', NULL, p.lane_at, NULL, p.started_at,
        p.started_at, NULL, p.started_at, NULL, p.stop, 1, p.reason, NULL, NULL, NULL, p.held, p.unmet
    FROM leasehold_parked AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 4
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'parked', 'pending', NULL, p.lane_at, NULL, p.started_at, NULL, NULL,
        p.since, NULL, NULL, 1, p.reason, NULL, NULL, NULL, p.held, p.unmet
    FROM leasehold_parked AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 1
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'parked', 'waiting', NULL, p.lane_at, NULL, p.started_at, NULL, NULL,
        p.since, NULL, NULL, 1, p.reason, NULL, NULL, NULL, p.held, p.unmet
    FROM leasehold_parked AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 2
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'parked', 'paused', NULL, p.lane_at, NULL, p.started_at, NULL, NULL,
        p.since, NULL, NULL, 1, p.reason, NULL, NULL, NULL, p.held, p.unmet
    FROM leasehold_parked AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 3
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'outcome', 'succeeded', NULL, NULL, NULL, p.started_at, p.started_at,
        p.finished_at, p.finished_at, p.worker, NULL, 1, p.reason, NULL, p.result, p.result_ref, 0, 0
    FROM leasehold_outcome AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 1
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'outcome', 'cancelled', NULL, NULL, NULL, p.started_at, p.started_at,
        p.finished_at, p.finished_at, p.worker, NULL, 1, p.reason, p.error, p.result, p.result_ref, 0, 0
    FROM leasehold_outcome AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 2
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'outcome', 'failed', NULL, NULL, NULL, p.started_at, p.started_at,
        p.finished_at, p.finished_at, p.worker, NULL, 1, p.reason, p.error, p.result, p.result_ref, 0, 0
    FROM leasehold_outcome AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 3
    UNION ALL
    SELECT j.*, p.token, p.attempt, p.special, 'outcome', 'timed_out', NULL, NULL, NULL, p.started_at, p.started_at,
        p.finished_at, p.finished_at, p.worker, NULL, 1, p.reason, p.error, p.result, p.result_ref, 0, 0
    FROM leasehold_outcome AS p JOIN leasehold_job AS j ON j.seq = p.job WHERE p.state = 4
) AS j
LEFT JOIN leasehold_gate AS g ON g.id = j.gate
LEFT JOIN leasehold_failure_state AS t ON t.job = j.seq
LEFT JOIN leasehold_worker_name AS o ON o.number = j.worker
LEFT JOIN leasehold_lane_hold AS h ON h.lane = j.lane AND h.job = j.seq AND j.state IN ('failed', 'timed_out')
LEFT JOIN leasehold_execution AS x ON x.job = j.seq AND x.attempt = j.attempt AND j.state = 'running';

-- For people and their tools: one row per job with familiar columns, instants as ISO 8601 in UTC. Never write it.
CREATE VIEW leasehold_jobs AS
SELECT id, task, queue, state, reason, priority, lane, group_name, tags, unique_key, args, result, result_ref, error,
    attempt, CASE WHEN json_valid(policy) AND json_type(policy, '$.max_attempts') = 'integer' THEN json_extract(policy, '$.max_attempts') ELSE 3 END AS max_attempts,
    failures, crashes, stop_requested, worker, execution_site, execution_name, retry_of, trace,
    strftime('%Y-%m-%dT%H:%M:%S', lease_expires_at / 1000000, 'unixepoch') || printf('.%06dZ', lease_expires_at % 1000000) AS lease_expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', available_at / 1000000, 'unixepoch') || printf('.%06dZ', available_at % 1000000) AS available_at,
    strftime('%Y-%m-%dT%H:%M:%S', first_started_at / 1000000, 'unixepoch') || printf('.%06dZ', first_started_at % 1000000) AS first_started_at,
    strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%S', deadline_at / 1000000, 'unixepoch') || printf('.%06dZ', deadline_at % 1000000) AS deadline_at,
    strftime('%Y-%m-%dT%H:%M:%S', start_by / 1000000, 'unixepoch') || printf('.%06dZ', start_by % 1000000) AS start_by
FROM leasehold_job_row;
