-- name: find_progress
-- Of these jobs those whose runs have kept something since the last run that crashed.
SELECT j.seq FROM unnest(:seqs::bigint[]) AS asked(seq),
    LATERAL (SELECT q.seq, q.id FROM leasehold.job AS q WHERE q.seq = asked.seq LIMIT 1) AS j
WHERE greatest(
    coalesce((SELECT max(s.attempt) FROM leasehold.step AS s WHERE s.job_id = j.id), 0),
    coalesce((SELECT c.attempt FROM leasehold.checkpoint AS c WHERE c.job_id = j.id), 0))
    > coalesce((SELECT max(a.number) FROM leasehold.attempt AS a
                WHERE a.job = j.seq AND a.ended IN ('lost', 'crashed')), 0);
