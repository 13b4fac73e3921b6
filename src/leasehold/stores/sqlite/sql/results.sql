-- name: store_birth
-- When the schema was made, in microseconds: it distinguishes this store from others.
SELECT applied_at FROM leasehold_migration WHERE version = 1;

-- name: find_filed
-- What may need files of these jobs: the outcome that names one, and the lease of an attempt that may still settle. One
-- statement: it sees both at one moment.
SELECT j.id, l.token, o.result_ref FROM json_each(:ids) AS r CROSS JOIN leasehold_job AS j ON j.id = r.value
LEFT JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_outcome AS o ON o.job = j.seq;

-- name: find_last_piece
-- The number of the last result that the holder of this lease has written. No row: the lease is lost.
SELECT coalesce((SELECT max(p.number) FROM leasehold_result_piece AS p WHERE p.job = l.job AND p.token = l.token), 0) AS number
FROM leasehold_job AS j CROSS JOIN leasehold_lease AS l ON l.job = j.seq WHERE j.id = :id AND l.token = :token;

-- name: insert_piece
-- Under the fence: an attempt that has lost its lease writes nothing, and gets no row back. The same piece again (a
-- repeat after a lost reply) changes nothing.
INSERT INTO leasehold_result_piece (job, token, number, piece, text)
SELECT l.job, l.token, :number, :piece, :text FROM leasehold_job AS j CROSS JOIN leasehold_lease AS l ON l.job = j.seq
WHERE j.id = :id AND l.token = :token
ON CONFLICT (job, token, number, piece) DO UPDATE SET text = excluded.text
RETURNING job;

-- name: read_pieces
SELECT p.text FROM leasehold_job AS j CROSS JOIN leasehold_result_piece AS p ON p.job = j.seq
WHERE j.id = :id AND p.token = :token AND p.number = :number ORDER BY p.piece;

-- name: sweep_pieces
-- Results that no outcome names and no attempt may still settle. Few at a time: each piece is large.
DELETE FROM leasehold_result_piece WHERE rowid IN (
    SELECT q.rowid FROM leasehold_result_piece AS q
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_lease AS l WHERE l.job = q.job AND l.token = q.token)
      AND NOT EXISTS (
        SELECT 1 FROM leasehold_outcome AS o
        WHERE o.job = q.job AND o.result_ref = 'database:' || q.token || '.' || q.number)
    LIMIT :limit)
RETURNING job;
