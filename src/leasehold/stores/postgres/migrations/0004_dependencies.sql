-- Others wait for this job: its end is judged for them in the same transaction. Jobs that nobody waits for never look.
ALTER TABLE leasehold.job ADD COLUMN awaited boolean NOT NULL DEFAULT false;

-- A child waits for its parents. `met` once the parent has ended in a way that lets the child run.
CREATE TABLE leasehold.dependency (
    child_id   uuid NOT NULL,
    parent_id  uuid NOT NULL,
    position   integer NOT NULL,
    on_failure text NOT NULL CONSTRAINT dependency_on_failure_known CHECK (on_failure IN ('cancel', 'run')),
    met        boolean NOT NULL DEFAULT false,
    PRIMARY KEY (child_id, parent_id)
);
CREATE INDEX dependency_parent ON leasehold.dependency (parent_id);

-- Which job's handler asked for which. A table, not a column: a plain job pays nothing for it.
CREATE TABLE leasehold.follow_up (
    parent_id uuid NOT NULL,
    child_id  uuid NOT NULL,
    PRIMARY KEY (parent_id, child_id)
);
CREATE INDEX follow_up_child ON leasehold.follow_up (child_id);
