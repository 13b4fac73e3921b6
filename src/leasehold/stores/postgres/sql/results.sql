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
