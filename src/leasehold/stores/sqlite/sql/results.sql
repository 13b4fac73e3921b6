-- name: store_birth
-- When the schema was made, in microseconds: what tells this store from others.
SELECT applied_at FROM leasehold_migration WHERE version = 1;

-- name: find_filed
-- By whom files of these jobs may be needed: the outcome that names one, and the lease of a run that may still settle.
-- One statement: it sees both of one moment.
SELECT j.id, l.token, o.result_ref FROM json_each(:ids) AS r CROSS JOIN leasehold_job AS j ON j.id = r.value
LEFT JOIN leasehold_lease AS l ON l.job = j.seq LEFT JOIN leasehold_outcome AS o ON o.job = j.seq;
