-- name: open_question
-- A question repeated while it is open is the same question: its time runs from the first one on.
INSERT INTO leasehold_question (job_id, key, text, schema, secret, asked_at, expires_at)
VALUES (:id, :key, :text, :schema, :secret, :now, :now + CAST(round(:seconds * 1e6) AS INTEGER))
ON CONFLICT (job_id, key) DO UPDATE SET text = excluded.text, schema = excluded.schema, secret = excluded.secret,
    asked_at = CASE WHEN closed_at IS NULL THEN asked_at ELSE excluded.asked_at END,
    expires_at = CASE WHEN closed_at IS NULL THEN coalesce(expires_at, excluded.expires_at)
        ELSE excluded.expires_at END,
    closed_at = NULL, answer = NULL, answered = 0, expired = 0;

-- name: withdraw_questions
-- Closes open questions of an earlier attempt that are not repeated.
UPDATE leasehold_question SET closed_at = :now WHERE job_id = :id AND closed_at IS NULL AND key NOT IN (SELECT value FROM json_each(:keys));

-- name: find_jobs_with_open_questions
SELECT DISTINCT job_id FROM leasehold_question WHERE job_id IN (SELECT value FROM json_each(:ids)) AND closed_at IS NULL;

-- name: close_questions
-- Closes the questions of jobs that have ended, and deletes their secret answers.
UPDATE leasehold_question SET closed_at = coalesce(closed_at, :now), answer = CASE WHEN NOT secret THEN answer END
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND (closed_at IS NULL OR (secret AND answer IS NOT NULL));

-- name: answer_question
UPDATE leasehold_question SET answer = :answer, answered = 1, closed_at = :now
WHERE job_id = :id AND key = :key AND closed_at IS NULL RETURNING key;

-- name: list_questions
-- Lists the questions of a job for people: a secret answer is for the job alone.
SELECT key, text, schema, CASE WHEN NOT secret THEN answer END AS answer, asked_at, closed_at, secret, expires_at,
    expired, answered
FROM leasehold_question WHERE job_id = :id ORDER BY asked_at, key;

-- name: read_question
-- Reads a question for the job itself and for the check of an answer: with a secret answer, and whether it has expired.
SELECT key, text, schema, answer, asked_at, closed_at, secret, expires_at,
    expired OR (closed_at IS NULL AND coalesce(expires_at <= :now, 0)) AS expired, answered
FROM leasehold_question WHERE job_id = :id AND key = :key;

-- name: list_open_questions
-- The inbox: open questions, the oldest first, of jobs that can still receive an answer. The
-- list_open_questions.where_… of the request's filters are added.
SELECT q.job_id, j.task, j.queue, j.group_name, CASE p.state WHEN 2 THEN 'waiting' ELSE 'paused' END AS state,
    q.key, q.text, q.schema, q.secret, q.asked_at, q.expires_at
FROM leasehold_question AS q INDEXED BY leasehold_question_open CROSS JOIN leasehold_job AS j ON j.id = q.job_id
    CROSS JOIN leasehold_parked AS p ON p.job = j.seq
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
UPDATE leasehold_question SET closed_at = :now, expired = 1
WHERE job_id IN (SELECT value FROM json_each(:ids)) AND closed_at IS NULL AND expires_at <= :now
RETURNING job_id, key;
