-- A secret answer is shown to the job alone, and goes when the job has ended for good; `answered` outlives it.
ALTER TABLE leasehold.question ADD COLUMN secret boolean NOT NULL DEFAULT false;
ALTER TABLE leasehold.question ADD COLUMN answered boolean NOT NULL DEFAULT false;
ALTER TABLE leasehold.question ADD COLUMN expires_at timestamptz;
ALTER TABLE leasehold.question ADD COLUMN expired boolean NOT NULL DEFAULT false;
UPDATE leasehold.question SET answered = true WHERE answer IS NOT NULL;

-- Open ones only, which are few: those that run out, and the inbox in the order of asking.
CREATE INDEX question_expiry ON leasehold.question (expires_at) WHERE closed_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX question_open ON leasehold.question (asked_at) WHERE closed_at IS NULL;
