-- name: insert_jobs
-- Jobs that are alike but for id, arguments, lane and key, in the order given (seq follows it). A row that meets its own
-- id (a repeat after a lost reply) or a held unique key is left out of the answer, and the caller finds out which it was.
INSERT INTO leasehold.job (id, kind, queue, gate, limited, priority, state, args, policy, created_at, available_at, lane, lane_at,
    lease_seconds, unique_key, unique_for, group_name, tags, held, deadline_at, start_by, retry_of, trace)
SELECT r.id, :kind::text, :queue::text, :gate::bigint, :limited::boolean, :priority::smallint,
    CASE WHEN :hold::boolean THEN 'pending' ELSE 'queued' END, r.args::json, :policy::json, :now,
    coalesce(:at::timestamptz, :now + :delay::double precision * interval '1 second'),
    r.lane, CASE WHEN r.lane IS NOT NULL THEN
        greatest(coalesce(:at::timestamptz, :now + :delay::double precision * interval '1 second'), :now) END,
    :lease_seconds::double precision, r.unique_key, :unique_for::text, :group_name::text, :tags::json, :hold::boolean,
    :now + :deadline::double precision * interval '1 second', :now + :start_by::double precision * interval '1 second',
    :retry_of::uuid, :trace::text
FROM unnest(:jobs.ids::uuid[], :jobs.args::text[], :jobs.lanes::text[], :jobs.keys::text[])
    AS r(id, args, lane, unique_key)
ON CONFLICT DO NOTHING
RETURNING id, lane_at;

-- name: insert_plain
-- One job with nothing special about it, and the bell in the same commit: a round trip less than both by themselves.
INSERT INTO leasehold.job (id, kind, queue, gate, priority, state, args, policy, created_at, available_at, lease_seconds)
VALUES (:id, :kind, :queue, :gate, :priority, 'queued', :args, :policy, :now,
    :now + :delay::double precision * interval '1 second', :lease_seconds::double precision)
ON CONFLICT DO NOTHING
RETURNING CASE WHEN :ring::boolean THEN pg_notify(:channel, '') END;

-- name: copy_plain
COPY leasehold.job (id, kind, queue, gate, priority, state, policy, created_at, available_at, lease_seconds, args)
FROM STDIN;

-- name: read_clock
SELECT statement_timestamp()::text AS now;

-- name: insert_gates
INSERT INTO leasehold.gate (id, queue, kind, slots, rate_key)
SELECT r.id, r.queue, r.kind, r.slots::json, r.rate_key
FROM json_to_recordset(:gates::json) AS r(id bigint, queue text, kind text, slots text, rate_key text)
ON CONFLICT DO NOTHING;

-- name: insert_tickets
-- A ticket of gate 0 speaks for a head that is not known for sure; its rank is that of the job that seems to be next:
-- under the rank of the job that left, a higher head would be looked at too late.
INSERT INTO leasehold.ticket (gate, priority, available_at, lane)
SELECT r.gate, coalesce(h.priority, r.priority), r.available_at, r.lane
FROM json_to_recordset(:tickets::json) AS r(gate bigint, priority smallint, available_at timestamptz, lane text)
LEFT JOIN LATERAL (
    SELECT j.priority FROM leasehold.job AS j
    WHERE r.gate = 0 AND j.lane = r.lane AND j.lane IS NOT NULL AND j.state = 'queued' AND j.lane_at <= :now
    ORDER BY j.lane_at, j.seq LIMIT 1) AS h ON true;

-- name: insert_tags
INSERT INTO leasehold.tag (name, job_id)
SELECT r.name, r.job_id FROM json_to_recordset(:tags::json) AS r(name text, job_id uuid)
ON CONFLICT DO NOTHING;

-- name: touch_groups
-- Makes the group with its first job, and tells those who watch it that something has changed. A group
-- on hold is left out of the answer: nothing may come into it. In name order: two
-- transactions that touch the same groups must not wait for each other in a circle.
INSERT INTO leasehold.job_group AS g (name)
SELECT name FROM unnest(:names::text[]) AS n(name) ORDER BY name
ON CONFLICT (name) DO UPDATE SET version = g.version + 1, state = 'active', reason = NULL WHERE g.state <> 'held'
RETURNING name;

-- name: find_key_holders
-- Who holds these unique keys now. One probe of the unique index per key, whatever the statistics say.
SELECT j.id, j.kind, j.unique_key, j.state, j.attempt
FROM unnest(:kinds::text[], :keys::text[]) AS k(kind, unique_key), LATERAL (
    SELECT q.id, q.kind, q.unique_key, q.state, q.attempt FROM leasehold.job AS q
    WHERE q.kind = k.kind AND q.unique_key = k.unique_key AND q.unique_key IS NOT NULL
      AND (q.unique_for = 'ever' OR q.state IN ('pending', 'queued', 'running', 'waiting', 'paused'))
    LIMIT 1) AS j;

-- name: find_ids
SELECT id FROM leasehold.job WHERE id = ANY(:ids::uuid[]);
