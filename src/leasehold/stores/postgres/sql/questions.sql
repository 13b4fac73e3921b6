-- name: open_question
-- A question repeated while it is open is the same question: its time runs from the first one on.
INSERT INTO leasehold.question AS q (job_id, key, text, schema, secret, asked_at, expires_at)
VALUES (:id, :key, :text, :schema, :secret, :now, :now + :seconds::double precision * interval '1 second')
ON CONFLICT (job_id, key) DO UPDATE SET text = excluded.text, schema = excluded.schema, secret = excluded.secret,
    asked_at = CASE WHEN q.closed_at IS NULL THEN q.asked_at ELSE excluded.asked_at END,
    expires_at = CASE WHEN q.closed_at IS NULL THEN coalesce(q.expires_at, excluded.expires_at)
        ELSE excluded.expires_at END,
    closed_at = NULL, answer = NULL, answered = false, expired = false;

-- name: withdraw_questions
-- Closes open questions of an earlier attempt that are not repeated.
UPDATE leasehold.question SET closed_at = :now WHERE job_id = :id AND closed_at IS NULL AND NOT key = ANY(:keys::text[]);

-- name: find_jobs_with_open_questions
SELECT DISTINCT job_id FROM leasehold.question WHERE job_id = ANY(:ids::uuid[]) AND closed_at IS NULL;

-- name: close_questions
-- Closes the questions of jobs that have ended, and deletes their secret answers.
UPDATE leasehold.question SET closed_at = coalesce(closed_at, :now), answer = CASE WHEN NOT secret THEN answer END
WHERE job_id = ANY(:ids::uuid[]) AND (closed_at IS NULL OR (secret AND answer IS NOT NULL));

-- name: answer_question
UPDATE leasehold.question SET answer = :answer::json, answered = true, closed_at = :now
WHERE job_id = :id AND key = :key AND closed_at IS NULL RETURNING key;

-- name: list_questions
-- Lists the questions of a job for people: a secret answer is for the job alone.
SELECT key, text, schema, CASE WHEN NOT secret THEN answer END AS answer, asked_at, closed_at, secret, expires_at,
    expired, answered
FROM leasehold.question WHERE job_id = :id ORDER BY asked_at, key;

-- name: read_question
-- Reads a question for the job itself and for the check of an answer: with a secret answer, and whether it has expired.
SELECT key, text, schema, answer, asked_at, closed_at, secret, expires_at,
    expired OR (closed_at IS NULL AND coalesce(expires_at <= :now, false)) AS expired, answered
FROM leasehold.question WHERE job_id = :id AND key = :key;

-- name: list_open_questions
-- The inbox: open questions, the oldest first, of jobs that can still receive an answer. The
-- list_open_questions.where_… of the request's filters are added.
SELECT q.job_id, j.task, j.queue, j.group_name, CASE p.state WHEN 2 THEN 'waiting' ELSE 'paused' END AS state,
    q.key, q.text, q.schema, q.secret, q.asked_at, q.expires_at
FROM leasehold.question AS q, LATERAL (
    SELECT x.seq, x.task, x.queue, x.group_name FROM leasehold.job AS x WHERE x.id = q.job_id LIMIT 1) AS j, LATERAL (
    SELECT x.state FROM leasehold.parked AS x WHERE x.job = j.seq LIMIT 1) AS p
WHERE q.closed_at IS NULL AND (q.expires_at IS NULL OR q.expires_at > :now) AND p.state IN (2, 3)

-- name: list_open_questions.where_group
 AND j.group_name = :group

-- name: list_open_questions.where_queue
 AND j.queue = :queue

-- name: list_open_questions.where_task
 AND j.task = :task

-- name: list_open_questions.page
 ORDER BY q.asked_at, q.job_id, q.key LIMIT :limit

-- name: close_expired_questions
-- Closes expired questions under the lock of their jobs: an answer may have come a moment ago.
UPDATE leasehold.question SET closed_at = :now, expired = true
WHERE job_id = ANY(:ids::uuid[]) AND closed_at IS NULL AND expires_at <= :now
RETURNING job_id, key;
