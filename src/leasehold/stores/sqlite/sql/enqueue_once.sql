-- name: take_request
-- No row: the same key was used within that time.
INSERT INTO leasehold_idempotency_key (key, fingerprint, answer, at) VALUES (:key, :fingerprint, '[]', :now)
ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, at = excluded.at
WHERE leasehold_idempotency_key.at < :now - CAST(round(:seconds * 1e6) AS INTEGER) RETURNING key;

-- name: find_request
SELECT fingerprint, answer FROM leasehold_idempotency_key WHERE key = :key;

-- name: answer_request
UPDATE leasehold_idempotency_key SET answer = :answer WHERE key = :key;

-- name: forget_requests
-- A few of the oldest, so that each new one makes room for itself.
DELETE FROM leasehold_idempotency_key WHERE key IN (
    SELECT key FROM leasehold_idempotency_key WHERE at < :now - CAST(round(:seconds * 1e6) AS INTEGER) AND key <> :key
    ORDER BY at LIMIT :limit);
