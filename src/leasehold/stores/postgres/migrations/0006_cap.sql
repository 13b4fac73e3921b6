-- One row per task that was ever run at once. It holds no figure that could drift: it is what such calls lock, so that
-- they decide one after the other.
CREATE TABLE leasehold.cap (
    kind text PRIMARY KEY
);
