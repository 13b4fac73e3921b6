-- name: insert_audit
-- In the transaction of the verb that it records; a refusal in a transaction of its own.
INSERT INTO leasehold.audit (at, actor, verb, target, detail, outcome, error)
VALUES (:now, :actor, :verb, :target, :detail::json, :outcome, :error);

-- name: list_audit
-- Newest first. Then the list_audit.by_… of the index to walk, the list_audit.where_… of the filters, and the page of
-- that index. With plain equality the planner may walk seq itself and filter, or sort all that match.
SELECT seq, at, actor, verb, target, detail, outcome, error FROM leasehold.audit WHERE

-- name: list_audit.by_seq
 seq < :before

-- name: list_audit.by_actor
 (actor, seq) < (:actor, :before) AND actor >= :actor

-- name: list_audit.by_verb
 (verb, seq) < (:verb, :before) AND verb >= :verb

-- name: list_audit.by_target
 (target, seq) < (:target, :before) AND target >= :target

-- name: list_audit.where_actor
 AND actor = :actor

-- name: list_audit.where_verb
 AND verb = :verb

-- name: list_audit.page_by_seq
 ORDER BY seq DESC LIMIT :limit

-- name: list_audit.page_by_actor
 ORDER BY actor DESC, seq DESC LIMIT :limit

-- name: list_audit.page_by_verb
 ORDER BY verb DESC, seq DESC LIMIT :limit

-- name: list_audit.page_by_target
 ORDER BY target DESC, seq DESC LIMIT :limit

-- name: find_old_audit
-- The first rows are the oldest.
SELECT a.seq FROM (SELECT x.seq, x.at FROM leasehold.audit AS x ORDER BY x.seq LIMIT :limit) AS a
WHERE a.at < :now - :age::double precision * interval '1 second';

-- name: prune_audit
DELETE FROM leasehold.audit WHERE seq = ANY(:seqs::bigint[]) RETURNING seq;
