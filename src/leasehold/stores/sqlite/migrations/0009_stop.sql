-- Who last stopped, held or released a group, and when.
ALTER TABLE job_group ADD COLUMN changed_by TEXT;
ALTER TABLE job_group ADD COLUMN changed_at INTEGER;

-- A running job that a stop has flagged, and what that stop was about: follow-ups of it that fall under the same scope
-- are created cancelled. Gone when the run ends; after a plain success it is left to the pruner, for nobody asks again.
CREATE TABLE stop_mark (
    job_id TEXT NOT NULL,
    scope  TEXT NOT NULL,
    reason TEXT,
    actor  TEXT,
    at     INTEGER NOT NULL,
    PRIMARY KEY (job_id, scope)
) WITHOUT ROWID;
