-- name: store_birth
-- When the schema was made, in microseconds: it distinguishes this store from others.
SELECT (extract(epoch FROM applied_at) * 1000000)::bigint FROM leasehold.migration WHERE version = 1;

-- name: find_filed
-- What may need files of these jobs: the outcome that names one, and the lease of an attempt that may still settle. One
-- statement: it sees both at one moment.
SELECT j.id, l.token, o.result_ref FROM unnest(:ids::uuid[]) AS r(id)
CROSS JOIN LATERAL (SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.id = r.id LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT x.token FROM leasehold.lease AS x WHERE x.job = j.seq LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT x.result_ref FROM leasehold.outcome AS x WHERE x.job = j.seq LIMIT 1) AS o ON true;

-- name: find_last_piece
-- The number of the last result that the holder of this lease has written. No row: the lease is lost.
SELECT coalesce((SELECT max(p.number) FROM leasehold.result_piece AS p WHERE p.job = l.job AND p.token = l.token), 0) AS number
FROM leasehold.job AS j, LATERAL (
    SELECT q.job, q.token FROM leasehold.lease AS q WHERE q.job = j.seq AND q.token = :token LIMIT 1) AS l
WHERE j.id = :id;

-- name: insert_piece
-- Under the fence: an attempt that has lost its lease writes nothing, and gets no row back. Nothing is locked: a piece
-- that is written just before the lease is lost is swept. The same piece again (a repeat after a lost reply) changes
-- nothing.
INSERT INTO leasehold.result_piece (job, token, number, piece, text)
SELECT l.job, l.token, :number, :piece, :text FROM leasehold.job AS j, LATERAL (
    SELECT q.job, q.token FROM leasehold.lease AS q WHERE q.job = j.seq AND q.token = :token LIMIT 1) AS l
WHERE j.id = :id
ON CONFLICT (job, token, number, piece) DO UPDATE SET text = excluded.text
RETURNING job;

-- name: read_pieces
SELECT p.text FROM leasehold.job AS j CROSS JOIN leasehold.result_piece AS p
WHERE j.id = :id AND p.job = j.seq AND p.token = :token AND p.number = :number ORDER BY p.piece;

-- name: sweep_pieces
-- Results that no outcome names and no attempt may still settle. One statement: it sees lease and outcome at one moment.
-- Few at a time: each piece is large.
DELETE FROM leasehold.result_piece AS p USING (
    SELECT q.job, q.token, q.number, q.piece FROM leasehold.result_piece AS q
    WHERE NOT EXISTS (SELECT FROM leasehold.lease AS l WHERE l.job = q.job AND l.token = q.token OFFSET 0)
      AND NOT EXISTS (
        SELECT FROM leasehold.outcome AS o
        WHERE o.job = q.job AND o.result_ref = 'database:' || q.token || '.' || q.number OFFSET 0)
    LIMIT :limit) AS s
WHERE p.job = s.job AND p.token = s.token AND p.number = s.number AND p.piece = s.piece
RETURNING p.job;
