-- name: find_progress
-- Of these jobs those whose runs have kept something since the last run that crashed.
SELECT j.seq FROM leasehold_job AS j
WHERE j.seq IN (SELECT value FROM json_each(:seqs)) AND max(
    coalesce((SELECT max(s.attempt) FROM leasehold_step AS s WHERE s.job_id = j.id), 0),
    coalesce((SELECT c.attempt FROM leasehold_checkpoint AS c WHERE c.job_id = j.id), 0))
    > coalesce((SELECT max(a.number) FROM leasehold_attempt AS a
                WHERE a.job = j.seq AND a.ended IN ('lost', 'crashed')), 0);
