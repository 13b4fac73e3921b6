-- Who last stopped, held or released a group, and when.
ALTER TABLE leasehold.job_group ADD COLUMN changed_by text;
ALTER TABLE leasehold.job_group ADD COLUMN changed_at timestamptz;

-- A running job that a stop has flagged, and what that stop was about: follow-ups of it that fall under the same scope
-- are created cancelled. Gone when the run ends; after a plain success it is left to the pruner, for nobody asks again.
CREATE TABLE leasehold.stop_mark (
    job_id uuid NOT NULL,
    scope  text NOT NULL,
    reason text,
    actor  text,
    at     timestamptz NOT NULL,
    PRIMARY KEY (job_id, scope)
);
