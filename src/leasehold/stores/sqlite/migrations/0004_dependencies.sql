-- Others wait for this job: its end is judged for them in the same transaction. Jobs that nobody waits for never look.
ALTER TABLE job ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0;

-- A child waits for its parents. `met` once the parent has ended in a way that lets the child run.
CREATE TABLE dependency (
    child_id   TEXT NOT NULL,
    parent_id  TEXT NOT NULL,
    position   INTEGER NOT NULL,
    on_failure TEXT NOT NULL CONSTRAINT dependency_on_failure_known CHECK (on_failure IN ('cancel', 'run')),
    met        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (child_id, parent_id)
) WITHOUT ROWID;
CREATE INDEX dependency_parent ON dependency (parent_id);

-- Which job's handler asked for which. A table, not a column: a plain job pays nothing for it.
CREATE TABLE follow_up (
    parent_id TEXT NOT NULL,
    child_id  TEXT NOT NULL,
    PRIMARY KEY (parent_id, child_id)
) WITHOUT ROWID;
CREATE INDEX follow_up_child ON follow_up (child_id);
