-- name: read_question
-- For the job itself, and for the check of an answer: with a secret answer, and with what the clock says.
SELECT key, text, schema, answer, asked_at, closed_at, secret, expires_at,
    expired OR (closed_at IS NULL AND coalesce(expires_at <= :now, 0)) AS expired, answered
FROM question WHERE job_id = :id AND key = :key;

-- name: list_open_questions
-- The inbox: open questions, the oldest first, of jobs that an answer may still meet. Fragments named
-- list_open_questions.where_… are added as asked.
SELECT q.job_id, j.kind, j.queue, j.group_name, j.state, q.key, q.text, q.schema, q.secret, q.asked_at, q.expires_at
FROM question AS q INDEXED BY question_open CROSS JOIN job AS j ON j.id = q.job_id
WHERE q.closed_at IS NULL AND (q.expires_at IS NULL OR q.expires_at > :now) AND j.state IN ('waiting', 'paused')

-- name: list_open_questions.where_group
 AND j.group_name = :group

-- name: list_open_questions.where_queue
 AND j.queue = :queue

-- name: list_open_questions.where_kind
 AND j.kind = :kind

-- name: list_open_questions.page
 ORDER BY q.asked_at, q.job_id, q.key LIMIT :limit

-- name: find_expired_questions
SELECT job_id FROM question INDEXED BY question_expiry
WHERE closed_at IS NULL AND expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit;

-- name: close_expired_questions
-- Looked at again under the lock of their jobs: an answer may have come a moment ago.
UPDATE question SET closed_at = :now, expired = 1
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND closed_at IS NULL AND expires_at <= :now
RETURNING job_id, key;
