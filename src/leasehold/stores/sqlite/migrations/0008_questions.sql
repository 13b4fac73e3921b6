-- A secret answer is shown to the job alone, and goes when the job has ended for good; `answered` outlives it.
ALTER TABLE question ADD COLUMN secret INTEGER NOT NULL DEFAULT 0;
ALTER TABLE question ADD COLUMN answered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE question ADD COLUMN expires_at INTEGER;
ALTER TABLE question ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
UPDATE question SET answered = 1 WHERE answer IS NOT NULL;

-- Open ones only, which are few: those that run out, and the inbox in the order of asking.
CREATE INDEX question_expiry ON question (expires_at) WHERE closed_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX question_open ON question (asked_at) WHERE closed_at IS NULL;
