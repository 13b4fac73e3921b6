-- name: get_job
SELECT j.*, :now AS now FROM leasehold.job AS j WHERE j.id = :id;

-- name: list_jobs
-- One page, newest first; payloads stay where they are. Fragments named list_jobs.where_… are added as asked.
SELECT j.id, j.seq, j.kind, j.queue, j.gate, j.priority, j.state, j.reason, j.created_at, j.available_at, j.lane,
    j.attempt, j.failures, j.crashes, j.stop_requested, j.lease_owner, j.lease_expires_at, j.started_at, j.finished_at,
    j.group_name, j.tags, j.error
FROM leasehold.job AS j WHERE true

-- name: list_jobs.where_before
 AND j.id < :before

-- name: list_jobs.where_states
 AND j.state = ANY(:states::text[])

-- name: list_jobs.where_queue
 AND j.queue = :queue

-- name: list_jobs.where_kind
 AND j.kind = :kind

-- name: list_jobs.where_lane
 AND j.lane = :lane

-- name: list_jobs.where_group
 AND j.group_name = :group

-- name: list_jobs.where_tag
 AND j.id IN (SELECT t.job_id FROM leasehold.tag AS t WHERE t.name = :tag)

-- name: list_jobs.page
 ORDER BY j.id DESC LIMIT :limit

-- name: count_state
-- Capped: a count nobody waits for.
SELECT count(*) AS jobs FROM (SELECT 1 FROM leasehold.job AS j WHERE j.state = :state LIMIT :cap) AS capped;

-- name: list_history
SELECT at, event, from_state, to_state, token, attempt, actor, detail FROM leasehold.history
WHERE job_id = :id ORDER BY id;

-- name: find_last_actor
SELECT actor FROM leasehold.history WHERE job_id = :id AND event = ANY(:events::text[]) ORDER BY id DESC LIMIT 1;

-- name: count_ahead
-- Due jobs of the queue that a claim would take before this one. Of every gate a limited number of rows is read, due or
-- not, so a crowd of delayed jobs costs no more. Other gates with limits, and paused ones, are in nobody's way.
SELECT count(*) FROM leasehold.gate AS g, LATERAL (
    SELECT j.priority, j.available_at, j.seq FROM leasehold.job AS j
    WHERE j.gate = g.id AND j.lane IS NULL AND j.state = 'queued' AND j.priority >= :priority
    ORDER BY j.priority DESC, j.available_at, j.seq LIMIT :cap) AS b
WHERE g.queue = :queue AND (g.id = :gate OR (g.slots IS NULL AND g.rate_key IS NULL))
  AND NOT EXISTS (SELECT FROM leasehold.pause AS p
                  WHERE p.scope = 'kind' AND p.name = g.kind AND (p.until IS NULL OR p.until > :now))
  AND b.available_at <= :now
  AND (b.priority > :priority OR (b.available_at, b.seq) < (:available_at::timestamptz, :seq::bigint));

-- name: count_ahead_in_lane
SELECT count(*) FROM (
    SELECT 1 FROM leasehold.job AS j WHERE j.lane = :lane AND j.lane IS NOT NULL AND j.state = 'queued'
      AND (j.lane_at, j.seq) < (:lane_at::timestamptz, :seq::bigint)
    ORDER BY j.lane_at, j.seq LIMIT :cap) AS b;

-- name: list_questions
-- A secret answer is for the job alone.
SELECT key, text, schema, CASE WHEN NOT secret THEN answer END AS answer, asked_at, closed_at, secret, expires_at, expired,
    answered
FROM leasehold.question WHERE job_id = :id ORDER BY asked_at, key;

-- name: count_lane_tickets
-- For tests and the doctor: an unblocked lane with a due head must have one.
SELECT count(*) AS tickets FROM leasehold.ticket WHERE lane = :lane;
