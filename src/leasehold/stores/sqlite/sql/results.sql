-- name: store_birth
-- When the schema was made, in microseconds: it distinguishes this store from others.
SELECT applied_at FROM leasehold_migration WHERE version = 1;

-- name: find_filed
-- What may need files of these jobs: the outcome that names one, and the lease of an attempt that may still settle. One
-- statement: it sees both at one moment.
SELECT j.id, l.token, o.result_ref FROM json_each(:ids) AS r CROSS JOIN leasehold_job AS j ON j.id = r.value
LEFT JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_outcome AS o ON o.job = j.seq;
