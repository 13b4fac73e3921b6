-- name: take_request
-- No row: the same key was used within that time. Whoever asks at the same moment waits here until the first is done.
INSERT INTO leasehold.idempotency_key AS a (key, fingerprint, answer, at) VALUES (:key, :fingerprint, '[]', :now)
ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, at = excluded.at
WHERE a.at < :now - :seconds::double precision * interval '1 second' RETURNING key;

-- name: find_request
SELECT fingerprint, answer FROM leasehold.idempotency_key WHERE key = :key;

-- name: answer_request
UPDATE leasehold.idempotency_key SET answer = :answer WHERE key = :key;

-- name: forget_requests
-- A few of the oldest, so that each new one makes room for itself. What somebody has locked is left to the next.
DELETE FROM leasehold.idempotency_key WHERE key IN (
    SELECT key FROM leasehold.idempotency_key WHERE at < :now - :seconds::double precision * interval '1 second' AND key <> :key
    ORDER BY at LIMIT :limit FOR UPDATE SKIP LOCKED);
